"""Replicas of one partition that a disk, a clock or their leader lets down at an awkward moment."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from raylog.actors.kernel.stream_interface import Request
from raylog.actors.protocol.replication_messages import NO_EPOCH, Pull
from raylog.actors.replica.leader import LeaderRole
from raylog.actors.replica.pushes import FollowerPushes
from raylog.errors import DiskFailed, OffsetOutOfRange, RemoteFailed
from tests.simulator.clients.clients import records_of
from tests.simulator.world.machines import Process
from tests.simulator.world.world import World
from tests.unit.actors.replica_trio import Trio


@pytest.fixture
def trio() -> Iterator[Trio]:
    with World(1) as world:
        yield Trio(world)
        world.run_for(0.01)  # what has just been sent arrives


def led_by_one(trio: Trio, *others: int) -> Trio:
    """Replicas that are all in sync, led by broker 1."""
    trio.start(1, *others)
    trio.min_insync = 1 if not others else 2
    trio.elect(1, (1, *others))
    trio.world.run_for(1.0)
    return trio


def with_sealed_segments(trio: Trio, *others: int) -> Trio:
    """Twenty records in segments of a few each, the first of them at offset 0."""
    trio.settings["segment.bytes"] = "300"
    led_by_one(trio, *others)
    for number in range(20):
        trio.offset_of(trio.append(1, b"%d" % number))
    assert len(trio.log(1).segments) > 5
    return trio


def process_of(trio: Trio, broker_id: int) -> Process:
    process = trio.members[broker_id].process
    assert process is not None
    return process


def leader(trio: Trio) -> LeaderRole:
    replica = trio.members[1].replica
    assert replica is not None
    assert replica._replica is not None
    assert isinstance(replica._replica._role, LeaderRole)
    return replica._replica._role


# --- what a follower says it holds ------------------------------------------------------------------------------------


def test_a_pull_claims_nothing_that_was_pushed_while_it_waited_for_its_flush(
    trio: Trio, monkeypatch: pytest.MonkeyPatch
) -> None:
    trio.settings["flush.policy"] = "fsync"
    led_by_one(trio, 2)
    claims: list[tuple[int, int]] = []
    pull = FollowerPushes.pull

    def note(pushes: FollowerPushes, request: Request, message: Pull, incarnation: int | None) -> object:
        claims.append((message.offset, trio.log(message.broker_id).recovery_point))
        return pull(pushes, request, message, incarnation)

    monkeypatch.setattr(FollowerPushes, "pull", note)
    trio.members[2].machine.slow_disk(50.0)
    for number in range(200):
        trio.append(1, b"%d" % number, timeout_ms=60_000)
        if number % 5 == 0:
            trio.follower(2)._pull_soon()
        trio.world.run_for(0.002)
    trio.members[2].machine.slow_disk(1.0)
    trio.until(lambda: trio.log(1).high_watermark == 200, 60.0)
    assert len(claims) > 5
    assert [claim for claim in claims if claim[0] > claim[1]] == []


# --- reading what is not in memory ------------------------------------------------------------------------------------


def test_a_leader_that_was_deposed_during_a_cold_read_answers_nothing(trio: Trio) -> None:
    """By then its log may be another one's: its start, of all things, would make the follower start over."""
    with_sealed_segments(trio, 2)
    trio.members[1].machine.slow_disk(2_000.0)
    incarnation = trio.members[2].incarnation
    pulling = trio.ask(1, Pull(trio.epoch, 9, 2, incarnation, 0, NO_EPOCH, 0, 1 << 20))
    trio.world.run_for(0.01)
    assert not pulling.done()
    trio.elect(2, (1, 2), 1)
    trio.world.run_for(0.01)
    with pytest.raises(RemoteFailed) as caught:
        trio.answer(pulling)
    assert caught.value.name == "NotLeader"


@pytest.mark.parametrize("start", [0, 1, 2])
def test_a_follower_starts_over_only_where_its_leader_begins_beyond_its_end(
    trio: Trio, monkeypatch: pytest.MonkeyPatch, start: int
) -> None:
    led_by_one(trio, 2)
    trio.offset_of(trio.append(1, b"a", b"b"))
    pull = FollowerPushes.pull
    refused: list[int] = []

    def refuse_once(pushes: FollowerPushes, request: Request, message: Pull, incarnation: int | None) -> object:
        if not refused:
            refused.append(message.offset)
            raise OffsetOutOfRange(message.offset, start, start)
        return pull(pushes, request, message, incarnation)

    monkeypatch.setattr(FollowerPushes, "pull", refuse_once)
    shape = trio.log(2).shape
    trio.until(lambda: bool(refused))
    assert trio.offset_of(trio.append(1, b"c", timeout_ms=10_000)) == 2
    assert trio.log(2).shape == shape
    assert trio.values(2) == [b"a", b"b", b"c"]


