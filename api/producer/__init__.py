"""Producers. `producer.Producer` and `async_producer.AsyncProducer` are their face.

    send → rules (serialize, choose a partition) → buffer (batches) → sending (requests to leaders)
"""
