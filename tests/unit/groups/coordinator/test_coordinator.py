"""The coordinator's core: claim and takeover (rule 25), what waits for what, timers, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from raylog.actors.protocol.messages import Message, Ping
from raylog.actors.protocol.transaction_messages import ResolveStaged
from raylog.errors import (
    AssignorFailed,
    CoordinatorLoading,
    CoordinatorReplaced,
    GroupRequestTimedOut,
    InvalidRequest,
    MessageUnknown,
    NotCoordinator,
    StaleHeartbeat,
    UnknownMember,
)
from raylog.groups.assignors.calling import AssignorCall, AssignorsBesideLoop, Given
from raylog.groups.records.messages import (
    CommitOffsets,
    DescribeGroup,
    FetchOffsets,
    GroupDescribed,
    GroupHeartbeatAnswer,
    OffsetsCommitted,
    OffsetsFetched,
    StageOffsets,
)
from raylog.groups.records.records import OffsetKey, OffsetValue
from raylog.groups.records.settings import GroupSettings
from tests.simulator.world.virtual_loop import VirtualLoop
from tests.unit.groups.coordinator_world import HandLog, World, beside, claimed, numbers, play, t
from tests.unit.groups.small_group import topic_id


def test_it_claims_then_reads_then_serves() -> None:
    log = HandLog([(OffsetKey("g", topic_id("t"), 0), OffsetValue("t", 42, -1, "", 0))])

    async def scene(world: World) -> None:
        fetch = FetchOffsets("g", "", -1, None)
        await asyncio.sleep(0)
        with pytest.raises(CoordinatorLoading):
            await world.coordinator.handle(fetch)
        await world.start()
        assert log.calls == ["claim", "replay"]
        answer = await world.coordinator.handle(fetch)
        assert isinstance(answer, OffsetsFetched)
        assert answer.offsets == ((topic_id("t"), 0, 42, -1, ""),)

    play(scene, log=log, t=1)


def test_what_no_coordinator_wrote_is_left_out() -> None:
    log = HandLog([(OffsetKey("g", topic_id("t"), 0), OffsetValue("t", 42, -1, "", 0))])
    log.batches.append([(b"user-1", b'{"clicks": 7}'), (b"", None)])

    async def scene(world: World) -> None:
        await world.start()
        assert log.strays == [1, 2]
        answer = await world.coordinator.handle(FetchOffsets("g", "", -1, None))
        assert isinstance(answer, OffsetsFetched)
        assert answer.offsets == ((topic_id("t"), 0, 42, -1, ""),)

    play(scene, log=log, t=1)


def test_it_does_not_serve_without_what_a_later_version_wrote() -> None:
    log = HandLog()
    log.batches.append([(b"\x8e\x02\x92\xa1g\x01", None)])

    async def scene(world: World) -> None:
        assert isinstance(await world.ended, MessageUnknown)
        assert not world.coordinator.is_serving

    play(scene, log=log, t=1)


@pytest.mark.parametrize("in_log", [False, True])
def test_it_does_not_serve_where_a_newer_one_has_claimed(in_log: bool) -> None:
    log = HandLog([claimed(6)])
    log.claimed = -1 if in_log else 6

    async def scene(world: World) -> None:
        error = await world.ended
        assert isinstance(error, CoordinatorReplaced)
        assert "Coordinator epoch 5 is over: epoch 6" in str(error)
        with pytest.raises(NotCoordinator):
            await world.commit("", -1, 1)

    play(scene, log=log, t=1)


def test_a_request_of_another_kind_is_refused() -> None:
    async def scene(world: World) -> None:
        await world.start()
        with pytest.raises(InvalidRequest, match="does not answer Ping"):
            await world.coordinator.handle(Ping())

    play(scene)


# --- waiting ------------------------------------------------------------------------------------------------------


def test_an_answer_waits_for_the_commit() -> None:
    async def scene(world: World) -> None:
        await world.start()
        world.log.is_held = True
        commit = world.loop.create_task(world.commit("", -1, 7))
        await asyncio.sleep(0.5)
        assert not commit.done()
        world.log.let_go()
        assert await commit == OffsetsCommitted(())

    play(scene, t=1)


def test_a_commit_that_takes_too_long_is_of_unknown_outcome() -> None:
    async def scene(world: World) -> None:
        await world.start()
        world.log.is_held = True
        began = world.loop.time()
        with pytest.raises(GroupRequestTimedOut):
            await world.commit("", -1, 7)
        assert 2.0 <= world.loop.time() - began < 2.1
        world.log.let_go()

    play(scene, GroupSettings(commit_timeout_ms=2_000), t=1)


def test_one_turn_is_one_batch() -> None:
    async def scene(world: World) -> None:
        await world.start()
        tasks = [world.loop.create_task(world.commit("", -1, each, group=f"g{each}")) for each in range(20)]
        await asyncio.gather(*tasks)
        assert [len(batch) for batch in world.log.batches] == [20]

    play(scene, t=1)


def test_a_batch_has_a_largest_size() -> None:
    async def scene(world: World) -> None:
        await world.start()
        tasks = [world.loop.create_task(world.commit("", -1, each, group=f"g{each}")) for each in range(20)]
        await asyncio.gather(*tasks)
        assert all(sum(len(key) + len(value or b"") for key, value in batch) <= 300 for batch in world.log.batches)
        assert world.log.changes == 20

    play(scene, GroupSettings(max_batch_bytes=300), t=1)


def test_a_request_may_take_several_batches() -> None:
    async def scene(world: World) -> None:
        await world.start()
        offsets = tuple((topic_id("t"), number, number, -1, "") for number in range(50))
        assert await world.coordinator.handle(CommitOffsets("g", "", -1, offsets)) == OffsetsCommitted(())
        assert world.log.changes == 50
        assert all(sum(len(key) + len(value or b"") for key, value in batch) <= 500 for batch in world.log.batches)

    play(scene, GroupSettings(max_batch_bytes=500), t=50)


def test_the_end_of_a_transaction_waits_too() -> None:
    async def scene(world: World) -> None:
        await world.start()
        entry = (topic_id("t"), 0, 7, -1, "")
        await world.coordinator.handle(StageOffsets("g", "", -1, 3, 0, 1, (entry,)))
        world.log.is_held = True
        ends = [world.loop.create_task(world.coordinator.handle(ResolveStaged(3, 0, 1, True))) for _ in range(2)]
        await asyncio.sleep(0.5)
        assert not any(each.done() for each in ends)  # the repetition changed nothing, and waits all the same
        world.log.let_go()
        await asyncio.gather(*ends)

    play(scene, t=1)


def test_a_member_hears_of_a_change_when_it_happens() -> None:
    async def scene(world: World) -> None:
        await world.start()
        first = await world.join("a", "t")
        assert numbers(first) == [0, 1]
        waiting = world.loop.create_task(world.beat("a", first.epoch, t(0, 1), wait_ms=3_000))
        await asyncio.sleep(1.0)
        assert not waiting.done()
        joining = world.loop.create_task(world.join("b", "t"))
        told = await waiting
        assert numbers(told) == [0]
        answered = world.loop.time()
        second = await joining
        assert second.assignment is None  # nothing is free yet
        granting = world.loop.create_task(world.beat("b", second.epoch, (), wait_ms=3_000))
        await world.beat("a", told.epoch, t(0))
        assert numbers(await granting) == [1]
        assert world.loop.time() - answered < 0.1

    play(scene, t=2)


def test_a_heartbeat_without_news_waits_as_long_as_it_may_and_writes_nothing() -> None:
    async def scene(world: World) -> None:
        await world.start()
        epoch = (await world.join("a", "t")).epoch
        changes = world.log.changes
        for wait_ms, waited in ((0, 0.0), (1_000, 1.0), (60_000, 3.0)):
            began = world.loop.time()
            answer = await world.beat("a", epoch, t(0), wait_ms=wait_ms)
            assert (answer.assignment, answer.epoch) == (None, epoch)
            assert waited <= world.loop.time() - began < waited + 0.01
        assert world.log.changes == changes

    play(scene, t=1)


def test_a_later_heartbeat_takes_the_place_of_the_one_that_waits() -> None:
    async def scene(world: World) -> None:
        await world.start()
        epoch = (await world.join("a", "t")).epoch
        waiting = world.loop.create_task(world.beat("a", epoch, t(0), wait_ms=3_000))
        await asyncio.sleep(0.1)
        await world.beat("a", epoch, t(0))
        with pytest.raises(StaleHeartbeat):
            await waiting

    play(scene, t=1)


def test_members_that_come_together_cost_one_assignment() -> None:
    async def scene(world: World) -> None:
        await world.start()
        answers = await asyncio.gather(*(world.join(f"m{each}", "t") for each in range(10)))
        assert sorted(number for answer in answers for number in numbers(answer)) == list(range(10))
        assert {answer.epoch for answer in answers} == {10}

    play(scene, t=10)


def test_a_group_in_which_members_keep_coming_is_assigned_all_the_same() -> None:
    async def scene(world: World) -> None:
        await world.start()
        began = world.loop.time()
        joining = []
        for number in range(40):
            joining.append(world.loop.create_task(world.join(f"m{number}", "t")))
            await asyncio.sleep(0.004)
            if joining[0].done():
                break
        assert world.loop.time() - began < 0.05
        await asyncio.gather(*joining)

    play(scene, t=10)


def test_what_happens_to_topics_is_told_at_once() -> None:
    async def scene(world: World) -> None:
        await world.start()
        epoch = (await world.join("a", "t")).epoch
        waiting = world.loop.create_task(world.beat("a", epoch, t(0), wait_ms=3_000))
        await asyncio.sleep(0.1)
        world.topics.put("t", 3)
        world.coordinator._topics_changed()
        assert numbers(await waiting) == [0, 1, 2]

    play(scene, t=1)


def test_an_error_of_this_coordinator_is_not_its_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others share the process and the link; this one alone has ended."""

    async def scene(world: World) -> None:
        await world.start()
        unforeseen: list[object] = []
        note = lambda context: unforeseen.append(context["exception"])  # noqa: E731
        monkeypatch.setattr(world.loop, "call_exception_handler", note)
        mistake = KeyError("nobody foresaw it")

        def mistaken(_: object) -> None:
            raise mistake

        monkeypatch.setattr(world.coordinator._shard, "topics_changed", mistaken)
        world.coordinator._topics_changed()  # as the link calls it
        await asyncio.sleep(0.1)
        assert not world.coordinator.is_serving
        assert unforeseen == [mistake]

    play(scene, t=1)


