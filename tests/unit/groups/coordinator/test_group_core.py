"""What a group coordinator's core makes of its log and of a link; the core itself runs in the simulated cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from raylog.actors.kernel.metrics import GROUP_LAG, GROUP_MEMBERS, GROUP_OFFSET
from raylog.actors.link.rules.topic_cache import PartitionLeader, TopicView
from raylog.actors.protocol.replication_messages import EARLIEST, LATEST, ListedOffset
from raylog.errors import CoordinatorReplaced, CoordinatorStopped, NotLeader, ProducerFenced
from raylog.groups.coordinator.core import ClaimedLog, GroupCore, LinkTopics
from raylog.groups.coordinator.log_ends import LogEnds
from tests.unit.groups.coordinator_world import World, play


class _FencedLog:
    def __init__(self) -> None:
        self.ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def claim(self) -> int:
        raise ProducerFenced(7, 3, 4)

    def append(self, _records: object) -> asyncio.Future[None]:
        self.ended.set_result(ProducerFenced(7, 3, 4))
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_exception(CoordinatorStopped("t", 0, 3))
        return done


@pytest.mark.parametrize("call", ["claim", "append"])
def test_whoever_is_fenced_was_replaced(call: str) -> None:
    async def ask() -> None:
        log = ClaimedLog(cast(Any, _FencedLog()))
        await (log.claim(3) if call == "claim" else log.append([(b"k", b"v")]))

    with pytest.raises(CoordinatorReplaced):
        asyncio.run(ask())


class _Link:
    def __init__(self) -> None:
        self.version = -1
        self.views: list[TopicView] = []
        self.callbacks: list[Callable[[], None]] = []

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        self.callbacks.append(callback)
        return lambda: self.callbacks.remove(callback)

    async def follow_all(self, _timeout: float) -> None:
        self.put(4, "a")

    def topics(self) -> tuple[int, list[TopicView]]:
        return self.version, self.views

    def rack_of(self, broker: int) -> str:
        return {1: "east", 2: "west"}.get(broker, "")

    def put(self, version: int, *names: str) -> None:
        self.version = version
        leaders = (PartitionLeader("a", b"a", 0, 1, 0, (), "n", (1, 2, 3)),)
        self.views = [TopicView(name, name.encode(), leaders) for name in names]
        for callback in self.callbacks:
            callback()


def test_topics_come_from_the_link_with_their_racks() -> None:
    async def follow() -> None:
        link, changes = _Link(), []
        topics = LinkTopics(cast(Any, link))
        stop = await topics.begin()
        forget = topics.on_change(lambda: changes.append(topics.version))
        assert topics.by_name()["a"].racks == (frozenset({"east", "west"}),)
        link.put(3, "b")
        assert (topics.version, "b" in topics.by_name()) == (4, False), "an older version was taken"
        link.put(5, "b")
        assert changes == [5]
        assert topics.by_id(b"a") is None
        assert topics.by_id(b"b") is not None
        forget()
        stop()
        assert not link.callbacks

    asyncio.run(follow())


class _Leaders:
    """A link to leaders that know where their logs end."""

    def __init__(self, **ends: int) -> None:
        self.ends = ends
        self.asked = 0

    def leader(self, topic: str, partition: int) -> PartitionLeader | None:
        return PartitionLeader(topic, topic.encode(), partition, 1, 3, (), "n") if topic in self.ends else None

    async def offset_at(self, leader: PartitionLeader, timestamp: int, committed: bool, timeout: float) -> ListedOffset:
        self.asked += 1
        assert not committed
        if timestamp == EARLIEST:
            return ListedOffset(2, -1, 3)
        assert timestamp == LATEST
        if self.ends[leader.topic] < 0:
            raise NotLeader(leader.topic, leader.partition, -1, -1)
        return ListedOffset(self.ends[leader.topic], -1, 3)


def test_ends_of_logs_are_asked_for_when_somebody_reads_them() -> None:
    link = _Leaders(a=7, b=-1)

    async def follow(_world: World) -> None:
        ends = LogEnds(cast(Any, link), lambda: [("a", 0), ("b", 0), ("gone", 0), ("a", 0)], list)
        following = asyncio.ensure_future(ends.follow())
        await asyncio.sleep(60.0)
        assert (link.asked, ends.end(("a", 0))) == (0, None)
        await asyncio.sleep(0.1)
        assert [ends.end((name, 0)) for name in ("a", "b", "gone")] == [7, None, None]
        link.ends.update(a=9, b=4)
        await asyncio.sleep(6.0)
        assert [ends.end((name, 0)) for name in ("a", "b", "gone")] == [9, 4, None]
        link.ends["a"] = -1
        await asyncio.sleep(6.0)
        assert ends.end(("a", 0)) == 9, "what was known stands"
        following.cancel()

    play(follow)


def test_of_logs_that_nothing_is_committed_of_the_whole_is_told() -> None:
    link = _Leaders(a=7, b=9, c=-1)

    async def follow(_world: World) -> None:
        ends = LogEnds(cast(Any, link), lambda: [("a", 0)], lambda: [("b", 0), ("c", 0)])
        following = asyncio.ensure_future(ends.follow())
        assert ends.size(("b", 0)) is None
        await asyncio.sleep(0.1)
        assert [ends.size((name, 0)) for name in ("a", "b", "c")] == [None, 7, None]
        following.cancel()

    play(follow)


def test_a_core_reports_lag_offsets_and_members() -> None:
    class Coordinator:
        def members(self) -> list[tuple[str, int]]:
            return [("g", 2), ("empty", 0)]

        def committed(self) -> list[tuple[str, str, int, int]]:
            return [("g", "a", 0, 5), ("g", "b", 1, 9), ("g", "c", 0, 3)]

        def uncommitted(self) -> list[tuple[str, str, int]]:
            return [("g", "d", 0), ("g", "d", 1)]

    class Ends:
        def end(self, place: tuple[str, int]) -> int | None:
            return {("a", 0): 12, ("b", 1): 8}.get(place)

        def size(self, place: tuple[str, int]) -> int | None:
            return {("d", 1): 6}.get(place)

    core = GroupCore.__new__(GroupCore)
    core._coordinator, core._ends = cast(Any, Coordinator()), cast(Any, Ends())
    told = {(each.metric, each.tags): each.value for each in core.readings()}
    assert told == {
        (GROUP_MEMBERS, ("g",)): 2,
        (GROUP_MEMBERS, ("empty",)): 0,
        (GROUP_OFFSET, ("g", "a", "0")): 5,
        (GROUP_OFFSET, ("g", "b", "1")): 9,
        (GROUP_OFFSET, ("g", "c", "0")): 3,
        (GROUP_LAG, ("g", "a", "0")): 7,
        (GROUP_LAG, ("g", "b", "1")): 0,
        (GROUP_LAG, ("g", "d", "1")): 6,
    }
