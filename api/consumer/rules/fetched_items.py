"""What the fetcher, on its loop, hands over to whoever polls, on any thread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from raylog.actors.protocol.replication_messages import AbortedRange
from raylog.api.connection.records import TopicPartition
from raylog.storage.format.record_batch import Bytes


class PartitionMarks(NamedTuple):
    """How far a partition goes, as its leader said last."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole batches of one partition, as they were fetched. They are a chain; their CRCs have not been looked at."""

    partition: TopicPartition
    generation: int
    position: int  # where the reader goes on; the first batch may begin before it
    end_offset: int
    data: Bytes
    aborted: tuple[AbortedRange, ...] | None  # None: the reader sees what transactions do


@dataclass(frozen=True, slots=True)
class Located:
    """What was to be looked up is found: the partition is read from here on."""

    partition: TopicPartition
    generation: int
    offset: int


@dataclass(frozen=True, slots=True)
class Failed:
    """What a poll has to raise. `is_final`: nothing more is fetched of it until a seek or another assignment."""

    partition: TopicPartition
    generation: int
    error: Exception
    is_final: bool


@dataclass(frozen=True, slots=True)
class Resized:
    """A topic that is followed has another number of partitions."""

    topic: str
    partitions: int


Item: TypeAlias = Chunk | Located | Failed | Resized
