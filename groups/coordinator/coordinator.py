"""The core of a group coordinator: one partition of `__consumer_offsets`, its groups, and their timers.

    starting → loading → serving → ended

    starting, loading    CoordinatorLoading to all: the claim first, then all that was committed up to it (rule 25)
    serving              requests
    ended                NotCoordinator to everybody, and to every request that was under way

What must stay true:
- Requests are applied in the order in which they come, each at once and as a whole; only answers wait.
- No answer leaves before the records of its group are committed, its own and those it may rest on.
- Whatever is read for somebody (offsets, a description) is confirmed first by an append of its own: a coordinator that
  was replaced without noticing tells nobody old offsets.
- An append that fails ends the coordinator, whatever the reason: the state holds what the log does not. So does an
  error that nobody expected, in a request or a timer.
- No assignor is run and no pattern matched on the loop (rule 34).
- Nobody is removed for the coordinator's own absence: sessions begin anew after a takeover, and a timer that goes off
  late leaves the members time to be heard. An absent log is the same: while it cannot be reached, heartbeats wait for
  it, unheard. So a member whose time is over is removed only after an append of a later moment has been committed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from random import Random
from typing import Final

from raylog.actors.kernel.background import BackgroundTasks, TimerHandle, Timers
from raylog.actors.kernel.stream_interface import LaterAnswer
from raylog.actors.protocol.messages import Message
from raylog.errors import (
    CoordinatorLoading,
    CoordinatorReplaced,
    FrameInvalid,
    InvalidRequest,
    MessageUnknown,
    NotCoordinator,
    RaylogError,
)
from raylog.groups.assignors.calling import Assignors, AssignorsBesideLoop, OffLoop
from raylog.groups.coordinator.assignment_runs import AssignmentRuns
from raylog.groups.coordinator.commit_line import CommitLine
from raylog.groups.coordinator.given_answers import Answered, GivenAnswers, answer_of
from raylog.groups.coordinator.held_heartbeats import HeldHeartbeats
from raylog.groups.coordinator.held_joins import HeldJoins
from raylog.groups.coordinator.named_offsets import committed, uncommitted
from raylog.groups.records.classic_messages import (
    ClassicHeartbeat,
    DescribeClassic,
    JoinClassic,
    ListBothKinds,
    SyncClassic,
)
from raylog.groups.records.messages import (
    DescribeGroup,
    FetchOffsets,
    GroupHeartbeat,
    ListGroups,
    ListStaged,
)
from raylog.groups.records.offsets_log import OffsetsLog, Topics
from raylog.groups.records.records import Claim, ClaimKey, Record, decode
from raylog.groups.records.settings import GroupSettings
from raylog.groups.rules.membership import Moment
from raylog.groups.rules.pattern_topics import PatternWork, match_patterns
from raylog.groups.rules.shard import GroupShard, Held

log = logging.getLogger(__name__)

_LATE_MS: Final = 300
_LOOK_AGAIN_MS: Final = 20
_RECORDS_A_TURN: Final = 500  # replayed before others have their turn
_READS: Final = (FetchOffsets, DescribeGroup, ListGroups, ListStaged, DescribeClassic, ListBothKinds)


class GroupCoordinator:
    """Made on its loop. `run` does its work until it ends; `answer` and `handle` take requests."""

    def __init__(
        self,
        offsets_log: OffsetsLog,
        topics: Topics,
        coordinator_epoch: int,
        wall_ms: Callable[[], int],
        off_loop: OffLoop,
        random: Random,
        settings: GroupSettings | None = None,
        assignors: Assignors | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._log = offsets_log
        self._topics = topics
        self._epoch = coordinator_epoch
        self._wall_ms = wall_ms
        self._settings = settings or GroupSettings()
        self._timers = Timers(self._loop)
        self._tasks = BackgroundTasks(self._end)
        self._shard = GroupShard(self._settings, topics)
        self._held = HeldHeartbeats(self._timers)
        self._line = CommitLine(
            offsets_log, self._timers, self._settings.max_batch_bytes, self._settings.commit_timeout_ms, self._end
        )
        self._joins = HeldJoins(
            self._shard.classic, self._timers, self._now, self._settings.heartbeat_interval_ms,
            lambda: int(self._line.confirmed_at * 1000), self._confirm_if_idle, self._looked,
            lambda group, told: self._given.once_committed(self._tickets.get(group, 0), group, told),
        )  # fmt: skip
        self._given = GivenAnswers(self._line, self._tasks)
        self.serving: asyncio.Future[None] = self._loop.create_future()  # done: requests are taken
        self._began_at = self._loop.time()
        self._ended: asyncio.Future[BaseException] = self._loop.create_future()
        self._tickets: dict[str, int] = {}  # by group: the batch of its last record
        self._sessions: dict[tuple[str, str], TimerHandle] = {}
        self._off_loop = off_loop
        self._assignments = AssignmentRuns(
            self._shard, self._timers, self._tasks, assignors or AssignorsBesideLoop(off_loop), off_loop,
            self._settings, random, self._assignment_over,
        )  # fmt: skip
        self._is_resting = False  # it has no members, so nobody needs to be sure that it was not replaced
        self._woke_at = self._loop.time()
        self._is_settling = False
        self._is_matching = False

    @property
    def is_serving(self) -> bool:
        return self.serving.done() and not self._ended.done()

    def committed(self) -> Iterator[tuple[str, str, int, int]]:
        """Yield the committed offsets of all groups: group, topic, partition, offset; without topics that are gone."""
        return committed(self._shard.state.groups.values(), self._topics)

    def uncommitted(self) -> Iterator[tuple[str, str, int]]:
        """Yield what members have and their group has never committed: group, topic, partition."""
        return uncommitted(self._shard.state.groups.values(), self._topics)

    def members(self) -> Iterator[tuple[str, int]]:
        """Yield for each group how many members it has."""
        return ((group.group_id, group.member_count) for group in self._shard.state.groups.values())

    def broken_invariants(self) -> Iterator[str]:
        """Say in words what contradicts the tops of the files that this is made of."""
        if self.is_serving:
            yield from self._shard.state.broken_invariants()
            yield from self._line.broken_invariants()

    # --- its life -------------------------------------------------------------------------------------------------

    async def run(self) -> BaseException:
        """Claim, load, serve; returns what it ended of. CoordinatorReplaced: a newer one has taken over."""
        stop_listening = self._topics.on_change(self._topics_changed)
        self._tasks.start(self._begin())
        try:
            await asyncio.shield(self._ended)
        except asyncio.CancelledError as error:
            self._end(error)
            raise
        finally:
            stop_listening()
        await self._tasks.close()
        return self._ended.result()

    def stop(self) -> None:
        """End it from outside; `run` returns."""
        self._end(NotCoordinator("", "it was stopped"))

    async def _begin(self) -> None:
        """Replay the log and begin to serve. An error, of a log that cannot be read or is another's by now, ends the
        coordinator.
        """
        await asyncio.wait_for(self._load(), self._settings.load_timeout_ms / 1000)
        self._serve()

    async def _load(self) -> None:
        await self._log.claim(self._epoch)
        count = 0
        async for key, value, offset in self._log.replay():
            try:
                record = decode(key, value)
            except (FrameInvalid, MessageUnknown) as error:
                self._log.cannot_read(offset, error)
            else:
                self._shard.state.replay(*record)
            count += 1
            if count % _RECORDS_A_TURN == 0:
                await asyncio.sleep(0)
        if self._shard.state.claimed_epoch > self._epoch:
            raise CoordinatorReplaced(self._epoch, self._shard.state.claimed_epoch)
        log.info(
            "Coordinator epoch %d: %d groups from %d records in %d ms.",
            self._epoch, len(self._shard.state.groups), count, self._elapsed_ms(),
        )  # fmt: skip

    def _serve(self) -> None:
        if self._ended.done():
            return
        self._line.confirmed_at = self._loop.time()
        self._shard.finish_recovery(self._now())
        for group in self._shard.state.groups.values():
            for member_id in group.members:
                self._watch(group.group_id, member_id)
        self.serving.set_result(None)
        self._match_patterns()
        self._took_turn()
        self._tasks.start(self._confirm_now_and_then())
        self._tasks.start(self._expire_now_and_then())

    def _end(self, error: BaseException) -> None:
        if self._ended.done():
            return
        self._ended.set_result(error)
        self._assignments.end()
        self._line.fail(self._not_coordinator)
        self._held.fail_all(self._not_coordinator)
        self._joins.fail_all(self._not_coordinator)
        self._timers.close()
        log.info("Coordinator epoch %d has ended: %s", self._epoch, error)

    def _not_coordinator(self, group: str) -> NotCoordinator:
        error = self._ended.result()
        return NotCoordinator(group, f"it has ended ({type(error).__name__}); another one takes over")

    def _now(self) -> Moment:
        return Moment(int(self._loop.time() * 1000), self._wall_ms())

    def _elapsed_ms(self) -> int:
        return int((self._loop.time() - self._began_at) * 1000)

    # --- requests -------------------------------------------------------------------------------------------------

    def answer(self, request: Message) -> Answered:
        """The answer to a request of `records/messages.py`, at once where nothing has to be waited for.

        It, or what is awaited or owed, raises errors of `raylog.errors`.
        """
        try:
            return self._answer(request)
        except RaylogError:
            raise
        except Exception as error:
            self._end(error)
            raise

    def _answer(self, request: Message) -> Answered:
        group: str = getattr(request, "group", "")
        self._check_serving(request, group)
        if self._line.confirmed_at < self._woke_at:
            return self._given.once_sure(group, partial(self.answer, request))
        if isinstance(request, GroupHeartbeat):
            return self._heartbeat(request)
        if isinstance(request, (JoinClassic, SyncClassic)):
            return self._enter(request)
        try:
            answer = self._shard.answer(request, self._now())
        finally:
            self._took_turn(group)
        ticket = self._tickets.get(group, 0) if group else self._line.last_ticket
        if isinstance(request, _READS):
            ticket = self._confirmation()
        return self._once_committed(answer, ticket, group)

    async def handle(self, request: Message) -> Message:
        """`answer`, waited for."""
        answer = self.answer(request)
        if isinstance(answer, LaterAnswer):
            return await answer_of(answer)
        return answer if isinstance(answer, Message) else await answer

    def _heartbeat(self, request: GroupHeartbeat) -> Message | Awaitable[Message]:
        self._held.give_up_before(request)
        try:
            answer = self._shard.heartbeat(request, self._now())
        finally:
            self._took_turn(request.group)
        self._watch(request.group, request.member)
        wait_ms = min(request.max_wait_ms, answer.heartbeat_interval_ms)
        held = Held(request.group, request.member, request.epoch, frozenset())
        if wait_ms > 0 and request.epoch >= 0 and not self._shard.is_news(answer, held):
            return self._once_told(self._held.hold(request, answer, wait_ms), request.group)
        return self._once_committed(answer, self._tickets.get(request.group, 0), request.group)

    def _enter(self, request: JoinClassic | SyncClassic) -> Answered:
        try:
            answer = self._shard.classic.enter(request, self._now())
        finally:
            self._took_turn(request.group)
        if answer is None:
            return self._joins.hold(request)
        return self._once_committed(answer, self._tickets.get(request.group, 0), request.group)

    async def _once_told(self, told: Awaitable[Message], group: str) -> Message:
        answer = await told
        await self._line.committed(self._tickets.get(group, 0), group)
        return answer

    def _once_committed(self, answer: Message, ticket: int, group: str) -> Message | Awaitable[Message]:
        if ticket <= self._line.committed_until:
            return answer
        return self._wait_for_commit(answer, ticket, group)

    async def _wait_for_commit(self, answer: Message, ticket: int, group: str) -> Message:
        await self._line.committed(ticket, group)
        return answer

    def _check_serving(self, request: Message, group: str) -> None:
        """Raise CoordinatorLoading, NotCoordinator, InvalidRequest."""
        if not self._shard.knows(request):
            raise InvalidRequest(f"A coordinator of groups does not answer {type(request).__name__}.")
        if self._ended.done():
            raise self._not_coordinator(group)
        if not self.serving.done():
            raise CoordinatorLoading(group, self._elapsed_ms())
        self._wake()
        unconfirmed_ms = (self._loop.time() - max(self._line.confirmed_at, self._woke_at)) * 1000
        if unconfirmed_ms > self._settings.max_unconfirmed_ms:
            if isinstance(request, (GroupHeartbeat, ClassicHeartbeat)):
                self._shard.heard(request.group, request.member, self._now())
            self._confirm_if_idle()
            reason = f"it has not reached its log for {int(unconfirmed_ms)} ms, and may have been replaced"
            raise NotCoordinator(group, reason)

    # --- what requests and timers bring about ---------------------------------------------------------------------

    def _took_turn(self, group: str = "") -> None:
        """Write down a group's records after something may have changed; what follows from it comes before the turn
        ends.
        """
        records = self._shard.take_records()
        if records:
            ticket = self._line.add(records)
            for key, _ in records:
                self._tickets[getattr(key, "group", group)] = ticket
        if self._shard.has_new_pattern:
            self._match_patterns()
        while self._shard.to_watch:
            self._watch_anew(*self._shard.to_watch.popitem()[0])
        self._joins.watch()
        is_news = self._shard.to_wake or self._shard.to_assign or self._shard.classic.to_release
        if is_news and not self._is_settling:
            self._is_settling = True
            self._loop.call_soon(self._whole, self._settle)

    def _settle(self) -> None:
        """Tell waiting members what is new, and have new targets made."""
        self._is_settling = False
        if not self.is_serving:
            return
        for group in list(self._shard.to_assign):
            del self._shard.to_assign[group]
            self._assignments.due(group)
        self._joins.release()
        at = self._now()
        while self._shard.to_wake:
            groups, self._shard.to_wake = self._shard.to_wake, {}
            for group in groups:
                for held in self._held.of_group(group):
                    self._tell(held, at)
        self._took_turn()

    def _tell(self, held: Held, at: Moment) -> None:
        try:
            answer = self._shard.news(held, at)
        except RaylogError as error:
            self._held.fail(held, error)
            return
        if answer is not None:
            self._held.answer(held, answer)

    def _assignment_over(self, group: str) -> None:
        if self.is_serving:
            self._took_turn(group)

    def _topics_changed(self) -> None:
        # In a turn of its own: the link that tells of it is shared, and an error in here is not the link's (rule 35).
        self._loop.call_soon(self._whole, self._follow_topics)

    def _follow_topics(self) -> None:
        if self.is_serving:
            self._match_patterns()
            self._shard.topics_changed(self._now())
            self._took_turn()

    def _match_patterns(self) -> None:
        """Match, beside the loop, what has not been matched yet."""
        work = None if self._is_matching else self._shard.patterns_due()
        if work is not None:
            self._is_matching = True
            self._tasks.start(self._match_beside(work))

    async def _match_beside(self, first: PatternWork) -> None:
        work: PatternWork | None = first
        while work is not None:
            found = await self._off_loop(partial(match_patterns, work))
            if not self.is_serving:
                return
            self._shard.patterns_matched(work, found)
            work = self._shard.patterns_due()
        self._is_matching = False
        self._follow_topics()

    def _whole(self, work: Callable[[], None]) -> None:
        """Do what nobody waits for. An error that nobody expected may have left half of it: that is the end."""
        try:
            work()
        except Exception as error:
            self._end(error)
            raise

    # --- time -----------------------------------------------------------------------------------------------------

    def _watch(self, group: str, member: str) -> None:
        if (group, member) not in self._sessions:
            self._look(group, member, due_ms=None)

    def _watch_anew(self, group: str, member: str) -> None:
        """Watch the member's time anew: it has to give something up, perhaps before its session ends."""
        timer = self._sessions.pop((group, member), None)
        if timer is not None:
            self._timers.cancel(timer)
        self._look(group, member, due_ms=None)

    def _look(self, group: str, member: str, due_ms: int | None) -> None:
        """One timer a member: on going off it looks whether the session is over, or waits for the rest of it."""
        self._sessions.pop((group, member), None)
        if self._ended.done():
            return
        at = self._now()
        if due_ms is not None and self._shard.is_over(group, member, at):
            if int(self._line.confirmed_at * 1000) < due_ms:
                self._look_once_confirmed(group, member, due_ms, at)
                return
            if at.now_ms - due_ms > _LATE_MS:  # it was we who were absent, or the log
                self._look_in(group, member, self._settings.heartbeat_interval_ms, at)
                return
        next_ms = self._shard.look_at(group, member, at)
        if next_ms is not None:
            self._look_in(group, member, next_ms - at.now_ms, at)
        self._took_turn(group)

    def _look_in(self, group: str, member: str, delay_ms: int, at: Moment) -> None:
        look = partial(self._whole, partial(self._look, group, member, at.now_ms + delay_ms))
        self._sessions[group, member] = self._timers.after(delay_ms, look)

    def _look_once_confirmed(self, group: str, member: str, due_ms: int, at: Moment) -> None:
        """Ever later, as long as the log cannot be reached."""
        self._confirm_if_idle()
        delay_ms = min(max(_LOOK_AGAIN_MS, at.now_ms - due_ms), self._settings.heartbeat_interval_ms)
        look = partial(self._whole, partial(self._look, group, member, due_ms))
        self._sessions[group, member] = self._timers.after(delay_ms, look)

    def _looked(self, group: str, look: Callable[[], None]) -> None:
        def look_and_tell() -> None:
            look()
            self._took_turn(group)

        self._whole(look_and_tell)

    def _confirm_if_idle(self) -> None:
        if self._line.is_idle:
            self._confirmation()

    def _confirmation(self) -> int:
        """The ticket of an append that nobody can have made who was replaced before this moment (rule 25)."""
        if self._line.has_open:
            return self._line.last_ticket
        record: Record = (ClaimKey(), Claim(self._epoch))
        return self._line.add([record])

    async def _confirm_now_and_then(self) -> None:
        """Members that only send heartbeats learn from this that their coordinator was replaced.

        Without members it rests. Otherwise the dozen coordinators of a cluster that nobody uses would always write.
        """
        seconds = self._settings.confirm_ms / 1000
        while True:
            await asyncio.sleep(seconds)
            if not self._line.is_idle:
                continue
            if not (self._sessions or self._joins):
                self._is_resting = True
            elif self._loop.time() - self._line.confirmed_at >= seconds / 2:
                self._confirmation()

    def _wake(self) -> None:
        if self._is_resting:
            self._is_resting = False
            self._woke_at = self._loop.time()
            self._confirmation()

    async def _expire_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(self._settings.expiry_check_ms / 1000)
            self._shard.expire(self._now())
            self._took_turn()
            done = self._line.committed_until
            self._tickets = {group: ticket for group, ticket in self._tickets.items() if ticket > done}
