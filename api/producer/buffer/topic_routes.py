"""A producer's view of one topic: its queues, and which of them a key goes to.

    by_key     key → queue, None → the partition of records without a key; what `Producer.send` looks up
    numbers    key → partition, for bulk sends

What must stay true:
- Both are caches: they hold what murmur2 says for this number of partitions, no key that is long, and not too many.
- When the topic gets more partitions, there are new `TopicRoutes`; nothing that the old ones say is added to them.
- A record without a key goes to the partition of the one before it, until so many bytes went there; then to another
  one, each as likely (KIP-794). Bytes are counted, not batches, so that a slow leader does not get more than its
  share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from raylog.api.producer.buffer.record_accumulator import PartitionQueue, RecordAccumulator
from raylog.api.producer.rules.partitioners import Partitioner, make_partitioner, next_sticky, partition_of_key
from raylog.config import KIB
from raylog.errors import UnknownPartition

VISIT_BYTES: Final = 16 * KIB
_MOST_ROUTES: Final = 50_000
LONGEST_CACHED_KEY: Final = 64  # a cached key counts as so short in `room` (RECORD_BYTES)


class TopicRoutes:
    """`available` tells the partitions that have a leader now."""

    def __init__(
        self,
        topic: str,
        partitions: int,
        accumulator: RecordAccumulator,
        partitioner: str | Partitioner,
        source: bytes,
        random: Random,
        available: Callable[[], Sequence[int]],
    ) -> None:
        self.topic = topic
        self.partitions = partitions
        self.queues = [accumulator.queue(topic, partition) for partition in range(partitions)]
        self.by_key: dict[bytes | None, PartitionQueue] = {}
        self.numbers: dict[bytes, int] = {}
        self._every = range(partitions)
        self._available = available
        self._random = random
        self._choose = make_partitioner(partitioner, random, lambda each: self.queues[each].unsent_bytes, source)
        self._sticky = next_sticky(-1, partitions, available(), random)
        self._visit_began = 0
        if self.is_cached:
            for queue in self.queues:
                queue.filled = self._portion_taken
            self._visit(self._sticky)

    @property
    def is_cached(self) -> bool:
        """Whether a key always goes to the same partition, so that `routes` may be used."""
        return self._choose is None

    def route(self, key: bytes | None, partition: int | None) -> PartitionQueue:
        """The queue of a record; remembered for the next of this key, where that goes to the same one."""
        if partition is not None:
            return self.queues[self.check(partition)]
        if self._choose is not None:
            return self.queues[self.check(self._choose(key, self._every, self._available()))]
        if key is None:
            return self.queues[self._sticky]
        queue = self.queues[partition_of_key(key, self.partitions)]
        if len(key) <= LONGEST_CACHED_KEY:
            if len(self.by_key) > _MOST_ROUTES:
                self.by_key.clear()
                self.by_key[None] = self.queues[self._sticky]
            self.by_key[key] = queue
        return queue

    def check(self, partition: int) -> int:
        if type(partition) is not int:
            raise TypeError(f"A partition is a whole number, not a {type(partition).__name__}.")
        if not 0 <= partition < self.partitions:
            raise UnknownPartition(self.topic, partition)
        return partition

    # --- records without a key ---

    def next_partition(self, size: int) -> int:
        """Return the partition for so many bytes of records without a key."""
        current = self._sticky
        self._visited(self.queues[current].taken_bytes() + size)
        return current

    def choose(self, key: bytes | None) -> int:
        """Return what the producer's partitioner says. Only where `is_cached` is not."""
        assert self._choose is not None
        return self.check(self._choose(key, self._every, self._available()))

    def _portion_taken(self, queue: PartitionQueue) -> None:
        if queue is self.queues[self._sticky]:
            self._visited(queue.taken_bytes())

    def _visited(self, taken_bytes: int) -> None:
        if taken_bytes - self._visit_began >= VISIT_BYTES:
            self._visit(next_sticky(self._sticky, self.partitions, self._available(), self._random))

    def _visit(self, partition: int) -> None:
        queue = self.queues[partition]
        self._sticky = partition
        self._visit_began = queue.taken_bytes()
        self.by_key[None] = queue
