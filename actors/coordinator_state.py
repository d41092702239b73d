"""Coordinators in the state of the cluster, and which topics have some."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from raylog.actors.coordinator_records import NO_RETIRED_ID, CoordinatorPlaced, CoordinatorServing
from raylog.actors.partition_state import PartitionId
from raylog.config import MIB, ConfigValue
from raylog.storage.murmur2 import murmur2

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
COORDINATED_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})
COORDINATORS: Final = 3  # of each kind: partitions of a topic that is made because somebody asks for its coordinators

# A group of many members is one record, so batches are large.
# Small segments, so that a new coordinator has little to replay: what is compacted is never in the growing one.
COORDINATED_SETTINGS: Final[Mapping[str, ConfigValue]] = MappingProxyType(
    {
        "cleanup.policy": "compact",
        "segment.bytes": 16 * MIB,
        "min.cleanable.dirty.ratio": 0.3,
        "max.message.bytes": 8 * MIB,
    }
)

FAMILY_SEPARATOR: Final = "\x1f"  # between the name of a family and a member's number, see `transaction_family.py`

LAST_EPOCH: Final = 32_766  # the largest producer epoch, one less: that one fences all others under a retired id
FENCING_EPOCH: Final = 32_767


@lru_cache(4096)
def coordinator_hash(name: str) -> int:
    """Of a transactional id: the remainder by the number of coordinators says whose it is.

    Of a member of a family only the family counts, so that all of them have one coordinator.
    """
    return _hash(name.partition(FAMILY_SEPARATOR)[0])


@lru_cache(4096)
def group_hash(group: str) -> int:
    """The same of a group, of whose name all counts. For whoever asks its coordinator, on whichever side."""
    return _hash(group)


def _hash(name: str) -> int:
    return murmur2(name.encode("utf-8", "surrogatepass")) & 0x7FFFFFFF


@dataclass(frozen=True, slots=True)
class CoordinatorState:
    """As it was placed last; without endpoints it does not serve (yet)."""

    topic_id: bytes
    partition: int
    broker_id: int
    producer_id: int
    epoch: int
    term: int
    retired_id: int = NO_RETIRED_ID
    endpoints: tuple[str, ...] = ()
    pid: int = -1

    @property
    def id(self) -> PartitionId:
        return self.topic_id, self.partition

    @property
    def is_serving(self) -> bool:
        return bool(self.endpoints)

    @classmethod
    def of_record(cls, record: CoordinatorPlaced) -> CoordinatorState:
        return cls(
            record.topic_id, record.partition, record.broker_id, record.producer_id, record.epoch, record.term,
            record.retired_id,
        )  # fmt: skip

    def to_records(self) -> list[CoordinatorPlaced | CoordinatorServing]:
        placed = CoordinatorPlaced(
            self.topic_id, self.partition, self.broker_id, self.producer_id, self.epoch, self.retired_id, self.term
        )
        if not self.is_serving:
            return [placed]
        return [placed, CoordinatorServing(self.topic_id, self.partition, self.epoch, self.endpoints, self.pid)]