def test_a_fetch_at_the_visible_end_waits_also_where_that_is_in_a_sealed_segment(trio: Trio) -> None:
    trio.settings["segment.bytes"] = "300"
    led_by_one(trio, 2)
    process_of(trio, 2).pause()
    for number in range(20):
        trio.append(1, b"%d" % number, acks=1)
    trio.until(lambda: trio.log(1).log_end_offset == 20)
    assert trio.log(1).high_watermark == 0
    assert trio.log(1).segments.active.base_offset > 0
    waiting = trio.fetch(1, 0, max_wait_ms=60_000)
    trio.world.run_for(1.0)
    assert not waiting.done()
    process_of(trio, 2).resume()
    assert records_of(trio.answer(waiting).payload)[0][0] == 0


def test_a_cold_read_that_the_disk_fails_ends_the_replica(trio: Trio) -> None:
    with_sealed_segments(trio)
    trio.members[1].machine.slow_disk(2_000.0)
    fetching = trio.fetch(1, 0)
    trio.world.run_for(0.01)
    trio.members[1].machine.fail_disk("read_at", ".log", seconds=5.0)  # the file was looked at already, now it is read
    trio.until(lambda: trio.members[1].ending is not None, 5.0)
    assert trio.members[1].ending is not None
    assert "I/O error" in trio.members[1].ending
    with pytest.raises(Exception):  # noqa: B017, PT011 (its stream ends, or it is told)
        trio.answer(fetching)


def test_a_write_that_fails_when_nobody_waits_for_it_any_more_ends_the_replica(trio: Trio) -> None:
    """It is as final as any other (rule 2)."""
    led_by_one(trio)
    hosted = leader(trio)._hosted

    def fail() -> None:
        raise DiskFailed("Writing a checkpoint: I/O error.")

    async def give_up_waiting() -> None:
        waiting = asyncio.ensure_future(hosted.beside(fail))
        await asyncio.sleep(0)
        waiting.cancel()

    process_of(trio, 1).run(give_up_waiting())
    trio.until(lambda: trio.members[1].ending is not None, 5.0)
    assert "I/O error" in str(trio.members[1].ending)


# --- a full disk ------------------------------------------------------------------------------------------------------


def test_settings_that_a_full_disk_refuses_leave_what_was_proposed_in_force(trio: Trio) -> None:
    """The controller may record the proposal any moment, so its members go on counting (rule 4)."""
    led_by_one(trio, 2)
    trio.accepts_proposals = False
    trio.start(3)
    trio.assign()
    trio.until(lambda: bool(trio.proposals))
    role = leader(trio)
    proposed = role._leadership.proposed
    assert proposed is not None
    assert len(proposed) == 3
    trio.members[1].machine.fill_disk()
    trio.settings["retention.ms"] = "123456"
    trio.tell_settings()
    trio.world.run_for(2.0)
    assert leader(trio) is role
    assert role._leadership.proposed == proposed
    process_of(trio, 3).pause()
    trio.members[1].machine.free_disk()
    waiting = trio.append(1, b"a", timeout_ms=60_000)
    trio.world.run_for(1.0)
    assert not waiting.done()
    assert trio.log(1).config.retention_ms == 123456
    process_of(trio, 3).resume()
    assert trio.offset_of(waiting) == 0


def test_who_cannot_begin_to_lead_lets_others_do_so(trio: Trio) -> None:
    led_by_one(trio, 2, 3)
    trio.members[2].machine.fill_disk()
    trio.elect(2, (2, 3))
    trio.world.run_for(1.0)
    assert process_of(trio, 2).is_alive
    trio.until(lambda: trio.members[2].ending is not None, 3.0)
    ending = trio.members[2].ending
    assert ending is not None
    assert "No space left" in ending


def test_who_cannot_begin_to_lead_goes_on_trying_where_nobody_else_could(trio: Trio) -> None:
    led_by_one(trio)
    trio.members[1].machine.fill_disk()
    trio.elect(1, (1,))
    trio.world.run_for(10.0)
    assert process_of(trio, 1).is_alive
    trio.members[1].machine.free_disk()
    trio.world.run_for(1.0)
    assert trio.offset_of(trio.append(1, b"a")) == 0
