"""What a gateway knows of topics: how long a new one is not told by halves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from raylog.actors.kernel.background import Timers
from raylog.actors.link.rules.topic_cache import TopicView
from raylog.actors.protocol.control_messages import NO_LEADER, PartitionMetadata, TopicMetadata
from raylog.actors.protocol.metadata_records import NEVER_LED
from raylog.api.kafka.known_topics import KnownTopics
from tests.unit.actors.kernel.test_timers import in_a_process


class FakeLink:
    """A link whose topics are set by hand."""

    def __init__(self) -> None:
        self._views: dict[bytes, TopicView] = {}
        self._changed: Callable[[], None] = lambda: None

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        self._changed = callback
        return lambda: None

    def topics(self) -> tuple[int, Iterable[TopicView]]:
        return 1, self._views.values()

    def learn(self, topic: TopicMetadata) -> None:
        self._views[topic.topic_id] = TopicView(topic.name, topic.topic_id, ())
        self._changed()

    def forget(self, topic: TopicMetadata) -> None:
        del self._views[topic.topic_id]
        self._changed()


def topic(*leader_epochs: int, name: str = "clicks") -> TopicMetadata:
    partitions = tuple(
        PartitionMetadata(number, NO_LEADER if epoch == NEVER_LED else 1, epoch, (1, 2), (1, 2), (), "")
        for number, epoch in enumerate(leader_epochs)
    )
    return TopicMetadata(name, name.encode().ljust(16), partitions, "as-produced", 1_000)


def test_a_new_topic_is_forming_until_each_partition_has_been_led() -> None:
    async def main(_: Timers) -> None:
        link = FakeLink()
        topics = KnownTopics(link)  # type: ignore[arg-type]  # all of a link that it uses here
        assert topics.is_forming(topic(NEVER_LED)), "it is told before the link has said so"
        link.learn(topic(NEVER_LED, NEVER_LED))
        assert topics.is_forming(topic(0, NEVER_LED))
        assert not topics.is_forming(topic(0, 0))
        assert not topics.is_forming(topic(0, 3)), "it has been led, though nobody may lead it now"

    in_a_process(main, 30.0)


def test_a_topic_is_forming_for_some_seconds_at_most_however_often_the_link_says_something() -> None:
    async def main(_: Timers) -> None:
        link = FakeLink()
        topics = KnownTopics(link)  # type: ignore[arg-type]
        link.learn(topic(NEVER_LED))
        for _second in range(9):
            await asyncio.sleep(1.0)
            link.learn(topic(NEVER_LED))
        assert topics.is_forming(topic(NEVER_LED))
        await asyncio.sleep(1.1)
        assert not topics.is_forming(topic(NEVER_LED))
        link.learn(topic(0, name="orders"))
        assert topics.is_forming(topic(0, NEVER_LED, name="orders"))

    in_a_process(main, 30.0)


def test_partitions_that_are_added_later_do_not_hide_the_others() -> None:
    async def main(_: Timers) -> None:
        link = FakeLink()
        topics = KnownTopics(link)  # type: ignore[arg-type]
        link.learn(topic(0))
        await asyncio.sleep(11.0)
        link.learn(topic(0, NEVER_LED))
        assert not topics.is_forming(topic(0, NEVER_LED))

    in_a_process(main, 30.0)


def test_nothing_is_kept_of_a_topic_that_is_deleted() -> None:
    async def main(_: Timers) -> None:
        link = FakeLink()
        topics = KnownTopics(link)  # type: ignore[arg-type]
        link.learn(topic(NEVER_LED))
        await asyncio.sleep(11.0)
        link.forget(topic(NEVER_LED))
        link.learn(topic(NEVER_LED))
        assert topics.is_forming(topic(NEVER_LED)), "it is another one of that name and, here, of that id"

    in_a_process(main, 30.0)
