"""One partition of `__consumer_offsets` as coordinators see it, and the topics: with delays, and fenced by claims.

What must stay true of the fake: what was committed stays, in one order; after a claim has returned nothing of a lower
epoch is committed. What a killed coordinator had sent is committed or not, as chance will have it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from random import Random

from raylog.errors import CoordinatorReplaced
from raylog.groups.records.offsets_log import KnownTopic
from raylog.groups.records.records import Claim, ClaimKey, EncodedRecord, encode
from tests.simulator.world.scheduler import Scheduler
from tests.simulator.world.virtual_loop import VirtualLoop


class OffsetsPartition:
    """The durable records of a partition. `on_batch` hears of each batch as it is committed."""

    def __init__(self, on_batch: Callable[[Sequence[EncodedRecord]], None]) -> None:
        self.records: list[EncodedRecord] = []
        self.claimed_epoch = -1
        self.stalled_until = 0
        self._on_batch = on_batch

    def commit(self, epoch: int, batch: Sequence[EncodedRecord]) -> bool:
        if epoch < self.claimed_epoch:
            return False
        self.records += batch
        self._on_batch(batch)
        return True


class FakeOffsetsLog:
    """One coordinator's hand on the partition."""

    def __init__(self, partition: OffsetsPartition, scheduler: Scheduler, loop: VirtualLoop, random: Random) -> None:
        self._partition = partition
        self._scheduler = scheduler
        self._loop = loop
        self._random = random
        self._epoch = -1
        self._last_arrival = 0
        self._claimed_at = 0
        self._is_cut = False

    async def claim(self, coordinator_epoch: int) -> None:
        future = self._loop.create_future()
        self._last_arrival = self._scheduler.now + self._random.choice((0, 0, 400_000))
        self._arrive(lambda: self._take_claim(coordinator_epoch), future)
        await future

    async def replay(self) -> AsyncIterator[tuple[bytes | None, bytes | None, int]]:
        records = self._partition.records[: self._claimed_at]
        for offset in self._compacted(records):
            key, value = records[offset]
            yield key, value, offset

    def cannot_read(self, offset: int, error: Exception) -> None:
        raise AssertionError(f"Coordinators alone write here, but offset {offset} is {error!r}.")

    def append(self, records: Sequence[EncodedRecord]) -> Awaitable[object]:
        future = self._loop.create_future()
        self._arrive(lambda: self._partition.commit(self._epoch, records), future)
        return future

    def _take_claim(self, epoch: int) -> bool:
        if epoch < self._partition.claimed_epoch:
            return False
        self._epoch = self._partition.claimed_epoch = epoch
        self._partition.commit(epoch, [encode((ClaimKey(), Claim(epoch)))])
        self._claimed_at = len(self._partition.records)
        return True

    def _arrive(self, work: Callable[[], bool], future: object) -> None:
        delay = self._random.choice((500, 2_000, 2_000, 10_000, 60_000))
        arrival = max(self._scheduler.now + delay, self._last_arrival + 1, self._partition.stalled_until)
        self._last_arrival = arrival
        self._scheduler.at(arrival, self._happen, work, future)

    def _happen(self, work: Callable[[], bool], future: object) -> None:
        # Of what a killed process has sent a beginning arrives: its appends have sequences, so none is left out.
        self._is_cut = self._is_cut or (self._loop.is_dead and self._random.random() < 0.5)
        if self._is_cut:
            return
        done = work()
        self._scheduler.after(self._random.randrange(200, 3_000), self._loop.deliver, self._answer, future, done)

    def _answer(self, future: object, done: bool) -> None:
        if done:
            future.set_result(None)  # type: ignore[attr-defined]
        else:
            error = CoordinatorReplaced(self._epoch, self._partition.claimed_epoch)
            future.set_exception(error)  # type: ignore[attr-defined]

    def _compacted(self, records: Sequence[EncodedRecord]) -> list[int]:
        """Return which records compaction leaves: up to some offset the last one of each key, tombstones or not."""
        cleaned_until = self._random.randint(0, len(records))
        drops_tombstones = self._random.random() < 0.5
        last = {key: offset for offset, (key, _) in enumerate(records[:cleaned_until])}
        kept = [
            offset
            for offset in sorted(last.values())
            if not drops_tombstones or records[offset][1] is not None
        ]
        return [*kept, *range(cleaned_until, len(records))]


class TopicBoard:
    """The topics as they are. Names are given to one topic id after the other."""

    def __init__(self) -> None:
        self.version = 0
        self.topics: dict[str, KnownTopic] = {}
        self._created = 0
        self.views: list[TopicsView] = []

    def put(self, name: str, partitions: int) -> None:
        """Create it, or let it grow."""
        known = self.topics.get(name)
        if known is None:
            self._created += 1
            topic_id = self._created.to_bytes(16, "big")
        else:
            topic_id = known.topic_id
        self.topics = {**self.topics, name: KnownTopic(name, topic_id, (frozenset[str](),) * partitions)}
        self._changed()

    def delete(self, name: str) -> None:
        self.topics = {each: topic for each, topic in self.topics.items() if each != name}
        self._changed()

    def _changed(self) -> None:
        self.version += 1
        for view in self.views:
            view.hear(self.version, self.topics)


class TopicsView:
    """Topics as one process has heard of them, later than they changed."""

    def __init__(self, board: TopicBoard, scheduler: Scheduler, loop: VirtualLoop, random: Random) -> None:
        self._scheduler = scheduler
        self._loop = loop
        self._random = random
        self._version = board.version
        self._topics = board.topics
        self._callbacks: list[Callable[[], None]] = []
        board.views.append(self)

    @property
    def version(self) -> int:
        return self._version

    def by_name(self) -> Mapping[str, KnownTopic]:
        return self._topics

    def by_id(self, topic_id: bytes) -> KnownTopic | None:
        return next((each for each in self._topics.values() if each.topic_id == topic_id), None)

    def end_offset(self, topic_id: bytes, partition: int) -> int | None:
        return None

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)

    def hear(self, version: int, topics: Mapping[str, KnownTopic]) -> None:
        delay = self._random.randrange(500, 300_000)
        self._scheduler.after(delay, self._loop.deliver, self._take, version, topics)

    def _take(self, version: int, topics: dict[str, KnownTopic]) -> None:
        if version > self._version:
            self._version, self._topics = version, topics
            for callback in list(self._callbacks):
                callback()