# --- time ---------------------------------------------------------------------------------------------------------


def test_a_silent_member_loses_its_partitions_when_its_session_is_over() -> None:
    async def scene(world: World) -> None:
        await world.start()
        await world.join("a", "t", session_ms=6_000)
        silent_since = world.loop.time()
        second = await world.join("b", "t")
        answer = second
        while answer.assignment is None:
            answer = await world.beat("b", answer.epoch, (), wait_ms=2_000)
        assert 6.0 <= world.loop.time() - silent_since < 6.1
        with pytest.raises(UnknownMember, match="was silent for 6"):
            await world.beat("a", second.epoch, t(0))

    play(scene, t=1)


def test_nobody_is_removed_because_the_coordinator_stood_still() -> None:
    async def scene(world: World) -> None:
        await world.start()
        epoch = (await world.join("a", "t", session_ms=6_000)).epoch
        loop = world.loop
        assert isinstance(loop, VirtualLoop)
        # The timer is due 6 s after the join; the process does not run for 20 s.
        loop.scheduler.after(1_000_000, loop.pause)
        loop.scheduler.after(21_000_000, loop.resume)
        await asyncio.sleep(22.0)
        assert (await world.beat("a", epoch, t(0))).epoch == epoch

    play(scene, t=1)


def test_nobody_is_removed_because_the_log_was_out_of_reach() -> None:
    """Heartbeats may have waited for it meanwhile, where the coordinator has not seen them."""
    log = HandLog()

    async def scene(world: World) -> None:
        await world.start()
        epoch = (await world.join("a", "t", session_ms=6_000)).epoch
        await world.join("b", "t", session_ms=6_000)
        log.is_held = True
        await asyncio.sleep(20.0)
        log.let_go()
        await asyncio.sleep(1.0)
        epoch = (await world.beat("a", epoch, t(0))).epoch
        await asyncio.sleep(3.0)
        assert (await world.beat("a", epoch, t(0))).epoch > epoch
        with pytest.raises(UnknownMember, match="was silent for"):  # it is silent still
            await world.beat("b", epoch, ())

    play(scene, log=log, t=1)


