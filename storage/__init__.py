"""One replica's log on one disk: batches, segments, indexes, recovery, retention, compaction.

Plain Python: nothing here imports Ray or asyncio, nothing reads a clock, and every file is reached through a
`Disk`. Start reading at `partition_log.py`; `record_batch.py` has the bytes.
"""
