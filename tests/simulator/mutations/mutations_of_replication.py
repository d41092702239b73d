"""Rules 1 to 5, 8 to 13, 16 and 18 switched off where a leader and its followers keep them. See `mutations.py`."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from raylog.actors.kernel.stream_interface import LaterAnswer, Response
from raylog.actors.protocol.cluster_secrets import ClusterSecrets, Key, KeyRing, Standing
from raylog.actors.protocol.control_messages import NO_LEADER, ProposeIsr
from raylog.actors.protocol.messages import is_for_clients
from raylog.actors.protocol.replication_messages import NO_EPOCH, EpochEnd, Pushed
from raylog.actors.replica import reads
from raylog.actors.replica.follower import FollowerRole
from raylog.actors.replica.hosted_log import HostedLog
from raylog.actors.replica.leader import AppendWaits, LeaderRole
from raylog.actors.replica.reads import LeaderReads
from raylog.actors.replica.replica import Replica
from raylog.actors.replica.rules import replication
from raylog.actors.replica.rules.replication import Leadership, RecordedPartition, Verdict
from raylog.errors import DiskError, NotLeader, OffsetOutOfRange, RaylogError
from raylog.storage.format.record_batch import next_offset_of
from raylog.storage.log.reader import Isolation
from raylog.storage.segment.producer_state import ProducerStates
from tests.simulator.mutations.mutations import Patches, mutation, theme

# --- rule 2 ---------------------------------------------------------------------------------------------------------


@mutation(2, "acks=all is answered at the append")
def acks_at_append(patches: Patches) -> None:
    patches.attribute(AppendWaits, "wait", lambda self, end, size, answer, timeout_ms, began: Response(answer))


@mutation(
    2,
    "acks=all is taken and left waiting while the ISR is below the minimum",
    masked="by rule 3: the high watermark does not move then, so nothing is answered that must not be",
)
def acks_below_minimum(patches: Patches) -> None:
    patches.attribute(RecordedPartition, "is_under_min_isr", property(lambda self: False))
    advance = Leadership.high_watermark

    def high_watermark(self: Leadership, current: int, own_end_offset: int) -> int:
        if len(self.recorded.isr) < self.recorded.min_insync:
            return current
        return advance(self, current, own_end_offset)

    patches.attribute(Leadership, "high_watermark", high_watermark)


@mutation(2, "with flush.policy=fsync a write counts before it is synced", where=theme("power"))
def counts_before_sync(patches: Patches) -> None:
    patches.attribute(HostedLog, "counted_end", property(lambda self: self.log.log_end_offset))


@mutation(2, "a failed sync is tried again and carried on", where=theme("power"))
def failed_sync_carried_on(patches: Patches) -> None:
    async def flush_once(self: HostedLog) -> None:
        flush = self.log.plan_flush()
        try:
            await self.env.off_loop(flush.work)
        except DiskError:
            flush.abandon()
            await asyncio.sleep(0.1)
            return
        flush.apply()
        self._release_waiting()

    patches.attribute(HostedLog, "_flush_once", flush_once)


# --- rule 3 ---------------------------------------------------------------------------------------------------------


@mutation(3, "the high watermark is the leader's own end")
def high_watermark_is_own_end(patches: Patches) -> None:
    def high_watermark(self: Leadership, current: int, own_end_offset: int) -> int:
        return current if self.recorded.is_under_min_isr else max(current, own_end_offset)

    patches.attribute(Leadership, "high_watermark", high_watermark)


@mutation(3, "the high watermark does not wait for members that are being added", where=theme("races"))
def high_watermark_ignores_joining(patches: Patches) -> None:
    def find(self: Leadership) -> None:
        self._wait_for(self.recorded.isr)

    patches.attribute(Leadership, "_find_whom_to_wait_for", find)


@mutation(3, "the high watermark advances while the ISR is below the minimum")
def high_watermark_below_minimum(patches: Patches) -> None:
    def high_watermark(self: Leadership, current: int, own_end_offset: int) -> int:
        lowest = min((self.log_end_of(member) for member in self._waits_for), default=own_end_offset)
        return max(current, min(lowest, own_end_offset))

    patches.attribute(Leadership, "high_watermark", high_watermark)


@mutation(3, "the high watermark goes back, with the slowest of those that the leader waits for")
def high_watermark_goes_back(patches: Patches) -> None:
    def high_watermark(self: Leadership, current: int, own_end_offset: int) -> int:
        if self.recorded.is_under_min_isr:
            return current
        lowest = min((self.log_end_of(member) for member in self._waits_for), default=own_end_offset)
        return max(0, min(lowest, own_end_offset))

    def advance(self: LeaderRole) -> None:
        if self._ended or self._log.offline_because is not None:
            return
        marks = self._log.marks
        marks.high_watermark = self._leadership.high_watermark(marks.high_watermark, self._hosted.counted_end)
        self._appends.release(self._log.high_watermark)
        self.reads.wake()
        self._followers.marks_moved()

    patches.attribute(Leadership, "high_watermark", high_watermark)
    patches.attribute(LeaderRole, "_advance", advance)


# --- rule 4 ---------------------------------------------------------------------------------------------------------


@mutation(4, "the leader counts on its proposal at once", where=theme("races"))
def proposal_counts_at_once(patches: Patches) -> None:
    def propose(self: Leadership, isr: tuple[tuple[int, int], ...]) -> None:
        self.proposed = isr
        self._wait_for(isr)

    patches.attribute(Leadership, "propose", propose)


@mutation(4, "the leader forgets a proposal whose outcome it does not know")
def unknown_proposal_forgotten(patches: Patches) -> None:
    async def carry(self: LeaderRole, recorded: Any, isr: Any) -> None:
        name = self._hosted.name
        proposal = ProposeIsr(
            name.topic_id, name.partition, self._hosted.me[0], self.epoch, recorded.partition_epoch, isr
        )
        with suppress(RaylogError, asyncio.TimeoutError):
            await asyncio.wait_for(self._hosted.calls.propose(proposal), 0.01)
        if self._is_proposed(recorded, isr):
            self._leadership.proposal_refused()
            self._advance()
        await asyncio.sleep(0.2)

    patches.attribute(LeaderRole, "_carry_proposal", carry)


# --- rule 5 ---------------------------------------------------------------------------------------------------------


def _joins(patches: Patches, *, above_high_watermark: bool, above_epoch_start: bool) -> None:
    def may_join(self: Leadership, replica: tuple[int, int], high_watermark: int, log_start_offset: int) -> bool:
        progress = self._progress.get(replica[0])
        if progress is None or not progress.is_here:
            return False
        end = self.log_end_of(replica)
        holds_enough = (not above_high_watermark or end >= high_watermark) and (
            not above_epoch_start or end >= self.epoch_start
        )
        return holds_enough and self._begins_at(replica, log_start_offset)

    patches.attribute(Leadership, "_may_join", may_join)


@mutation(5, "who joins need not have reached the high watermark", where=theme("races"))
def joins_below_high_watermark(patches: Patches) -> None:
    _joins(patches, above_high_watermark=False, above_epoch_start=True)


@mutation(5, "who joins need not have reached the start of the leader's epoch")
def joins_below_epoch_start(patches: Patches) -> None:
    _joins(patches, above_high_watermark=True, above_epoch_start=False)


@mutation(5, "who joins need not have reached anything", where=theme("races"))
def joins_blindly(patches: Patches) -> None:
    _joins(patches, above_high_watermark=False, above_epoch_start=False)


@mutation(
    5,
    "the leader takes the word of any incarnation",
    masked="by rules 4 and 7: a new process leaves the ISR as it registers, and its first pull says how far it is",
)
def any_incarnation_counts(patches: Patches) -> None:
    patches.attribute(Leadership, "_progress_of", lambda self, replica: self._progress.get(replica[0]))


# --- rules 9 and 10 -------------------------------------------------------------------------------------------------


def _without_asking(patches: Patches) -> None:
    """A follower pulls as if it had no last epoch, so its leader finds nothing to object to."""
    patches.attribute(FollowerRole, "_pull", _pull_without_epoch(FollowerRole._pull))


def _pull_without_epoch(pull: Any) -> Any:
    async def without(self: FollowerRole, stream: Any) -> Any:
        request = stream.request

        def asked(message: Any, **options: Any) -> Any:
            message = replace(message, last_epoch=NO_EPOCH)
            return request(message, **options)

        return await pull(self, SimpleNamespace(request=asked))

    return without


@mutation(9, "a follower cuts its log at its own high watermark, and not where its leader says")
def cuts_at_high_watermark(patches: Patches) -> None:
    begin = FollowerRole.__init__

    def init(self: FollowerRole, hosted: HostedLog, *args: Any) -> None:
        hosted.log.truncate_to(hosted.log.high_watermark, hosted.env.wall_ms())
        begin(self, hosted, *args)

    patches.attribute(FollowerRole, "__init__", init)
    _without_asking(patches)


@mutation(9, "a follower cuts nothing")
def cuts_nothing(patches: Patches) -> None:
    _without_asking(patches)


@mutation(10, "a follower that has cut its log does not ask again", where=theme("divorces"))
def does_not_ask_again(patches: Patches) -> None:
    pull, truncate = FollowerRole._pull, FollowerRole._truncate
    unasked = _pull_without_epoch(pull)

    async def pull_once(self: FollowerRole, stream: Any) -> Any:
        return await (unasked if getattr(self, "has_cut", False) else pull)(self, stream)

    async def cut(self: FollowerRole, offset: int) -> None:
        self.has_cut = True  # type: ignore[attr-defined]
        await truncate(self, offset)

    patches.attribute(FollowerRole, "_pull", pull_once)
    patches.attribute(FollowerRole, "_truncate", cut)


@mutation(
    10,
    "the leader answers with the end of the epoch asked for, whether its log has that epoch or not",
    where=theme("divorces"),
)
def answers_for_unknown_epoch(patches: Patches) -> None:
    def divergence(history: Any, log_end_offset: int, offset: int, last_epoch: int) -> EpochEnd | None:
        if last_epoch == NO_EPOCH:
            return None
        end = history.end_offset_for(last_epoch, log_end_offset).start_offset
        return None if end >= offset else (last_epoch, end)

    patches.function(replication.divergence, divergence)


# --- rules 11 and 12 ------------------------------------------------------------------------------------------------


@mutation(
    11,
    "a request under another epoch is taken",
    masked="by the answers: they name the epoch of who leads, and a follower takes none of another; and by rule 13",
)
def epoch_unchecked(patches: Patches) -> None:
    patches.function(replication.check_epoch, lambda asked, current: None)


@mutation(11, "the last epoch of who fetches is not compared")
def last_epoch_unchecked(patches: Patches) -> None:
    patches.function(replication.divergence, lambda history, end, offset, last_epoch: None)


@mutation(
    12,
    "a push is taken wherever it is meant to go",
    masked="by the log itself: `append_as_follower` refuses what does not join on to its end",
)
def push_offset_unchecked(patches: Patches) -> None:
    patches.function(replication.judge_push, lambda *args: Verdict.APPEND)


@mutation(
    12,
    "the epoch before a push is not compared",
    masked="by rule 11: pushes begin where a pull has shown that both logs are the same; see `push_unchecked`",
)
def push_previous_epoch_unchecked(patches: Patches) -> None:
    judge = replication.judge_push

    def judged(history: Any, start: int, end: int, base: int, previous: int, next_offset: int, epoch: int) -> Verdict:
        if base == end:
            return Verdict.APPEND
        return judge(history, start, end, base, previous, next_offset, epoch)

    patches.function(judge, judged)


@mutation(
    12,
    "a push of another session or stream is taken",
    masked="by the offsets and epochs that it carries: from the present leader, what joins on is right",
)
def push_session_unchecked(patches: Patches) -> None:
    def push(self: FollowerRole, request: Any, message: Any) -> Any:
        self._heard = True
        return self._take_push(request, message)

    patches.attribute(FollowerRole, "push", push)


@mutation(12, "what is pushed a second time is refused", masked="it only costs a pull")
def push_repetition_refused(patches: Patches) -> None:
    judge = replication.judge_push

    def judged(*args: Any) -> Verdict:
        verdict = judge(*args)
        return Verdict.REFUSE if verdict is Verdict.REPEATED else verdict

    patches.function(judge, judged)


@mutation(
    12,
    "a repetition is told by its offsets alone",
    masked="by rule 11, as before: what is there by its offsets was the leader's when the pushes began",
)
def push_repetition_unchecked(patches: Patches) -> None:
    judge = replication.judge_push

    def judged(history: Any, start: int, end: int, base: int, previous: int, next_offset: int, epoch: int) -> Verdict:
        if start <= base and next_offset <= end:
            return Verdict.REPEATED
        return judge(history, start, end, base, previous, next_offset, epoch)

    patches.function(judge, judged)


@mutation(
    12,
    "a push is taken from any leader, of any session, whatever came before it",
    masked="by rules 3 and 4: whoever leads next is among those that an older leader waits for, and takes no push",
)
def push_unchecked(patches: Patches) -> None:
    def push(self: Replica, request: Any, message: Any) -> Any:
        if isinstance(self._role, FollowerRole):
            return self._role._take_push(request, message)
        raise NotLeader(self._hosted.name.topic, self._hosted.name.partition, -1, self._known_epoch)

    patches.attribute(Replica, "_push", push)
    push_previous_epoch_unchecked(patches)


@mutation(12, "a push that was refused is acknowledged as if it had been taken", where=theme("races"))
def refused_push_acknowledged(patches: Patches) -> None:
    take = FollowerRole._take_push

    def taken(self: FollowerRole, request: Any, message: Any) -> Any:
        answer = take(self, request, message)
        told = answer.message if isinstance(answer, Response) else None
        if isinstance(told, Pushed) and not told.accepted and request.payload:
            return Response(Pushed(next_offset_of(request.payload), 0, accepted=True))
        return answer

    patches.attribute(FollowerRole, "_take_push", taken)


# --- rule 13 --------------------------------------------------------------------------------------------------------


@mutation(13, "whoever names an epoch is believed, of whatever incarnation")
def anybody_is_believed_in_an_epoch(patches: Patches) -> None:
    patches.attribute(Replica, "_is_replica", lambda self, broker_id, incarnation: True)


@mutation(
    13,
    "a leader that hears of a higher epoch from a replica goes on",
    masked="by rules 3, 4 and 11: what it appends is acknowledged by nobody, and its controller tells it in the end",
)
def does_not_step_down(patches: Patches) -> None:
    patches.attribute(Replica, "_learn", lambda self, leader_epoch: None)


@mutation(13, "a leader goes on although its controller names another one", where=theme("controllers"))
def goes_on_when_replaced(patches: Patches) -> None:
    is_news = Replica._is_news

    def is_obeyed(self: Replica, assigned: Any) -> bool:
        leads = isinstance(self._role, LeaderRole) and assigned.leader not in (NO_LEADER, self._hosted.me[0])
        return not leads and is_news(self, assigned)

    patches.attribute(Replica, "_is_news", is_obeyed)
    patches.attribute(Replica, "_learn", lambda self, leader_epoch: None)


@mutation(13, "an older assignment is obeyed", where=theme("controllers"))
def older_assignment_obeyed(patches: Patches) -> None:
    def is_news(self: Replica, assigned: Any) -> bool:
        broker_id, incarnation = self._hosted.me
        registered = next((each.incarnation for each in assigned.replicas if each.broker_id == broker_id), None)
        return registered == incarnation

    patches.attribute(Replica, "_is_news", is_news)


@mutation(13, "an assignment from before this incarnation was registered is obeyed")
def early_assignment_obeyed(patches: Patches) -> None:
    def is_news(self: Replica, assigned: Any) -> bool:
        if assigned.leader_epoch < self._known_epoch:
            return False
        age = (assigned.leader_epoch, assigned.partition_epoch, assigned.metadata_version)
        mine = self._assigned
        return mine is None or age > (mine.leader_epoch, mine.partition_epoch, mine.metadata_version)

    patches.attribute(Replica, "_is_news", is_news)


# --- rule 16 --------------------------------------------------------------------------------------------------------


@mutation(16, "consumers read up to the end of the log")
def consumers_read_to_end(patches: Patches) -> None:
    all_of_it = SimpleNamespace(HIGH_WATERMARK=Isolation.LOG_END, LAST_STABLE=Isolation.LOG_END)
    patches.attribute(reads, "Isolation", all_of_it)


@mutation(16, "a new leader gives an end offset at once")
def end_offset_at_once(patches: Patches) -> None:
    list_offset = LeaderReads.list_offset

    def at_once(self: LeaderReads, message: Any) -> Any:
        start, self._epoch_start = self._epoch_start, -1
        try:
            return list_offset(self, message)
        finally:
            self._epoch_start = start

    patches.attribute(LeaderReads, "list_offset", at_once)


@mutation(16, "a fetch between high watermark and log end is refused")
def fetch_above_high_watermark_refused(patches: Patches) -> None:
    fetch = LeaderReads.fetch

    def refused(self: LeaderReads, stream: Any, message: Any) -> Any:
        log = self._log
        if message.offset > log.high_watermark:
            raise OffsetOutOfRange(message.offset, log.log_start_offset, log.high_watermark)
        return fetch(self, stream, message)

    patches.attribute(LeaderReads, "fetch", refused)


# --- rule 18, as far as a leader keeps it ---------------------------------------------------------------------------


@mutation(18, "a producer's batch is appended again")
def duplicates_appended(patches: Patches) -> None:
    patches.attribute(ProducerStates, "check", lambda self, header: None)


@mutation(18, "a gap in a producer's sequences is taken", where=theme("races"))
def gaps_taken(patches: Patches) -> None:
    def check(self: ProducerStates, header: Any) -> Any:
        entry = self._producers.get(header.producer_id)
        return None if entry is None else entry.duplicate_of(header)

    patches.attribute(ProducerStates, "check", check)


@mutation(18, "a repeated batch is answered before the high watermark has passed it", where=theme("races"))
def repetition_answered_at_once(patches: Patches) -> None:
    append = LeaderRole.append

    def append_or_answer(self: LeaderRole, request: Any, message: Any) -> Any:
        before = self._log.log_end_offset
        answer = append(self, request, message)
        if isinstance(answer, LaterAnswer) and self._log.log_end_offset == before:
            waiting = next(each for each in self._appends._heap if each.owed is answer)
            answer.cancel()
            return Response(waiting.answer)
        return answer

    patches.attribute(LeaderRole, "append", append_or_answer)


# --- rule 33 --------------------------------------------------------------------------------------------------------


@mutation(33, "a client is answered whatever it asks")
def clients_ask_anything(patches: Patches) -> None:
    patches.function(is_for_clients, lambda kind: True)


@mutation(33, "whoever is admitted is taken for a process of the cluster")
def everybody_is_internal(patches: Patches) -> None:
    def as_internal(held: ClusterSecrets) -> tuple[Key, ...]:
        return tuple(Key(Standing.INTERNAL, key.secret) for key in held.keys)

    patches.attribute(KeyRing, "keys", lambda self: as_internal(self.secrets))
    patches.attribute(ClusterSecrets, "own_keys", property(as_internal))
