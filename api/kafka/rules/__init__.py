"""Decisions of the gateway.

    batch_conversion.py    columnar batches as Kafka's own, and which of the stored batches a client gets
    converted_batches.py   those that were converted, kept in memory
    fetch_sessions.py      what a client fetches, and what it has been told of it
    memory_budget.py       which connection may hold more of the memory that all hold together
    named_brokers.py       which gateway is named for a partition or a key
    produced_batch.py      checks of what a client sends for a partition
    producer_order.py      which batch of an idempotent producer is sent, waits, or is refused
    request_order.py       which request of a connection begins, and which answer goes out
"""
