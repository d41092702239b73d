"""The log of a partition. `partition_log.PartitionLog` is its face."""