def test_a_log_out_of_reach_is_not_looked_at_all_the_time() -> None:
    log = HandLog()

    async def scene(world: World) -> None:
        await world.start()
        await world.join("a", "t", session_ms=6_000)
        log.is_held = True
        looks = 0
        look = world.coordinator._look_once_confirmed

        def count(*arguments: Any) -> None:
            nonlocal looks
            looks += 1
            look(*arguments)

        world.coordinator._look_once_confirmed = count  # type: ignore[method-assign, assignment]
        await asyncio.sleep(66.0)
        assert 20 <= looks <= 40

    play(scene, log=log, t=1)


def test_sessions_begin_anew_with_a_new_coordinator() -> None:
    log = HandLog()

    async def first_scene(world: World) -> None:
        await world.start()
        await world.join("a", "t", session_ms=6_000)
        await asyncio.sleep(5.0)

    async def second_scene(world: World) -> None:
        world.log.epoch = -1
        await world.start()
        await asyncio.sleep(5.0)
        assert (await world.beat("a", 1, t(0))).epoch == 1
        await asyncio.sleep(6.1)
        with pytest.raises(UnknownMember):
            await world.beat("a", 1, t(0))

    play(first_scene, log=log, t=1)
    play(second_scene, log=log, t=1)


def test_offsets_expire_by_themselves() -> None:
    async def scene(world: World) -> None:
        await world.start()
        await world.commit("", -1, 7)
        await asyncio.sleep(30.0)
        answer = await world.coordinator.handle(FetchOffsets("g", "", -1, None))
        assert answer == OffsetsFetched((), ())

    play(scene, GroupSettings(offsets_retention_ms=10_000, expiry_check_ms=5_000), t=1)


