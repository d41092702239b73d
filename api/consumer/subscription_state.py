"""The state of every kind of consumer: its positions, what was fetched, and its orders to the fetcher.

    facade (threads, or asyncio) ──► SubscriptionState ──orders──► Fetcher (on its loop)
                                            ◄──────items──────────────┘

It belongs to the thread that polls. Orders go to the fetcher through `tell`, which keeps their order and does not wait.

What must stay true: `SubscriptionState` decides what is read and from where. Answers to older decisions, which are
still on their way, are known by their generation and change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from raylog.actors.link.rules.topic_cache import TopicView
from raylog.actors.protocol.replication_messages import EARLIEST, NO_EPOCH
from raylog.api.connection.records import TopicPartition
from raylog.api.consumer.fetching.fetcher import Fetcher
from raylog.api.consumer.rules.consumer_options import ConsumerOptions
from raylog.api.consumer.rules.fetch_collector import FetchCollector
from raylog.api.consumer.rules.fetched import Failed, Item, Resized
from raylog.api.consumer.rules.positions import UNKNOWN, Positions
from raylog.errors import ConflictingSubscription

Tell: TypeAlias = Callable[[Callable[[Fetcher], None]], None]
_MAX_OFFSET: Final = 2**63 - 1


class SubscriptionState:
    """The state of one consumer."""

    def __init__(self, options: ConsumerOptions, tell: Tell) -> None:
        self._options = options
        self._tell = tell
        self._topics: dict[str, int] = {}  # subscribed, and how many partitions each has
        self.positions = Positions()
        self.collector = FetchCollector(
            self.positions, self, options.key_deserializer, options.value_deserializer, options.interceptors
        )

    # --- what is read ---------------------------------------------------------------------------------------------

    @property
    def subscription(self) -> frozenset[str]:
        return frozenset(self._topics)

    def subscribe(self, topics: Sequence[TopicView]) -> None:
        """Read all partitions of these topics, and those they get later from their beginning."""
        if self.positions and not self._topics:
            raise ConflictingSubscription("partitions were assigned, and now topics are named")
        self._topics = {topic.name: len(topic.partitions) for topic in topics}
        self._read(self._partitions(), self._options.reset_to)
        self._follow()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        if self._topics:
            raise ConflictingSubscription("topics were named, and now partitions are assigned")
        self._read(partitions, self._options.reset_to)

    def add(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Read these too, as soon as `begin` tells from where. The generations of those that are new."""
        new, _ = self.positions.assign([*self.positions, *partitions], self._options.reset_to)
        for partition in new:
            self.halt(partition)
        return {partition: self.positions[partition].generation for partition in new}

    def begin(self, partition: TopicPartition, generation: int, offset: int, epoch: int) -> None:
        """Here one that was added begins, or where `auto_offset_reset` says; unless it was moved meanwhile."""
        if self.positions.is_current(partition, generation):
            if offset != UNKNOWN:
                self.positions.seek(partition, offset, epoch)
            self._restart(partition)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Read all others."""
        gone = set(partitions)
        self._read([each for each in self.positions if each not in gone], None)

    def unsubscribe(self) -> None:
        self._topics = {}
        self._read((), None)
        self._follow()

    def _partitions(self) -> list[TopicPartition]:
        return [TopicPartition(topic, number) for topic, count in self._topics.items() for number in range(count)]

    def _read(self, partitions: Iterable[TopicPartition], look_for: int | None) -> None:
        before = set(self.positions)
        wanted = dict.fromkeys(partitions)
        for partition in before - wanted.keys():
            self.collector.drop(partition)
        new, gone = self.positions.assign(wanted, look_for)
        for partition in gone:
            self._tell(lambda fetcher, partition=partition: fetcher.remove(partition))  # type: ignore[misc]
        for partition in new:
            self._restart(partition)

    def _follow(self) -> None:
        topics = dict(self._topics)
        self._tell(lambda fetcher: fetcher.follow(topics))

    # --- from where -----------------------------------------------------------------------------------------------

    def seek(self, partition: TopicPartition, offset: int, epoch: int = NO_EPOCH) -> None:
        """Raises NotAssigned; ValueError where that can be no offset."""
        if type(offset) is not int or not 0 <= offset <= _MAX_OFFSET:
            raise ValueError(f"An offset is a whole number from 0 on, and not {offset!r}.")
        self._drop(partition)
        self.positions.seek(partition, offset, epoch)
        self._restart(partition)

    def seek_to(self, partitions: Sequence[TopicPartition], look_for: int) -> None:
        """Move to the beginning, the end, or a time; where no partition is named, in all. NotAssigned."""
        named = partitions or list(self.positions)
        for partition in named:
            self._drop(partition)
        for partition in named:
            self.positions.seek_to(partition, look_for)
            self._restart(partition)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Raises NotAssigned."""
        chosen = list(partitions)
        for partition in chosen:
            self.positions[partition].is_paused = True
            self.collector.pause(partition)
        self._tell(lambda fetcher: fetcher.pause(chosen))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Raises NotAssigned."""
        chosen = list(partitions)
        for partition in chosen:
            self.positions[partition].is_paused = False
            self.collector.resume(partition)
        self._tell(lambda fetcher: fetcher.resume(chosen))

    def _drop(self, partition: TopicPartition) -> None:
        self.positions[partition]  # NotAssigned, before anything is changed
        self.collector.drop(partition)

    def _restart(self, partition: TopicPartition) -> None:
        start = self.positions[partition].start()
        self._tell(lambda fetcher: fetcher.seek(partition, start))

    def refetch(self, partition: TopicPartition, suspicions: int = 0) -> None:
        """See `fetch_collector.Fetching`."""
        start = replace(self.positions[partition].start(), suspicions=suspicions)
        self._tell(lambda fetcher: fetcher.seek(partition, start))

    def halt(self, partition: TopicPartition) -> None:
        self._tell(lambda fetcher: fetcher.halt(partition))

    # --- what comes -----------------------------------------------------------------------------------------------

    def receive(self, items: Iterable[Item]) -> None:
        for item in items:
            if isinstance(item, Failed):
                self.collector.fail(item)
            elif isinstance(item, Resized):
                self._resized(item)
            else:
                self.collector.accept(item)

    def _resized(self, news: Resized) -> None:
        if news.topic not in self._topics:
            return
        self._topics[news.topic] = news.partitions
        # All that is in a new partition came after the subscription, so none of it is passed over.
        self._read(self._partitions(), EARLIEST if self._options.reset_to is not None else None)
