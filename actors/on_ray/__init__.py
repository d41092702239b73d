"""The part of the servers that imports Ray: actors, their launchers, data directories on nodes, metrics."""