class HandAssignors(AssignorsBesideLoop):
    """Answers as the test says: how many calls fail first, and how long each takes."""

    def __init__(self, failures: int = 0, seconds: float = 0.0) -> None:
        super().__init__(beside)
        self.failures = failures
        self.seconds = seconds
        self.calls: list[float] = []
        self.is_closed = False

    def run(self, call: AssignorCall) -> Awaitable[Given]:
        return self._run(call)

    async def _run(self, call: AssignorCall) -> Given:
        self.calls.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self.seconds)
        if len(self.calls) <= self.failures:
            raise AssignorFailed(call.name, "it took too long")
        return await super().run(call)

    def close(self) -> None:
        self.is_closed = True


async def until_assigned(world: World, member: str, *topics: str) -> GroupHeartbeatAnswer:
    answer = await world.join(member, *topics)
    while answer.assignment is None:
        try:
            answer = await world.beat(member, answer.epoch, (), wait_ms=1_000)
        except AssignorFailed:
            await asyncio.sleep(0.1)
    return answer


def test_an_assignor_that_has_failed_is_asked_again() -> None:
    assignors = HandAssignors(failures=2)

    async def scene(world: World) -> None:
        await world.start()
        await until_assigned(world, "a", "t")
        assert len(assignors.calls) == 3
        assert assignors.calls[2] - assignors.calls[0] == pytest.approx(4.0, abs=0.1)

    play(scene, GroupSettings(assignor_retry_ms=2_000), assignors=assignors, t=1)
    assert assignors.is_closed


