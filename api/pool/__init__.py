"""Pools of consumers on Ray that grow and shrink with their lag. `consumer_pool.py` is its face; `rules/` decides."""
