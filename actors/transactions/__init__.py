"""The coordinator of transactions: begin, add partitions, prepare, markers, end.

`coordinator.TransactionCoordinator` is the core.
"""
