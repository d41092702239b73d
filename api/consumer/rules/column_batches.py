"""Whole batches as columns: what `poll_batches` hands out, without one Python object per record.

    for batch in consumer.poll_batches(timeout_ms=100):
        print(batch.topic, batch.partition, len(batch), sum(map(len, batch.values)))
        frame = batch.to_arrow()                       # needs pyarrow: pip install raylog[arrow]

What must stay true: a view begins at the reader's position, also where its batch begins before. The batch's CRC was
checked before there was a view of it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from raylog.api.connection.records import CREATE_TIME, LOG_APPEND_TIME, TopicPartition
from raylog.errors import BatchError, RecordUnreadable
from raylog.storage.format.batch_codec import BatchColumns, walk_checked
from raylog.storage.format.columns import Headers
from raylog.storage.format.record_batch import BatchHeader, Bytes

if TYPE_CHECKING:
    import pyarrow as pa


class ColumnBatch:
    """Records of one partition, in order, as columns. A column is made when it is asked for first, and kept.

    Keys and values are bytes as they are stored: deserializers and interceptors are for records. A payload that is not
    what its header says raises RecordUnreadable when it is looked at; `next_offset` is where to go on without it.
    """

    def __init__(self, partition: TopicPartition, header: BatchHeader, data: Bytes, position: int) -> None:
        self.topic, self.partition = partition
        self.first_offset = max(header.base_offset, position)
        self.next_offset = header.next_offset
        self.leader_epoch = header.leader_epoch
        self.timestamp_type = LOG_APPEND_TIME if header.is_log_append_time else CREATE_TIME
        self.size_bytes = header.size
        self.record_count = header.record_count  # of the whole batch
        self._header = header
        self._data = data

    def __repr__(self) -> str:
        return f"ColumnBatch({self.topic}-{self.partition}, offsets {self.first_offset} to {self.next_offset - 1})"

    def __len__(self) -> int:
        header = self._header
        if header.record_count == header.last_offset_delta + 1:
            return header.next_offset - self.first_offset
        return len(self.offsets)

    @cached_property
    def offsets(self) -> Sequence[int]:
        """The offset of each record."""
        return self._columns.offsets[self._passed :]

    @cached_property
    def timestamps(self) -> list[int]:
        """The records' timestamps, in milliseconds since 1970."""
        return list(self._columns.timestamps)[self._passed :]

    @cached_property
    def keys(self) -> list[bytes | None]:
        """The key of each record."""
        return list(self._columns.keys)[self._passed :]

    @cached_property
    def values(self) -> list[bytes | None]:
        """The value of each record."""
        return list(self._columns.values)[self._passed :]

    @cached_property
    def headers(self) -> list[Headers]:
        """The headers of each record."""
        return list(self._columns.headers)[self._passed :]

    def to_arrow(self, *, include_headers: bool = False) -> pa.RecordBatch:
        """Columns offset, timestamp, key, value (and headers), made without touching a record."""
        from raylog.storage.format.arrow_columns import checked_to_arrow

        try:
            batch = checked_to_arrow(self._header, self._data, include_headers=include_headers)
        except BatchError as error:
            raise self._unreadable(error) from error
        return batch.slice(self._passed) if self._passed else batch

    @cached_property
    def _passed(self) -> int:
        """The number of its records that lie before the position."""
        if self.first_offset == self._header.base_offset:
            return 0
        return bisect_left(self._columns.offsets, self.first_offset)

    @cached_property
    def _columns(self) -> BatchColumns:
        """Each is walked once, by the property that keeps it."""
        try:
            return walk_checked(self._header, self._data)
        except BatchError as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: BatchError) -> RecordUnreadable:
        return RecordUnreadable(self.topic, self.partition, self.first_offset, self.next_offset, error.describe())
