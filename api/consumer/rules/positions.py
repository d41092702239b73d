"""Partitions that a consumer reads, and how far it has got: assignment, positions, pauses.

    a position is      until
    unknown            `located`: the fetcher has looked up `look_for`
    known              it moves by what is handed out, or becomes another by `seek`

What must stay true:
- A position moves only by what was handed out (`move`), or by a seek.
- Whatever makes a position another (assignment, seek) gives it a generation that no partition had before. What was
  fetched or looked up under an older generation is not for this position any more: `is_current` tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from raylog.actors.protocol.replication_messages import NO_EPOCH
from raylog.api.connection.records import TopicPartition
from raylog.errors import NotAssigned

UNKNOWN: Final = -1


@dataclass(frozen=True, slots=True)
class Start:
    """The place where fetching begins: an offset, or what `look_for` turns out to be."""

    generation: int
    offset: int  # UNKNOWN: to be looked up
    epoch: int  # of the record before it; NO_EPOCH: unknown, nothing to compare the log with
    look_for: int | None  # EARLIEST, LATEST, or a time; None: nobody said where to begin
    suspicions: int = 0  # how often what was fetched from here was damaged: the leader is told


@dataclass(slots=True)
class PartitionPosition:
    """The position in one partition that is read."""

    generation: int
    offset: int  # of the next record to be handed out, or UNKNOWN
    epoch: int
    look_for: int | None
    is_paused: bool = False

    def start(self) -> Start:
        return Start(self.generation, self.offset, self.epoch, self.look_for)


class Positions:
    """The positions in all partitions that one consumer reads."""

    def __init__(self) -> None:
        self._positions: dict[TopicPartition, PartitionPosition] = {}
        self._generation = 0

    def __contains__(self, partition: object) -> bool:
        return partition in self._positions

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._positions)

    def __len__(self) -> int:
        return len(self._positions)

    def __getitem__(self, partition: TopicPartition) -> PartitionPosition:
        """Raises NotAssigned."""
        try:
            return self._positions[partition]
        except KeyError:
            raise NotAssigned(*partition) from None

    def get(self, partition: TopicPartition) -> PartitionPosition | None:
        return self._positions.get(partition)

    def assign(
        self, partitions: Iterable[TopicPartition], look_for: int | None
    ) -> tuple[list[TopicPartition], list[TopicPartition]]:
        """Read exactly these from now on; (new ones, ones let go of). Those it reads already keep their positions."""
        wanted = dict.fromkeys(partitions)
        gone = [each for each in self._positions if each not in wanted]
        new = [each for each in wanted if each not in self._positions]
        for each in gone:
            del self._positions[each]
        for each in new:
            self._positions[each] = PartitionPosition(self._next_generation(), UNKNOWN, NO_EPOCH, look_for)
        return new, gone

    def seek(self, partition: TopicPartition, offset: int, epoch: int = NO_EPOCH) -> None:
        """Raises NotAssigned."""
        self._restart(partition, offset, epoch, None)

    def seek_to(self, partition: TopicPartition, look_for: int | None) -> None:
        """Move to an offset that has to be looked up. NotAssigned."""
        self._restart(partition, UNKNOWN, NO_EPOCH, look_for)

    def refetch(self, partition: TopicPartition) -> None:
        """The same position anew: what was fetched from there on is not good."""
        position = self[partition]
        self._restart(partition, position.offset, position.epoch, position.look_for)

    def is_current(self, partition: TopicPartition, generation: int) -> bool:
        position = self._positions.get(partition)
        return position is not None and position.generation == generation

    def move(self, partition: TopicPartition, offset: int, epoch: int) -> None:
        """Everything below `offset` was handed out, or is nothing that readers see."""
        position = self._positions[partition]
        position.offset = offset
        if epoch != NO_EPOCH:
            position.epoch = epoch

    def paused(self) -> set[TopicPartition]:
        return {each for each, position in self._positions.items() if position.is_paused}

    def _restart(self, partition: TopicPartition, offset: int, epoch: int, look_for: int | None) -> None:
        position = self[partition]
        position.generation = self._next_generation()
        position.offset = offset
        position.epoch = epoch
        position.look_for = look_for

    def _next_generation(self) -> int:
        self._generation += 1
        return self._generation
