"""What a group coordinator's core makes of its log and of a link; the core itself runs in the simulated cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from raylog.actors.topic_cache import PartitionLeader, TopicView
from raylog.errors import CoordinatorReplaced, CoordinatorStopped, ProducerFenced
from raylog.groups.group_core import ClaimedLog, LinkTopics


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
