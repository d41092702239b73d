"""Replicas of one partition: replication, failover, truncation, acknowledgements, as a controller's word moves them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from raylog.actors.kernel.stream_interface import Request
from raylog.actors.protocol.replication_messages import (
    EARLIEST,
    LATEST,
    NO_EPOCH,
    Appended,
    DeleteRecords,
    Fetch,
    Fetched,
    ListedOffset,
    ListOffset,
    Pull,
    RecordsDeleted,
)
from raylog.actors.replica.leader import AppendWaits
from raylog.actors.replica.pushes import FollowerPushes
from raylog.actors.replica.reads import LeaderReads
from raylog.errors import RemoteFailed
from raylog.storage.segment.leader_epochs import LeaderEpochs
from tests.simulator.clients.clients import records_of
from tests.simulator.world.world import World
from tests.unit.actors.replica_trio import Trio


@pytest.fixture
def trio() -> Iterator[Trio]:
    with World(1) as world:
        yield Trio(world)
        world.run_for(0.01)  # what has just been sent arrives


def led_by_one(trio: Trio) -> Trio:
    """Three replicas, all in sync, led by broker 1."""
    trio.start(1, 2, 3)
    trio.elect(1, (1, 2, 3))
    trio.world.run_for(1.0)
    return trio


def with_a_slow_disk(trio: Trio, follower: int) -> Callable[[], None]:
    """Hold what this follower does beside its loop, until the answer is called."""
    hosted, is_slow = trio.follower(follower)._hosted, [True]
    begin = hosted._begin

    async def slow(work: Callable[[], Any]) -> Any:
        while is_slow:
            await asyncio.sleep(0.01)
        return await begin(work)

    hosted._begin = lambda work: asyncio.ensure_future(slow(work))  # type: ignore[method-assign]
    return is_slow.clear


def failure(trio: Trio, task: object) -> str:
    with pytest.raises(RemoteFailed) as caught:
        trio.answer(task)  # type: ignore[arg-type]
    return caught.value.name


def test_what_is_acknowledged_is_on_every_replica(trio: Trio) -> None:
    led_by_one(trio)
    assert trio.offset_of(trio.append(1, b"a", b"b")) == 0
    assert trio.offset_of(trio.append(1, b"c")) == 2
    for broker_id in (1, 2, 3):
        assert trio.values(broker_id) == [b"a", b"b", b"c"]


def test_followers_hear_the_high_watermark_when_traffic_stops(trio: Trio) -> None:
    led_by_one(trio)
    trio.offset_of(trio.append(1, b"a"))
    trio.until(lambda: all(trio.log(each).high_watermark == 1 for each in (1, 2, 3)), 0.1)


def test_acks_all_waits_for_all_in_sync_replicas(trio: Trio) -> None:
    led_by_one(trio)
    process = trio.members[3].process
    assert process is not None
    process.pause()
    waiting = trio.append(1, b"a", timeout_ms=60_000)
    trio.world.run_for(0.5)
    assert not waiting.done()
    process.resume()
    assert trio.offset_of(waiting) == 0


def test_acks_all_times_out_and_says_that_the_outcome_is_open(trio: Trio) -> None:
    led_by_one(trio)
    process = trio.members[3].process
    assert process is not None
    process.pause()
    assert failure(trio, trio.append(1, b"a", timeout_ms=300)) == "AppendTimedOut"
    process.resume()


def test_what_waits_for_acknowledgement_has_a_bound(trio: Trio, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raylog.actors.replica.leader.MAX_WAITING_BYTES", 1_000)
    led_by_one(trio)
    process = trio.members[3].process
    assert process is not None
    process.pause()
    waiting = trio.append(1, bytes(800), timeout_ms=60_000)
    trio.world.run_for(0.1)
    assert failure(trio, trio.append(1, bytes(800))) == "TooManyBytesInFlight"
    assert trio.log(1).log_end_offset == 1
    process.resume()
    assert trio.offset_of(waiting) == 0
    assert trio.offset_of(trio.append(1, bytes(800))) == 1


def test_acks_one_waits_for_nobody(trio: Trio) -> None:
    trio.start(1)
    trio.elect(1, (1,))
    trio.world.run_for(0.2)
    assert trio.offset_of(trio.append(1, b"a", acks=1)) == 0
    assert trio.log(1).high_watermark == 0


def test_below_the_minimum_nothing_is_written(trio: Trio) -> None:
    trio.start(1)
    trio.elect(1, (1,))
    trio.world.run_for(0.2)
    assert failure(trio, trio.append(1, b"a")) == "NotEnoughReplicas"
    assert trio.log(1).log_end_offset == 0


def test_an_append_that_waits_hears_of_too_small_an_isr(trio: Trio) -> None:
    led_by_one(trio)
    for broker_id in (2, 3):
        process = trio.members[broker_id].process
        assert process is not None
        process.kill()
    waiting = trio.append(1, b"a", timeout_ms=60_000)
    trio.world.run_for(0.2)
    trio.assign(isr=(1,))
    assert failure(trio, waiting) == "NotEnoughReplicasAfterAppend"


def test_a_repeated_batch_is_answered_with_its_first_offset(trio: Trio) -> None:
    led_by_one(trio)
    assert trio.offset_of(trio.append(1, b"a", sequence=0)) == 0
    assert trio.offset_of(trio.append(1, b"b", sequence=1)) == 1
    assert trio.offset_of(trio.append(1, b"a", sequence=0)) == 0
    assert trio.values(2) == [b"a", b"b"]


def test_a_repeated_batch_is_answered_with_the_time_of_its_first_append(trio: Trio) -> None:
    trio.settings["message.timestamp.type"] = "LogAppendTime"
    led_by_one(trio)
    first = trio.answer(trio.append(1, b"a", sequence=0)).message
    assert isinstance(first, Appended)
    assert first.append_time_ms > 0
    trio.world.run_for(1.0)
    assert trio.answer(trio.append(1, b"a", sequence=0)).message == first


def test_a_new_leader_knows_the_sequences_of_the_old_one(trio: Trio) -> None:
    led_by_one(trio)
    trio.offset_of(trio.append(1, b"a", sequence=0))
    trio.elect(2, (1, 2, 3))
    trio.world.run_for(0.5)
    assert trio.offset_of(trio.append(2, b"a", sequence=0)) == 0
    assert failure(trio, trio.append(2, b"c", sequence=2)) == "OutOfOrderSequence"


def test_followers_refuse_clients(trio: Trio) -> None:
    led_by_one(trio)
    assert failure(trio, trio.append(2, b"a")) == "NotLeader"
    assert failure(trio, trio.fetch(2, 0)) == "NotLeader"


def test_a_restarted_follower_catches_up_and_joins(trio: Trio) -> None:
    led_by_one(trio)
    process = trio.members[3].process
    assert process is not None
    process.kill()
    trio.world.run_for(0.1)
    trio.assign(isr=(1, 2))
    trio.world.run_for(0.1)
    for number in range(20):
        trio.offset_of(trio.append(1, b"%d" % number))
    trio.start(3)
    trio.assign()
    trio.until(lambda: trio.isr == (1, 2, 3))
    trio.have(20)
    assert trio.values(3) == [b"%d" % number for number in range(20)]


def test_a_deposed_leader_cuts_what_nobody_else_has(trio: Trio) -> None:
    led_by_one(trio)
    trio.offset_of(trio.append(1, b"a"))
    one = trio.members[1].machine
    trio.world.network.partition([one], [trio.members[2].machine, trio.members[3].machine])
    lost = trio.append(1, b"lost", timeout_ms=60_000)
    trio.world.run_for(0.5)
    trio.elect(2, (2, 3), 2, 3)
    trio.world.run_for(0.5)
    assert trio.offset_of(trio.append(2, b"kept")) == 1
    assert not lost.done()  # acknowledged by nobody
    trio.world.network.heal()
    trio.tell(1)
    assert failure(trio, lost) == "LeadershipLost"
    trio.until(lambda: trio.isr == (2, 3, 1))
    assert trio.values(1) == [b"a", b"kept"]


def test_a_cut_takes_a_producer_back_to_what_is_left(trio: Trio) -> None:
    led_by_one(trio)
    trio.offset_of(trio.append(1, b"a", sequence=0))
    one = trio.members[1].machine
    trio.world.network.partition([one], [trio.members[2].machine, trio.members[3].machine])
    lost = trio.append(1, b"lost", sequence=1, timeout_ms=60_000)
    trio.world.run_for(0.5)
    trio.elect(2, (2, 3), 2, 3)
    trio.world.run_for(0.5)
    trio.world.network.heal()
    trio.tell(1)
    assert failure(trio, lost) == "LeadershipLost"
    trio.until(lambda: trio.isr == (2, 3, 1))
    assert trio.values(1) == [b"a"]
    entry = trio.log(1).producers.get(7)
    assert (entry.last_sequence, entry.last_offset) == (0, 0)


def test_a_zombie_that_still_pushes_is_refused(trio: Trio) -> None:
    led_by_one(trio)
    trio.elect(2, (1, 2, 3), 2, 3)  # broker 1 does not hear of it
    trio.world.run_for(0.5)
    zombie = trio.append(1, b"zombie", timeout_ms=60_000)
    assert trio.offset_of(trio.append(2, b"new")) == 0 if 1 not in trio.isr else True
    trio.world.run_for(1.0)
    assert b"zombie" not in trio.values(2)
    assert b"zombie" not in trio.values(3)
    trio.tell(1)
    assert failure(trio, zombie) == "LeadershipLost"


def test_a_leader_that_hears_of_a_newer_epoch_from_a_follower_stops(trio: Trio) -> None:
    """Rule 13: a follower that was told by the controller, and pulls under the newer epoch."""
    led_by_one(trio)
    trio.epoch += 3
    trio.assign(leader=1, to=(3,))
    trio.world.run_for(1.0)
    assert failure(trio, trio.append(1, b"a")) == "NotLeader"
    trio.tell(1, 2)
    trio.world.run_for(1.0)
    assert trio.offset_of(trio.append(1, b"a")) == 0


def test_a_fetch_waits_for_records(trio: Trio) -> None:
    led_by_one(trio)
    waiting = trio.fetch(1, 0, max_wait_ms=10_000)
    trio.world.run_for(1.0)
    assert not waiting.done()
    trio.offset_of(trio.append(1, b"a"))
    assert records_of(trio.answer(waiting).payload) == [(0, b"a")]


@pytest.mark.parametrize(("readers", "order"), [(4, ["readers", "producer"]), (5, ["producer", "readers"])])
def test_few_readers_are_answered_before_the_producer(
    trio: Trio, monkeypatch: pytest.MonkeyPatch, readers: int, order: list[str]
) -> None:
    led_by_one(trio)
    waiting = [trio.fetch(1, 0, max_wait_ms=10_000) for _ in range(readers)]
    trio.world.run_for(1.0)
    told: list[str] = []

    def note(place: type, name: str, who: str) -> None:
        original = getattr(place, name)

        def noted(*args: Any) -> None:
            told.append(who)
            original(*args)

        monkeypatch.setattr(place, name, noted)

    note(LeaderReads, "wake", "readers")
    note(AppendWaits, "release", "producer")
    trio.offset_of(trio.append(1, b"a"))
    assert told == order
    assert [records_of(trio.answer(each).payload) for each in waiting] == [[(0, b"a")]] * readers


def test_a_fetch_that_has_waited_long_enough_comes_back_empty(trio: Trio) -> None:
    led_by_one(trio)
    answer = trio.answer(trio.fetch(1, 0, max_wait_ms=200))
    assert isinstance(answer.message, Fetched)
    assert not answer.payload
    assert answer.message.next_offset == 0


def test_readers_see_nothing_above_the_high_watermark(trio: Trio) -> None:
    led_by_one(trio)
    process = trio.members[3].process
    assert process is not None
    process.pause()
    trio.append(1, b"a", acks=1)
    trio.world.run_for(0.2)
    answer = trio.answer(trio.fetch(1, 0))
    assert not answer.payload
    beyond = trio.answer(trio.fetch(1, 1, max_wait_ms=100))  # between high watermark and end: it waits (rule 16)
    assert not beyond.payload
    process.resume()


def test_a_reader_whose_last_epoch_ended_elsewhere_is_told(trio: Trio) -> None:
    led_by_one(trio)
    trio.offset_of(trio.append(1, b"a"))
    trio.elect(2, (1, 2, 3))
    trio.world.run_for(0.5)
    trio.offset_of(trio.append(2, b"b"))
    answer = trio.answer(trio.fetch(2, 5, last_epoch=0)).message
    assert isinstance(answer, Fetched)
    assert answer.diverged == (0, 1)  # epoch 0 ended at offset 1


def test_a_new_leader_tells_no_end_before_it_knows_it(trio: Trio) -> None:
    led_by_one(trio)
    trio.offset_of(trio.append(1, b"a"))
    for broker_id in (1, 3):
        process = trio.members[broker_id].process
        assert process is not None
        process.kill()
    trio.elect(2, (1, 2, 3), 2)
    trio.log(2).marks.high_watermark = 0  # it had not heard of it
    assert failure(trio, trio.ask(2, ListOffset(LATEST, NO_EPOCH, False))) == "OffsetNotAvailable"
    assert failure(trio, trio.ask(2, DeleteRecords(1, 5_000))) == "OffsetNotAvailable"  # a reader may have seen it
    first = trio.answer(trio.ask(2, ListOffset(EARLIEST, NO_EPOCH, False))).message
    assert isinstance(first, ListedOffset)
    assert first.offset == 0


def test_records_are_deleted_on_every_replica(trio: Trio) -> None:
    led_by_one(trio)
    for value in (b"a", b"b", b"c"):
        trio.offset_of(trio.append(1, value))
    answer = trio.answer(trio.ask(1, DeleteRecords(2, 5_000))).message
    assert answer == RecordsDeleted(2)
    assert [trio.log(each).log_start_offset for each in (1, 2, 3)] == [2, 2, 2]


def test_deleting_waits_for_nobody_who_is_not_in_sync(trio: Trio) -> None:
    led_by_one(trio)
    trio.accepts_proposals = False
    process = trio.members[3].process
    assert process is not None
    process.pause()
    appending = trio.append(1, b"a")
    trio.world.run_for(0.1)
    trio.assign(isr=(1, 2))
    assert trio.offset_of(appending) == 0
    deleting = trio.ask(1, DeleteRecords(1, 5_000))
    trio.until(deleting.done, 0.5)
    assert trio.answer(deleting).message == RecordsDeleted(1)
    process.resume()


def test_deleting_notices_that_somebody_is_not_in_sync_any_more(trio: Trio) -> None:
    led_by_one(trio)
    trio.accepts_proposals = False
    trio.offset_of(trio.append(1, b"a"))
    process = trio.members[3].process
    assert process is not None
    process.pause()
    deleting = trio.ask(1, DeleteRecords(1, 30_000))
    trio.world.run_for(0.1)
    trio.assign(isr=(1, 2))
    trio.until(deleting.done, 1.0)
    assert trio.answer(deleting).message == RecordsDeleted(1)
    process.resume()


def test_deleting_waits_for_whoever_may_be_eligible(trio: Trio) -> None:
    """Below the minimum one that left may lead next (rule 7): it must not begin where the records still are."""
    led_by_one(trio)
    trio.accepts_proposals = False
    trio.offset_of(trio.append(1, b"a"))
    process = trio.members[3].process
    assert process is not None
    process.pause()
    trio.assign(isr=(1,))
    trio.world.run_for(0.1)
    deleting = trio.ask(1, DeleteRecords(1, 60_000))
    trio.world.run_for(2.0)
    assert not deleting.done()
    assert trio.log(2).log_start_offset == 1  # it is not in sync either, but there
    process.resume()
    assert trio.answer(deleting).message == RecordsDeleted(1)
    assert trio.log(3).log_start_offset == 1


def test_a_deletion_that_reaches_not_all_that_may_lead_is_not_confirmed(trio: Trio) -> None:
    led_by_one(trio)
    trio.offset_of(trio.append(1, b"a"))
    for broker_id in (2, 3):
        process = trio.members[broker_id].process
        assert process is not None
        process.kill()
    trio.world.run_for(0.1)
    trio.assign(isr=(1,))
    assert failure(trio, trio.ask(1, DeleteRecords(1, 500))) == "DeletionTimedOut"
    assert trio.log(1).log_start_offset == 1


def test_who_has_not_heard_of_a_deletion_does_not_join(trio: Trio) -> None:
    led_by_one(trio)
    trio.offset_of(trio.append(1, b"a"))
    process = trio.members[3].process
    assert process is not None
    process.pause()
    deleting = trio.ask(1, DeleteRecords(1, 30_000))
    trio.world.run_for(0.1)
    trio.assign(isr=(1, 2))
    assert trio.answer(deleting).message == RecordsDeleted(1)
    trio.world.run_for(0.5)
    assert all(len(proposal.isr) < 3 for proposal in trio.proposals)  # though it holds every record that there was
    process.resume()
    trio.until(lambda: trio.isr == (1, 2, 3))
    assert trio.log(3).log_start_offset == 1


def test_after_everything_was_deleted_pushes_go_on(trio: Trio) -> None:
    led_by_one(trio)
    trio.offset_of(trio.append(1, b"a", b"b"))
    before = trio.follower(2)._hosted.pull_session
    trio.until(lambda: trio.follower(2)._hosted.pull_session > before)  # it has just pulled, after a silence
    trio.world.run_for(0.01)
    before = trio.follower(2)._hosted.pull_session
    assert trio.answer(trio.ask(1, DeleteRecords(-1, 5_000))).message == RecordsDeleted(2)
    assert trio.offset_of(trio.append(1, b"c")) == 2
    trio.have(3)
    assert trio.follower(2)._hosted.pull_session == before
    assert trio.values(2) == [b"c"]


def test_a_log_without_records_says_from_which_epoch_its_last_one_was(trio: Trio) -> None:
    led_by_one(trio)
    trio.offset_of(trio.append(1, b"a"))
    trio.answer(trio.ask(1, DeleteRecords(-1, 5_000)))
    process = trio.members[2].process
    assert process is not None
    process.kill()
    trio.world.run_for(0.1)
    trio.start(2)
    hello = trio.members[2].hello
    assert hello is not None
    assert (hello.last_epoch, hello.log_end_offset) == (trio.epoch, 1)


def test_a_follower_told_to_pull_before_it_has_dealt_with_the_answer_before_pulls(
    trio: Trio, monkeypatch: pytest.MonkeyPatch
) -> None:
    led_by_one(trio)
    pull = FollowerPushes.pull
    told: list[int] = []

    def pull_and_tell(pushes: FollowerPushes, request: Request, message: Pull, incarnation: int | None) -> object:
        answer = pull(pushes, request, message, incarnation)
        if message.broker_id == 2 and not told:
            told.append(message.session)
            pushes._let_it_pull(pushes._following[2])
        return answer

    monkeypatch.setattr(FollowerPushes, "pull", pull_and_tell)
    trio.until(lambda: bool(told))
    waiting = trio.append(1, b"a")
    trio.until(waiting.done, 0.3)
    assert trio.offset_of(waiting) == 0


def test_a_follower_that_is_behind_the_leaders_start_begins_there(trio: Trio) -> None:
    led_by_one(trio)
    process = trio.members[3].process
    assert process is not None
    trio.offset_of(trio.append(1, b"a"))
    process.kill()
    trio.world.run_for(0.1)
    trio.assign(isr=(1, 2))
    trio.world.run_for(0.1)
    for value in (b"b", b"c"):
        trio.offset_of(trio.append(1, value))
    trio.answer(trio.ask(1, DeleteRecords(3, 5_000)))
    trio.offset_of(trio.append(1, b"d"))
    trio.start(3)
    trio.assign()
    trio.until(lambda: trio.isr == (1, 2, 3))
    assert trio.values(3) == [b"d"]
    assert trio.log(3).log_start_offset == 3


def test_a_follower_that_lags_for_too_long_is_proposed_out_and_comes_back(trio: Trio) -> None:
    led_by_one(trio)
    process = trio.members[3].process
    assert process is not None
    process.pause()
    waiting = trio.append(1, b"a", timeout_ms=60_000)
    assert trio.offset_of(waiting) == 0
    assert trio.isr == (1, 2)
    process.resume()
    trio.until(lambda: 3 in trio.isr)


def test_a_proposal_without_an_answer_is_made_again(trio: Trio) -> None:
    trio.start(1, 2)
    trio.accepts_proposals = False
    trio.elect(1, (1,))
    trio.world.run_for(2.0)
    assert len(trio.proposals) > 3
    trio.accepts_proposals = True
    trio.until(lambda: trio.isr == (1, 2))


def test_with_fsync_nothing_counts_that_is_not_synced(trio: Trio) -> None:
    trio.settings["flush.policy"] = "fsync"
    led_by_one(trio)
    for number in range(5):
        trio.offset_of(trio.append(1, b"%d" % number))
        assert trio.log(1).recovery_point == number + 1
    trio.until(lambda: all(trio.log(each).recovery_point == 5 for each in (2, 3)))


def test_what_waits_when_the_policy_becomes_fsync_is_acknowledged_once_it_is_synced(trio: Trio) -> None:
    led_by_one(trio)
    follower = trio.members[3].process
    assert follower is not None
    follower.pause()
    waiting = trio.append(1, b"a", timeout_ms=60_000)
    trio.world.run_for(0.1)
    trio.settings["flush.policy"] = "fsync"
    trio.assign(to=(1,))
    trio.until(lambda: trio.log(1).config.flush_policy == "fsync", 0.3)
    follower.resume()
    trio.until(waiting.done, 0.3)
    assert trio.offset_of(waiting) == 0
    assert trio.log(1).recovery_point == 1


def test_a_failed_sync_ends_the_replica_and_its_broker_hears_why(trio: Trio) -> None:
    trio.settings["flush.policy"] = "fsync"
    led_by_one(trio)
    trio.members[1].machine.fail_disk("sync", seconds=1.0)
    task = trio.append(1, b"a", timeout_ms=60_000)
    trio.until(lambda: trio.members[1].ending is not None)
    assert trio.members[1].ending is not None
    assert "I/O error" in trio.members[1].ending
    with pytest.raises(Exception):  # noqa: B017, PT011
        trio.answer(task)


def test_an_unregistered_replica_takes_no_part(trio: Trio) -> None:
    """An assignment that names another incarnation is from before this one was registered (rule 7)."""
    trio.start(1)
    assert trio.log(1).unproven
    trio.members[1].incarnation -= 1
    trio.elect(1, (1,))
    trio.world.run_for(0.5)
    assert failure(trio, trio.append(1, b"a", acks=1)) == "NotLeader"
    assert trio.log(1).unproven
    trio.members[1].incarnation += 1
    trio.assign()
    trio.world.run_for(0.5)
    assert trio.offset_of(trio.append(1, b"a", acks=1)) == 0
    assert not trio.log(1).unproven


def test_a_replaced_replica_ends(trio: Trio) -> None:
    trio.start(1)
    trio.members[1].incarnation += 1
    trio.elect(1, (1,))
    trio.until(lambda: trio.members[1].ending is not None)


def test_a_batch_larger_than_a_pull_reaches_a_follower(trio: Trio) -> None:
    trio.settings["max.message.bytes"] = str(4 << 20)
    trio.start(1, 2)
    trio.min_insync = 1
    trio.elect(1, (1,))
    trio.world.run_for(0.5)
    trio.offset_of(trio.append(1, bytes(3 << 20)))
    trio.until(lambda: trio.isr == (1, 2))
    assert trio.values(2) == [bytes(3 << 20)]


def test_a_follower_far_behind_reads_sealed_segments(trio: Trio) -> None:
    trio.settings["segment.bytes"] = "300"
    trio.start(1, 2)
    trio.min_insync = 1
    trio.elect(1, (1,), 1)
    trio.world.run_for(0.5)
    for number in range(20):
        trio.offset_of(trio.append(1, b"%d" % number))
    assert len(trio.log(1).segments) > 5
    trio.tell(2)
    trio.until(lambda: trio.isr == (1, 2))
    assert trio.values(2) == trio.values(1)


@pytest.mark.parametrize("node", ["", "node-1", "node-2"])
@pytest.mark.parametrize("min_bytes", [1, 1 << 19])
def test_a_reader_of_sealed_segments_waits_beside_the_loop(
    trio: Trio, node: str, min_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    trio.settings["segment.bytes"] = "300"
    trio.start(1)
    trio.min_insync = 1
    trio.elect(1, (1,))
    trio.world.run_for(0.5)
    for number in range(20):
        trio.offset_of(trio.append(1, b"%d" % number))
    trio.members[1].machine.slow_disk(10_000.0)
    cold = trio.ask(1, Fetch(0, NO_EPOCH, -1, min_bytes, 1 << 20, 500, False, node))
    trio.world.run_for(0.01)
    assert trio.offset_of(trio.append(1, b"x")) == 20
    assert not cold.done()
    monkeypatch.setattr(trio.log(1), "read", lambda *_: pytest.fail("read on the loop"))
    trio.members[1].machine.slow_disk(1.0)
    assert records_of(trio.answer(cold).payload)[0] == (0, b"0")


def test_a_reader_on_the_leaders_node_is_shown_the_file_of_a_sealed_segment(trio: Trio) -> None:
    trio.settings |= {"segment.bytes": "300000", "max.message.bytes": "200000"}
    trio.start(1)
    trio.min_insync = 1
    trio.elect(1, (1,))
    trio.world.run_for(0.5)
    for _ in range(5):
        trio.offset_of(trio.append(1, bytes(100_000)))
    assert len(trio.log(1).segments) > 2
    trio.members[1].machine.slow_disk(10_000.0)
    near = trio.answer(trio.ask(1, Fetch(0, NO_EPOCH, -1, 1 << 19, 1 << 20, 500, False, "node-1")))
    assert isinstance(near.message, Fetched)
    assert near.message.file is not None
    assert near.message.file[3] > 100_000


def test_a_reader_on_the_leaders_node_is_shown_the_file(trio: Trio) -> None:
    trio.settings["max.message.bytes"] = str(1 << 20)
    led_by_one(trio)
    trio.offset_of(trio.append(1, bytes(100_000)))
    near = trio.answer(trio.ask(1, Fetch(0, NO_EPOCH, -1, 1, 1 << 20, 0, False, "node-1")))
    assert isinstance(near.message, Fetched)
    assert near.message.file is not None
    path, inode, position, length, _ = near.message.file
    disk = trio.members[1].machine.disk
    assert not near.payload
    file = disk.open(path)
    assert file.inode() == inode
    assert records_of(file.read_at(length, position)) == [(0, bytes(100_000))]
    far = trio.answer(trio.ask(1, Fetch(0, NO_EPOCH, -1, 1, 1 << 20, 0, False, "node-2")))
    assert isinstance(far.message, Fetched)
    assert far.message.file is None
    assert records_of(far.payload) == [(0, bytes(100_000))]


def _write_behind_its_back(trio: Trio, catch_up_rate: int) -> None:
    """3 MB that broker 2 has to catch up with, no faster than that."""
    trio.catch_up_rate = catch_up_rate
    trio.settings["max.message.bytes"] = str(1 << 20)
    trio.start(1, 2)
    trio.min_insync = 1
    trio.elect(1, (1,), 1)
    trio.world.run_for(0.5)
    for _ in range(10):
        trio.offset_of(trio.append(1, bytes(300_000)))


def test_a_follower_that_is_not_in_sync_catches_up_no_faster_than_allowed(trio: Trio) -> None:
    _write_behind_its_back(trio, 100_000)
    began = trio.world.now
    trio.tell(2)
    trio.until(lambda: trio.isr == (1, 2), 60.0)
    assert 15 < trio.world.now - began < 40  # 3 MB at 0.1 MB/s, the last MB of it without a wait


def test_a_follower_that_waits_for_its_throttle_hears_of_a_higher_one(trio: Trio) -> None:
    _write_behind_its_back(trio, 1)
    trio.tell(2)
    trio.world.run_for(30.0)
    assert 2 not in trio.isr
    trio.catch_up_rate = -1
    trio.tell_settings()
    trio.until(lambda: 2 in trio.isr, 2.0)


def test_a_replica_that_cannot_close_its_log_cleanly_ends_all_the_same(trio: Trio) -> None:
    trio.start(1)
    member = trio.members[1]
    assert member.replica is not None
    member.machine.fail_disk("sync", seconds=1.0)
    member.replica.stop("the test says so")
    trio.until(lambda: member.ending is not None)
    assert member.ending is not None
    assert member.ending == "the test says so"


def test_an_idle_follower_asks_ever_more_rarely_and_is_pushed_to_all_the_same(trio: Trio) -> None:
    trio.settings["retention.ms"] = "-1"
    led_by_one(trio)
    trio.offset_of(trio.append(1, b"a"))
    before = trio.follower(2)._hosted.pull_session
    trio.world.run_for(1_000.0)
    assert trio.follower(2)._hosted.pull_session - before <= 8
    trio.offset_of(trio.append(1, b"b"))
    trio.have(2)
    assert len(trio.isr) == 3
    before = trio.follower(2)._hosted.pull_session
    trio.world.run_for(3.0)
    assert trio.follower(2)._hosted.pull_session == before + 1  # a silence after traffic is asked about soon


def test_a_follower_takes_pushes_while_its_new_start_waits_for_the_disk(trio: Trio) -> None:
    """Its host has other replicas, whose appends must not wait for that (rule 35). The deletion itself waits."""
    led_by_one(trio)
    trio.offset_of(trio.append(1, b"a"))
    let_it_write = with_a_slow_disk(trio, 2)
    deleting = trio.ask(1, DeleteRecords(1, 30_000))
    trio.world.run_for(0.5)
    assert trio.log(3).log_start_offset == 1
    assert trio.offset_of(trio.append(1, b"b")) == 1
    assert trio.log(2).log_start_offset == 0
    assert not deleting.done()
    let_it_write()
    assert trio.answer(deleting).message == RecordsDeleted(1)
    assert trio.log(2).directory.read_checkpoint().log_start_offset == 1


def test_the_first_pushes_of_an_epoch_wait_for_the_disk_in_their_order(trio: Trio) -> None:
    """The loop does not: a thousand followers of new leaders each write an epoch down (rules 8, 35)."""
    led_by_one(trio)
    trio.offset_of(trio.append(1, b"a"))
    trio.elect(1, (1, 2, 3))
    trio.world.run_for(1.0)
    let_it_write = with_a_slow_disk(trio, 2)
    appends = []
    for value in (b"b", b"c", b"d"):
        appends.append(trio.append(1, value))
        trio.world.run_for(0.1)  # each comes over a stream of its own
    assert trio.values(3) == [b"a", b"b", b"c", b"d"]
    assert trio.values(2) == [b"a"]
    assert not any(each.done() for each in appends)
    let_it_write()
    assert [trio.offset_of(each) for each in appends] == [1, 2, 3]
    assert trio.values(2) == [b"a", b"b", b"c", b"d"]
    log = trio.log(2)
    assert LeaderEpochs.load(log.disk, log.directory.path).history == log.epochs.history


def test_changed_settings_wait_for_the_disk_and_nothing_else_does(trio: Trio) -> None:
    led_by_one(trio)
    trio.offset_of(trio.append(1, b"the first of its epoch"))
    hosted = trio.follower(2)._hosted
    before = hosted.log.config
    let_it_write = with_a_slow_disk(trio, 2)
    trio.settings["retention.ms"] = "12345"
    trio.tell_settings()
    assert trio.offset_of(trio.append(1, b"a")) == 1
    assert hosted.log.config == before
    assert trio.log(3).config.retention_ms == 12345
    let_it_write()
    trio.until(lambda: hosted.log.config.retention_ms == 12345)
