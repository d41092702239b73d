"""A topic as Ray Data's source: tasks of about as many bytes, of ranges that were fixed when the read was made.

What must stay true: whatever is executed of a Dataset, and however often, reads the same offsets. Only where the
brokers are is asked anew, since a Dataset may be executed hours after it was made.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from ray.data.block import BlockMetadata
from ray.data.datasource import Datasource, ReadTask

from raylog.actors.machine.cluster_access import ClusterAccess
from raylog.api.connection.named_cluster import NamedCluster, find_cluster
from raylog.api.connection.records import TopicPartition
from raylog.api.data.rules.read_plan import ReadPart, share_out, total_bytes
from raylog.api.data.topic_read import TopicRead
from raylog.api.jobs.rules.offset_ranges import OffsetRange

_FRESH_SECONDS: Final = 5.0
_ACCESS_SECONDS: Final = 30.0


class TopicDatasource(Datasource):
    """Ranges of offsets as a source. `sizes`: bytes for each offset, by partition."""

    def __init__(
        self, cluster: str, read: TopicRead, ranges: Sequence[OffsetRange], sizes: Mapping[TopicPartition, float]
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._cluster = cluster
        self._read = read
        self._ranges = tuple(ranges)
        self._sizes = dict(sizes)
        self._known_at = time.monotonic()
        self._projection_map: dict[str, str] | None = None  # Ray Data's name; None: all columns

    def get_name(self) -> str:
        return "Topic"

    def supports_projection_pushdown(self) -> bool:
        return True

    def estimate_inmemory_data_size(self) -> int:
        return total_bytes(self._ranges, self._sizes)

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None  # noqa: ARG002
    ) -> list[ReadTask]:
        names = self._get_data_columns()
        read = replace(self._read, access=self._access())
        read = read if names is None else read.project(names)
        parts = share_out(self._ranges, self._sizes, parallelism) or [ReadPart((), 0)]
        return [_task(read, part, per_task_row_limit) for part in parts]

    def _access(self) -> ClusterAccess:
        if time.monotonic() - self._known_at > _FRESH_SECONDS:
            found = find_cluster(NamedCluster, self._cluster, _ACCESS_SECONDS).access(_ACCESS_SECONDS)
            self._read = replace(self._read, access=found)
            self._known_at = time.monotonic()
        return self._read.access

    def __getstate__(self) -> dict[str, Any]:
        """Return its state for another process, whose clock says nothing of when brokers were asked for."""
        return {**self.__dict__, "_known_at": float("-inf")}


def _task(read: TopicRead, part: ReadPart, row_limit: int | None) -> ReadTask:
    def tables() -> Iterable[pa.Table]:
        return read.tables(part.pieces)

    # The number of rows stays open: markers of transactions and compacted records have offsets, too.
    metadata = BlockMetadata(num_rows=None, size_bytes=part.bytes, input_files=None, exec_stats=None)
    return ReadTask(tables, metadata, schema=read.schema, per_task_row_limit=row_limit)
