"""What brokers are told of their replicas' marks: each change soon, whatever it came from, and nothing else.

The looks of the sweep, which would find what nobody has told of, are switched off where that is asked.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import pytest

from raylog.actors.kernel.background import HEARTBEAT_SECONDS
from raylog.actors.kernel.stream_interface import Response
from raylog.actors.protocol.control_messages import ReplicaMarks
from raylog.actors.protocol.replication_messages import DeleteRecords
from raylog.actors.replica.host import ReplicaHost
from raylog.actors.replica.sweep import HostSweep
from tests.simulator.world.world import World
from tests.unit.actors.replica_trio import Trio

SOON = HEARTBEAT_SECONDS + 0.1


class Told:
    """The marks that hosts have told, by broker: the newest of each, and how many."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.newest: dict[int, ReplicaMarks] = {}
        self.changes = 0
        for name in ("marks", "changed_marks"):
            self._note(patch, name)

    def _note(self, patch: pytest.MonkeyPatch, name: str) -> None:
        ask = getattr(ReplicaHost, name)

        def noted(host: ReplicaHost) -> list[ReplicaMarks]:
            told: list[ReplicaMarks] = list(ask(host))
            for each in told:
                if self.newest.get(host._spec.broker_id) != each:
                    self.newest[host._spec.broker_id] = each
                    self.changes += 1
            return told

        patch.setattr(ReplicaHost, name, noted)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    return Told(monkeypatch)


@pytest.fixture
def trio(told: Told, monkeypatch: pytest.MonkeyPatch) -> Iterator[Trio]:
    with World(1) as world:
        trio = Trio(world)
        trio.settings |= {"segment.bytes": "2000", "retention.ms": "-1"}
        trio.start(1, 2, 3)
        trio.elect(1, (1, 2, 3))
        world.run_for(1.0)
        monkeypatch.setattr(HostSweep, "_sweep", lambda _: None)
        yield trio


def whatever_comes(task: asyncio.Task[Response]) -> None:
    """Let it be answered or refused."""
    task.add_done_callback(lambda done: done.cancelled() or done.exception())


def check(trio: Trio, told: Told) -> None:
    trio.world.run_for(SOON)
    for broker_id, member in trio.members.items():
        if member.process is not None and member.process.is_alive and member.replica is not None:
            assert told.newest[broker_id] == member.replica.marks()


def test_an_append_is_told_of_all_replicas(trio: Trio, told: Told) -> None:
    trio.offset_of(trio.append(1, b"a", b"b"))
    check(trio, told)
    assert {each.log_end_offset for each in told.newest.values()} == {2}
    assert {each.high_watermark for each in told.newest.values()} == {2}


def test_a_deletion_is_told_of_all_replicas(trio: Trio, told: Told) -> None:
    for _ in range(5):
        trio.offset_of(trio.append(1, bytes(1000)))
    trio.answer(trio.ask(1, DeleteRecords(3, 1_000)))
    check(trio, told)
    assert {each.log_start_offset for each in told.newest.values()} == {3}


def test_a_cut_is_told(trio: Trio, told: Told) -> None:
    trio.offset_of(trio.append(1, b"a"))
    one, *others = (trio.members[each].machine for each in (1, 2, 3))
    trio.world.network.partition([one], others)
    whatever_comes(trio.append(1, b"never acknowledged", acks=0))
    check(trio, told)
    assert told.newest[1].log_end_offset == 2
    trio.world.network.heal()
    trio.elect(2, (1, 2, 3))
    trio.have(1)
    check(trio, told)
    assert [told.newest[each].role for each in (1, 2, 3)] == ["follower", "leader", "follower"]


def test_a_full_disk_is_told_and_so_is_that_it_is_over(trio: Trio, told: Told) -> None:
    trio.offset_of(trio.append(1, b"a"))
    trio.members[1].machine.fill_disk()
    whatever_comes(trio.append(1, b"b"))
    trio.world.run_for(SOON)
    seen = [told.newest[1].has_full_disk]
    trio.world.run_for(4.0)
    assert [*seen, told.newest[1].has_full_disk] == [True, False]


@pytest.mark.parametrize("seed", range(30))
def test_whatever_happens_is_told_soon(trio: Trio, told: Told, seed: int) -> None:
    rng = random.Random(seed)
    isr = {1, 2, 3}
    for _ in range(25):
        match rng.choice(("append", "append", "append", "delete", "elect", "nobody leads", "restart", "nothing")):
            case "append":
                to = trio.leader if trio.leader > 0 else 1
                whatever_comes(trio.append(to, bytes(rng.choice((10, 900))), acks=rng.choice((0, -1))))
            case "delete" if trio.leader > 0:
                whatever_comes(trio.ask(trio.leader, DeleteRecords(rng.choice((-1, 0)), 500)))
            case "elect":
                trio.elect(rng.choice(sorted(isr)), tuple(sorted(isr)))
            case "nobody leads":
                trio.elect(-1, tuple(sorted(isr)))
            case "restart":
                broker_id = rng.choice((1, 2, 3))
                process = trio.members[broker_id].process
                assert process is not None
                process.kill()
                trio.start(broker_id)
                trio.elect(rng.choice((1, 2, 3)), (1, 2, 3))
        check(trio, told)


def test_an_idle_replica_tells_nothing(told: Told) -> None:
    with World(1) as world:
        trio = Trio(world)
        trio.settings["retention.ms"] = "-1"
        trio.start(1, 2, 3)
        trio.elect(1, (1, 2, 3))
        trio.offset_of(trio.append(1, b"a"))
        world.run_for(60.0)
        before = told.changes
        world.run_for(300.0)
        assert told.changes == before
