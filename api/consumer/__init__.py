"""Consumers. `consumer.Consumer` and `async_consumer.AsyncConsumer` are their face.

    fetching (requests to leaders) → rules (visible batches, records) → poll; group: membership and commits
"""
