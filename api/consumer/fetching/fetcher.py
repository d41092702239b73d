"""Fetching all partitions of one consumer in the background, within bounds, for whoever takes.

    fetcher = Fetcher(link, options)                # on the link's loop, as is every call here
    fetcher.seek(partition, start)                  # begin, or begin anew
    items = await fetcher.take()                    # chunks, and news: in order per partition, fair between them

What must stay true:
- What waits here undecoded is at most `fetch_max_bytes`, shared evenly by the partitions, but for one batch of each
  that may be larger. A partition with something waiting fetches only as much as is left of its share (rule 31).
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
from raylog.actors.link.cluster_link import ClusterLink
from raylog.api.connection.records import TopicPartition
from raylog.api.consumer.fetching.partition_fetcher import PartitionFetcher, waiting_for
from raylog.api.consumer.rules.consumer_options import ConsumerOptions
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

    __slots__ = ("generation", "is_paused", "items", "size", "task", "wanted")

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.task: asyncio.Task[None] | None = None
        self.items: deque[Chunk | Located] = deque()
        self.size = 0
        self.is_paused = False
        self.wanted: asyncio.Future[None] | None = None  # its task waits for room

    def wake(self) -> None:
        if self.wanted is not None and not self.wanted.done():
            self.wanted.set_result(None)


class Fetcher:
    """The core of a consumer."""

    def __init__(self, link: ClusterLink, options: ConsumerOptions) -> None:
        self._link = link
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._feeds: dict[TopicPartition, _Feed] = {}
        self._ready: deque[TopicPartition] = deque()  # who has chunks; the next is first
        self._news: deque[Item] = deque()
        self._topics: dict[str, int] = {}  # that are followed, and how many partitions the taker knows of
        self._is_something: asyncio.Future[None] | None = None  # the taker waits
        self._ending: set[asyncio.Task[None]] = set()
        self._stop_following = link.on_change(self._look_at_topics)
        self.notices = LoopNotices()
        self.take_bytes = min(_TAKE_BYTES, max(1, options.fetch_max_bytes // _TAKE_SHARE))
        # These may be read from any thread.
        self.marks: dict[TopicPartition, PartitionMarks] = {}
        self.fetched_bytes = 0
        self.fetched_chunks = 0

    # --- what is fetched ------------------------------------------------------------------------------------------

    def seek(self, partition: TopicPartition, start: Start) -> None:
        """Fetch it from there on, whatever was before."""
        was_paused = self._drop(partition)
        feed = self._feeds[partition] = _Feed(start.generation)
        feed.is_paused = was_paused
        work = PartitionFetcher(self._link, self._options, partition, start, self)
        feed.task = self._loop.create_task(work.run())
        feed.task.add_done_callback(lambda task: self._over(partition, feed, task))

    def halt(self, partition: TopicPartition) -> None:
        """Fetch it no more, until it is given a position or unassigned."""
        was_paused = self._drop(partition)
        feed = self._feeds[partition] = _Feed(-1)
        feed.is_paused = was_paused

    def remove(self, partition: TopicPartition) -> None:
        self._drop(partition)
        self.marks.pop(partition, None)
        for feed in self._feeds.values():
            feed.wake()  # shares are larger now

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Keep what has been fetched, and fetch nothing more."""
        for partition in partitions:
            if (feed := self._feeds.get(partition)) is not None:
                feed.is_paused = True
                if partition in self._ready:
                    self._ready.remove(partition)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            if (feed := self._feeds.get(partition)) is not None:
                feed.is_paused = False
                if feed.items and partition not in self._ready:
                    self._ready.append(partition)
                feed.wake()
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
        if partition in self._ready:
            self._ready.remove(partition)
        return feed.is_paused

    def _over(self, partition: TopicPartition, feed: _Feed, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            _log.error("%s is fetched no more: %r", partition, error, exc_info=error)
            self.put(Failed(partition, feed.generation, error, is_final=True))

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
            feed.size += size
            self.fetched_bytes += size
            self.fetched_chunks += 1
        if not feed.is_paused and item.partition not in self._ready:
            self._ready.append(item.partition)

    def mark(self, partition: TopicPartition, marks: PartitionMarks) -> None:
        self.marks[partition] = marks

    async def room(self, partition: TopicPartition) -> int:
        while True:
            feed = self._feeds[partition]
            most = min(self._options.max_partition_fetch_bytes, self._share())
            if not feed.is_paused and (not feed.size or feed.size + most <= self._share()):
                return most
            feed.wanted = self._loop.create_future()
            await feed.wanted

    def _share(self) -> int:
        all_of_them = self._options.fetch_max_bytes - _TAKES_ELSEWHERE * self.take_bytes
        return max(1, all_of_them // max(1, len(self._feeds)))

    # --- to the taker ---------------------------------------------------------------------------------------------

    async def take(self) -> list[Item]:
        """Wait until there is something; about `take_bytes` of chunks, one of each partition in turn."""
        while not (self._ready or self._news):
            self._is_something = self._loop.create_future()
            await self._is_something
        items, size = list(self._news), 0
        self._news.clear()
        while self._ready and size < self.take_bytes:
            partition = self._ready.popleft()
            feed = self._feeds[partition]
            item = feed.items.popleft()
            feed.size -= _size(item)
            size += _size(item)
            items.append(item)
            if feed.items:
                self._ready.append(partition)
            feed.wake()
        return items

    def _tell_taker(self) -> None:
        if self._is_something is not None and not self._is_something.done():
            self._is_something.set_result(None)

    async def close(self) -> None:
        self._stop_following()
        for partition in list(self._feeds):
            self._drop(partition)
        if self._ending:
            await asyncio.wait(list(self._ending), timeout=_CLOSE_SECONDS)


def _size(item: Chunk | Located) -> int:
    return len(item.data) if isinstance(item, Chunk) else 0
