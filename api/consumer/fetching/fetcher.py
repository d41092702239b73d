"""Fetching all partitions of one consumer in the background, within bounds, for whoever takes.

    fetcher = Fetcher(link, options)                # on the link's loop, as is every call here
    fetcher.seek(partition, start)                  # begin, or begin anew
    items = await fetcher.take()                    # chunks, and news: in order per partition, fair between them

What must stay true:
- What waits here undecoded is at most `fetch_max_bytes`, and what each fetch may bring is within that
  (`rules/fetch_room.py`, rule 31).
- What has been taken is the taker's. What is dropped by a seek, or is of a paused partition, is never given out.
- One taker at a time; what it did not get because it was cancelled is there for the next.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from typing import Final

from raylog.actors.kernel.wait_notices import LoopNotices
from raylog.actors.link.cluster_link import ClusterLink, PartitionLeader
from raylog.api.connection.records import TopicPartition
from raylog.api.consumer.fetching.partition_fetcher import PartitionFetcher, waiting_for
from raylog.api.consumer.fetching.record_watch import RecordWatch
from raylog.api.consumer.rules.consumer_options import ConsumerOptions
from raylog.api.consumer.rules.fetch_room import FetchRoom, Grant
from raylog.api.consumer.rules.fetched import Chunk, Failed, Item, Located, PartitionMarks, Resized
from raylog.api.consumer.rules.positions import Start
from raylog.config import MIB

_TAKE_BYTES: Final = 4 * MIB
_TAKE_SHARE: Final = 16  # that part of fetch_max_bytes at most, for
_TAKES_ELSEWHERE: Final = 4  # so many may be with the taker: on their way, or not looked into
_CLOSE_SECONDS: Final = 5.0

_log = logging.getLogger(__name__)


class _Feed:
    """The task of one partition, and what it has brought."""

    __slots__ = ("generation", "is_paused", "items", "task", "wanted")

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.task: asyncio.Task[None] | None = None
        self.items: deque[Chunk | Located] = deque()
        self.is_paused = False
        self.wanted: asyncio.Future[Grant] | None = None  # its task waits for room


class Fetcher:
    """The core of a consumer."""

    def __init__(self, link: ClusterLink, options: ConsumerOptions) -> None:
        self._link = link
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._feeds: dict[TopicPartition, _Feed] = {}
        self._ready: dict[TopicPartition, None] = {}  # who has chunks; the next is first
        self._news: deque[Item] = deque()
        self._topics: dict[str, int] = {}  # that are followed, and how many partitions the taker knows of
        self._is_something: asyncio.Future[None] | None = None  # the taker waits
        self._ending: set[asyncio.Task[None]] = set()
        self.notices = LoopNotices()
        self.take_bytes = min(_TAKE_BYTES, max(1, options.fetch_max_bytes // _TAKE_SHARE))
        # A watch tells of the first record: to wait for more, each partition keeps a fetch of its own open.
        room = options.fetch_max_bytes - _TAKES_ELSEWHERE * self.take_bytes
        self._room = FetchRoom[TopicPartition](
            room, options.max_partition_fetch_bytes, takes_turns=options.fetch_min_bytes <= 1
        )
        self._watch = RecordWatch(link, options)
        self._stop_following = link.on_change(self._look_at_metadata)
        # These may be read from any thread.
        self.marks: dict[TopicPartition, PartitionMarks] = {}
        self.fetched_bytes = 0
        self.fetched_chunks = 0

    # --- what is fetched ------------------------------------------------------------------------------------------

    def seek(self, partition: TopicPartition, start: Start) -> None:
        """Fetch it from there on, whatever was before."""
        feed = self._begin(partition, start.generation)
        work = PartitionFetcher(self._link, self._options, partition, start, self)
        feed.task = self._loop.create_task(work.run())
        feed.task.add_done_callback(lambda task: self._over(partition, feed, task))

    def halt(self, partition: TopicPartition) -> None:
        """Fetch it no more, until it is given a position or unassigned."""
        self._begin(partition, -1)

    def _begin(self, partition: TopicPartition, generation: int) -> _Feed:
        was_paused = self._drop(partition)
        feed = self._feeds[partition] = _Feed(generation)
        feed.is_paused = was_paused
        self._room.join(partition, is_paused=was_paused)
        return feed

    def remove(self, partition: TopicPartition) -> None:
        self._drop(partition)
        self.marks.pop(partition, None)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Keep what has been fetched, and fetch nothing more."""
        for partition in partitions:
            if (feed := self._feeds.get(partition)) is not None:
                feed.is_paused = True
                self._room.pause(partition)
                self._ready.pop(partition, None)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            if (feed := self._feeds.get(partition)) is not None:
                feed.is_paused = False
                if feed.items:
                    self._ready.setdefault(partition)
                self._room.resume(partition)
        self._grant()
        self._tell_taker()

    def follow(self, topics: dict[str, int]) -> None:
        """Tell the taker when one of these topics has another number of partitions than it knows of."""
        self._topics = dict(topics)
        self._look_at_topics()

    def _drop(self, partition: TopicPartition) -> bool:
        feed = self._feeds.pop(partition, None)
        if feed is None:
            return False
        self.notices.over(waiting_for(partition))
        if feed.task is not None:
            feed.task.cancel()
            self._ending.add(feed.task)
            feed.task.add_done_callback(self._ending.discard)
        self._ready.pop(partition, None)
        self._room.leave(partition)
        self._grant()
        return feed.is_paused

    def _over(self, partition: TopicPartition, feed: _Feed, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            _log.error("%s is fetched no more: %r", partition, error, exc_info=error)
            self.put(Failed(partition, feed.generation, error, is_final=True))

    def _look_at_metadata(self) -> None:
        self._watch.look_at_leaders()
        self._look_at_topics()

    def _look_at_topics(self) -> None:
        for topic, known in self._topics.items():
            view = self._link.topic(topic)
            if view is not None and len(view.partitions) != known:
                self._topics[topic] = len(view.partitions)
                self._news.append(Resized(topic, len(view.partitions)))
                self._tell_taker()

    # --- from the partitions' tasks -------------------------------------------------------------------------------

    def put(self, item: Item) -> None:
        if not isinstance(item, Chunk | Located):
            self._news.append(item)
        elif (feed := self._feeds.get(item.partition)) is not None:  # its own: an older task was cancelled
            self._put_in_order(feed, item)
        self._tell_taker()

    def _put_in_order(self, feed: _Feed, item: Chunk | Located) -> None:
        if isinstance(item, Located) and not feed.items:
            self._news.append(item)  # also where the partition is paused
            return
        feed.items.append(item)
        if size := _size(item):
            self._room.arrived(item.partition, size)
            self.fetched_bytes += size
            self.fetched_chunks += 1
        if not feed.is_paused:
            self._ready.setdefault(item.partition)

    def mark(self, partition: TopicPartition, marks: PartitionMarks) -> None:
        self.marks[partition] = marks

    async def room(self, partition: TopicPartition) -> Grant:
        feed = self._feeds[partition]
        wanted: asyncio.Future[Grant] = self._loop.create_future()
        feed.wanted = wanted
        self._room.wants(partition)
        self._grant()
        return await wanted

    def settled(self, partition: TopicPartition, grant: Grant) -> None:
        self._room.settled(partition, grant)
        self._grant()

    async def until_arrival(self, leader: PartitionLeader, offset: int) -> None:
        if self._room.is_crowded:
            await self._watch.until_arrival(leader, offset)

    def _grant(self) -> None:
        for partition, grant in self._room.grants():
            wanted = self._feeds[partition].wanted
            if wanted is not None and not wanted.done():
                wanted.set_result(grant)

    # --- to the taker ---------------------------------------------------------------------------------------------

    async def take(self) -> list[Item]:
        """Wait until there is something; about `take_bytes` of chunks, one of each partition in turn."""
        while not (self._ready or self._news):
            self._is_something = self._loop.create_future()
            await self._is_something
        items, size = list(self._news), 0
        self._news.clear()
        while self._ready and size < self.take_bytes:
            partition = next(iter(self._ready))
            del self._ready[partition]
            feed = self._feeds[partition]
            item = feed.items.popleft()
            self._room.taken(partition, _size(item))
            size += _size(item)
            items.append(item)
            if feed.items:
                self._ready[partition] = None
        self._grant()
        return items

    def _tell_taker(self) -> None:
        if self._is_something is not None and not self._is_something.done():
            self._is_something.set_result(None)

    async def close(self) -> None:
        self._stop_following()
        for partition in list(self._feeds):
            self._drop(partition)
        await self._watch.close()
        if self._ending:
            await asyncio.wait(list(self._ending), timeout=_CLOSE_SECONDS)


def _size(item: Chunk | Located) -> int:
    return len(item.data) if isinstance(item, Chunk) else 0