def test_while_an_assignor_runs_everybody_is_answered_and_later_changes_are_computed_anew() -> None:
    assignors = HandAssignors(seconds=2.0)

    async def scene(world: World) -> None:
        await world.start()
        first = world.loop.create_task(until_assigned(world, "a", "t"))
        await asyncio.sleep(1.0)
        began = world.loop.time()
        await world.commit("", -1, 7, group="other")
        assert world.loop.time() - began < 0.1
        second = world.loop.create_task(until_assigned(world, "b", "t"))
        answers = [await first, await second]
        assert sorted(numbers(answers[0]) + numbers(answers[1])) == [0, 1]
        assert len(assignors.calls) == 2, "what was computed for one member alone was thrown away"

    play(scene, assignors=assignors, t=2)


def test_a_group_whose_assignor_fails_and_fails_waits_longer_each_time_though_it_changes() -> None:
    assignors = HandAssignors(failures=1_000)

    async def scene(world: World) -> None:
        await world.start()
        until = world.loop.time() + 60.0
        count = 0
        while world.loop.time() < until:
            count += 1
            await world.beat(f"m{count}", 0, (), "t")
            await asyncio.sleep(0.1)
        assert 5 <= len(assignors.calls) <= 10
        gaps = [later - earlier for earlier, later in zip(assignors.calls, assignors.calls[1:], strict=False)]
        assert gaps[2:5] == pytest.approx([2.0, 4.0, 8.0], abs=0.3)

    play(scene, assignors=assignors, t=1)


# --- how it ends --------------------------------------------------------------------------------------------------


def test_a_fenced_append_ends_it_and_everything_that_was_open() -> None:
    async def scene(world: World) -> None:
        await world.start()
        epoch = (await world.join("a", "t")).epoch
        waiting = world.loop.create_task(world.beat("a", epoch, t(0), wait_ms=3_000))
        await asyncio.sleep(0.01)
        world.log.claimed = 6
        commits = [world.loop.create_task(world.commit("a", epoch, 7)) for _ in range(2)]
        for open_request in (*commits, waiting):
            with pytest.raises(NotCoordinator, match="CoordinatorReplaced") as caught:
                await open_request
            assert caught.value.retriable
        assert isinstance(await world.ended, CoordinatorReplaced)
        with pytest.raises(NotCoordinator):
            await world.beat("a", epoch, t(0))

    play(scene, t=1)


def test_a_mistake_of_its_own_ends_it() -> None:
    """Half of something may have been applied."""

    async def scene(world: World) -> None:
        await world.start()
        await world.join("a", "t")
        mistake = ZeroDivisionError("never thought of")

        def blunder(*arguments: object, **more: object) -> bool:
            raise mistake

        world.coordinator._shard.look_at = blunder  # type: ignore[method-assign]
        assert await world.ended is mistake

    with pytest.raises(AssertionError, match="never thought of"):  # the loop is told too
        play(scene, t=1)


def test_a_request_that_it_stumbles_over_ends_it() -> None:
    async def scene(world: World) -> None:
        await world.start()

        def blunder(*arguments: object) -> Message:
            raise ZeroDivisionError("never thought of")

        world.coordinator._shard.answer = blunder  # type: ignore[assignment, method-assign]
        with pytest.raises(ZeroDivisionError):
            await world.commit("", -1, 7)
        assert isinstance(await world.ended, ZeroDivisionError)

    play(scene, t=1)


