"""`ParallelConsumer`: records by key on many handlers, committed in order."""
