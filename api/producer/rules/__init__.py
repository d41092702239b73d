"""Decisions of a producer: options, partitions, sizes of batches, order of delivery, state of a transaction. Pure."""