def test_an_idle_one_finds_out_that_it_was_replaced() -> None:
    async def scene(world: World) -> None:
        await world.start()
        epoch = (await world.join("a", "t")).epoch
        world.log.claimed = 6

        async def beat_on() -> None:
            for _ in range(10):
                await world.beat("a", epoch, t(0), wait_ms=1_000)

        with pytest.raises(NotCoordinator):
            await beat_on()

    play(scene, t=1)


def test_one_that_was_replaced_tells_nobody_old_offsets() -> None:
    async def scene(world: World) -> None:
        await world.start()
        await world.commit("", -1, 7)
        world.log.claimed = 6
        with pytest.raises(NotCoordinator):
            await world.coordinator.handle(FetchOffsets("g", "", -1, None))

    play(scene, t=1)


def test_one_that_does_not_reach_its_log_answers_nobody_and_removes_nobody() -> None:
    async def scene(world: World) -> None:
        await world.start()
        epoch = (await world.join("a", "t", session_ms=6_000)).epoch
        world.log.is_held = True
        refused = 0
        for _ in range(30):
            try:
                await world.beat("a", epoch, t(0))
            except NotCoordinator as error:
                assert "has not reached its log" in str(error)  # noqa: PT017 (some are answered)
                refused += 1
            await asyncio.sleep(1.0)
        assert refused > 15
        world.log.let_go()
        await asyncio.sleep(0.1)
        with pytest.raises(NotCoordinator):  # what was written just now was sent long ago, and proves little
            await world.beat("a", epoch, t(0))
        await asyncio.sleep(0.1)
        assert (await world.beat("a", epoch, t(0))).epoch == epoch

    play(scene, t=1)


def test_without_members_it_writes_nothing() -> None:
    async def scene(world: World) -> None:
        await world.start()
        await world.join("a", "t")
        await asyncio.sleep(20)  # its session ends
        batches = len(world.log.batches)
        await asyncio.sleep(600)
        assert len(world.log.batches) == batches
        epoch = (await world.join("a", "t")).epoch
        assert (await world.beat("a", epoch, t(0))).epoch == epoch

    play(scene, t=1)


def test_whoever_asks_after_a_rest_waits_until_it_is_sure() -> None:
    """One that was replaced while it rested would tell a member of its successor that it is none."""

    async def scene(world: World) -> None:
        await world.start()
        await asyncio.sleep(20)
        world.log.is_held = True
        asked = [world.loop.create_task(world.beat("nobody", 3)) for _ in range(2)]
        await asyncio.sleep(0.5)
        assert not any(each.done() for each in asked)
        world.log.let_go()
        for each in asked:
            with pytest.raises(UnknownMember):
                await each

    play(scene, t=1)


def test_one_that_was_replaced_while_it_rested_refuses_everybody() -> None:
    async def scene(world: World) -> None:
        await world.start()
        await asyncio.sleep(20)
        world.log.claimed = 9
        with pytest.raises(NotCoordinator):
            await world.beat("nobody", 3)
        assert isinstance(await world.ended, CoordinatorReplaced)

    play(scene, t=1)


def test_describing_is_confirmed_and_whole() -> None:
    async def scene(world: World) -> None:
        await world.start()
        await world.join("a", "t")
        answer = await world.coordinator.handle(DescribeGroup("g"))
        assert isinstance(answer, GroupDescribed)
        assert answer.members[0][:2] == ("a", 1)

    play(scene, t=1)


def test_stopping_is_an_end_too() -> None:
    async def scene(world: World) -> None:
        await world.start()
        world.coordinator.stop()
        with pytest.raises(NotCoordinator):
            await world.coordinator.handle(CommitOffsets("g", "", -1, ()))

    play(scene)
