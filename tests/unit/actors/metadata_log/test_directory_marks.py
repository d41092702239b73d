"""Which directory is an older copy of what it was, and who may not count on it (rules 7, 17)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest

from raylog.actors.cluster.broker_membership import mark_directory, register_broker
from raylog.actors.kernel.environment import Environment
from raylog.actors.kernel.stream_interface import Response
from raylog.actors.metadata_log.directory_marks import DirectoryMarks, outdated_voters, recorded_marks
from raylog.actors.metadata_log.rules.quorum import PromisedLog
from raylog.actors.protocol.control_messages import MarkDirectory
from raylog.actors.protocol.messages import Done, Message
from raylog.actors.protocol.metadata_records import DirectoryMarked
from raylog.errors import ControllerNotReady, DirectoryOutdated, DiskFull
from tests.simulator.world.world import World
from tests.unit.actors.small_cluster import SmallCluster, registration


def marked(*marks: int) -> SmallCluster:
    """Broker 1 runs, and its directory has had these marks."""
    cluster = SmallCluster(brokers=0)
    request = registration(1)
    cluster.apply(register_broker(cluster.state, cluster.live, request))
    for mark in marks:
        cluster.apply(mark_directory(cluster.state, MarkDirectory(1, request.directory_id, mark)))
    return cluster


def test_a_mark_only_rises() -> None:
    assert marked(1, 3, 2).state.brokers[1].mark == 3


def test_a_directory_that_has_less_than_was_seen_is_refused() -> None:
    cluster, request = marked(1, 2, 3), registration(1)
    for mark in (0, 2):
        with pytest.raises(DirectoryOutdated):
            register_broker(cluster.state, cluster.live, replace(request, broker_run="later", mark=mark))
    for mark in (3, 4):
        again = replace(request, broker_run="later", mark=mark)
        cluster.apply(register_broker(cluster.state, cluster.live, again))
        assert cluster.state.brokers[1].mark == 3


def test_another_directory_begins_anew() -> None:
    cluster = marked(1, 2, 3)
    cluster.live_brokers.discard(1)
    other = replace(registration(1), broker_run="later", directory_id="another", mark=0)
    cluster.apply(register_broker(cluster.state, cluster.live, other))
    assert cluster.state.brokers[1].mark == 0
    assert mark_directory(cluster.state, MarkDirectory(1, registration(1).directory_id, 9)) == []


def test_a_snapshot_keeps_it() -> None:
    state = marked(5).state
    assert recorded_marks(state.to_records()) == {(1, registration(1).directory_id): 5}


def test_an_older_mark_is_kept_where_a_broker_registers_again() -> None:
    cluster, request = marked(1, 2), registration(1)
    cluster.apply(register_broker(cluster.state, cluster.live, replace(request, broker_run="later", mark=2)))
    assert recorded_marks(cluster.state.to_records()) == {(1, request.directory_id): 2}


def test_a_promise_of_a_directory_that_has_less_does_not_count() -> None:
    marks = recorded_marks([DirectoryMarked(1, "a", 2), DirectoryMarked(1, "a", 3), DirectoryMarked(2, "b", 1)])
    promised = [
        PromisedLog(broker_id, directory_id, 1, 0, 5, (), mark)
        for broker_id, directory_id, mark in [(1, "a", 2), (1, "other", 0), (2, "b", 1), (3, "c", 0)]
    ]
    assert outdated_voters(promised, marks) == {(1, "a")}


class Marking:
    """A broker that raises its mark, and when it does."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.did: list[tuple[str, float]] = []
        self.mark = 0
        self.is_disk_full = self.is_cut_off = False
        self.marks: DirectoryMarks | None = None
        world.add_machine("machine").start("marking", self._main)
        assert self.in_seconds(1.0) == []

    async def _main(self, env: Environment) -> None:
        self.marks = DirectoryMarks(env, (1, "directory"), self._raise_mark, self._ask, lambda: True)
        await self.marks.run()

    async def _raise_mark(self) -> int:
        self.did.append(("disk", self.world.now))
        if self.is_disk_full:
            raise DiskFull("simulated")
        self.mark += 1
        return self.mark

    async def _ask(self, asked: Message) -> Response:
        assert asked == MarkDirectory(1, "directory", self.mark)
        self.did.append(("record", self.world.now))
        if self.is_cut_off:
            raise ControllerNotReady("simulated")
        return Response(Done())

    def registered(self) -> None:
        assert self.marks is not None
        self.marks.registered()

    def in_seconds(self, seconds: float) -> list[str]:
        before = len(self.did)
        self.world.run_for(seconds)
        return [what for what, _ in self.did[before:]]


@pytest.fixture
def marking() -> Iterator[Marking]:
    with World(3) as world:
        yield Marking(world)


def test_a_mark_is_on_the_disk_before_it_is_recorded_and_soon_after_a_registration(marking: Marking) -> None:
    marking.registered()
    assert marking.in_seconds(0.1) == ["disk", "record"]
    marking.registered()
    assert marking.in_seconds(1.1) == ["disk", "record"]
    assert marking.in_seconds(20.0) == []


def test_it_rises_every_minute_or_so(marking: Marking) -> None:
    marking.registered()
    did = marking.in_seconds(600.0)
    assert did == ["disk", "record"] * (len(did) // 2)
    pauses = [later - at for (_, at), (_, later) in pairwise(marking.did[::2])]
    assert all(29.0 <= each <= 91.0 for each in pauses)
    assert len(pauses) >= 6


def test_what_is_not_on_the_disk_is_not_recorded_and_is_tried_again(marking: Marking) -> None:
    marking.is_disk_full = True
    marking.registered()
    assert marking.in_seconds(20.0) == ["disk", "disk"]
    marking.is_disk_full, marking.is_cut_off = False, True
    assert marking.in_seconds(15.0) == ["disk", "record"]
    marking.is_cut_off = False
    assert marking.in_seconds(15.0) == ["disk", "record"]
    assert marking.in_seconds(12.0) == []
