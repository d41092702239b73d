"""Coordinators in the state of the cluster, and which topics have some."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from raylog.actors.cluster.partition import PartitionId
from raylog.actors.protocol.metadata_records import NO_RETIRED_ID, CoordinatorPlaced, CoordinatorServing
from raylog.config import MIB, ConfigValue

# Coordinators of each kind: the partitions of their topic, fixed when the cluster is formed. Twelve are spread evenly
# over 1, 2, 3, 4, 6 and 12 brokers, and the end of one holds up a twelfth of the groups. An idle one costs little.
COORDINATORS: Final = 12

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


LAST_EPOCH: Final = 32_766  # the largest producer epoch, one less: that one fences all others under a retired id
FENCING_EPOCH: Final = 32_767


@dataclass(frozen=True, slots=True)
class CoordinatorState:
    """A coordinator as it was placed last; without endpoints it does not serve (yet)."""

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
