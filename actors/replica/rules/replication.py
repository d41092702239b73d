"""The rules between a leader and its followers: logs that become equal, the high watermark, acknowledgement, the ISR.

    leader's cursor   what it does                            changes when
    PULLING           answers pulls                           an answer reaches the log end: PUSHING
    PUSHING           sends each batch as it is appended      a push is refused, or too much is unanswered: PULLING
    (none)            –                                       the follower pulls

    recorded ISR    what the controller has made durable; counts for min.insync.replicas
    maximal ISR     recorded ISR and the members being added; the high watermark waits for all of these

What must stay true:
- A follower cuts its log by epochs as its leader tells them, never by a high watermark of its own (rules 9, 10).
- A fetch or push is taken only under the present epoch, and only where the epoch before it matches on both sides
  (rules 11, 12). What does not join on is refused; what is there already changes nothing.
- Between the answer that reaches the log end and the first push nothing is appended that is in neither.
- The high watermark is the smallest log end among the maximal ISR. It does not move while the recorded ISR is smaller
  than the minimum, and never goes back within an epoch (rule 3).
- One proposal at a time. It is over when the controller has recorded a higher partition epoch, or has refused it for
  certain; while that is unknown, the maximal ISR keeps its members (rule 4).
- A follower joins with the incarnation that the controller knows, once it holds all that is below the high watermark
  and all from before this leader's epoch (rule 5). Its log begins no earlier than the leader's: whichever replica leads
  next brings nothing back that was deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from raylog.actors.protocol.control_messages import ReplicaId
from raylog.actors.protocol.replication_messages import NO_EPOCH, EpochEnd
from raylog.errors import StaleLeaderEpoch, UnknownLeaderEpoch
from raylog.storage.segment.leader_epochs import EpochStart

NOTHING_TOLD: Final = -1, -1
MAX_PUSHED_BYTES: Final = 32 * 1024 * 1024  # to one follower and not answered (rule 31)
UNKNOWN_OFFSET: Final = -1


class EpochHistory(Protocol):
    """History of which epoch wrote what: `storage.leader_epochs.LeaderEpochs`."""

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochStart: ...
    def span_at(self, offset: int) -> tuple[int, int]: ...


def check_epoch(asked: int, current: int) -> None:
    """Refuse a request under another epoch (rule 11). NO_EPOCH: its sender does not mind."""
    if asked in (NO_EPOCH, current):
        return
    if asked < current:
        raise StaleLeaderEpoch(asked, current)
    raise UnknownLeaderEpoch(asked, current)


def epoch_before(history: EpochHistory, offset: int, log_start_offset: int) -> int:
    """The epoch of the batch that ends at `offset`; NO_EPOCH where the log has none."""
    return history.span_at(offset - 1)[0] if offset > log_start_offset else NO_EPOCH


def divergence(history: EpochHistory, log_end_offset: int, offset: int, last_epoch: int) -> EpochEnd | None:
    """Answer a reader that holds everything below `offset`, the last of it from `last_epoch`.

    None: both logs are the same up to there. Otherwise the largest epoch that is not above the reader's, and its end
    (rule 10).
    """
    if last_epoch == NO_EPOCH:
        return None
    epoch, end = history.end_offset_for(last_epoch, log_end_offset)
    return None if epoch == last_epoch and end >= offset else (epoch, end)


def truncation_offset(history: EpochHistory, log_end_offset: int, answer: EpochEnd) -> int:
    """The offset where a follower cuts after such an answer, before it asks again (rule 9).

    Behind the leader's end of that epoch everything differs; so does what this log has from epochs that the
    leader's answer leaves out.
    """
    epoch, leader_end = answer
    return min(leader_end, history.end_offset_for(epoch, log_end_offset).start_offset)


def may_be_all_there_is(own_last_epoch: int, unclean_epoch: int, offset: int, high_watermark: int) -> bool:
    """Whether what a follower is about to cut from `offset` on may hold acknowledged records that its leader lacks.

    It may where it was written before a leader that may have lacked something (rule 7). After clean elections nothing
    is ever cut below a high watermark; if that should happen all the same, it is not explained, and the answer is yes.
    """
    return own_last_epoch < unclean_epoch or offset < high_watermark


class Verdict(Enum):
    """The answer to a push (rule 12)."""

    APPEND = "it joins on"
    REPEATED = "all of it is there already"
    REFUSE = "pull from the log end"


def judge_push(
    history: EpochHistory,
    log_start_offset: int,
    log_end_offset: int,
    base_offset: int,
    previous_epoch: int,
    next_offset: int,
    epoch: int,
) -> Verdict:
    """Whether batches [base_offset, next_offset), the last of them from `epoch`, join on to this log.

    They do too where one of both logs has nothing below `base_offset`: of what a leader has deleted it does not know
    the epoch any more, and what this log still has of it goes with the leader's log start offset.
    """
    if base_offset == log_end_offset:
        own = epoch_before(history, log_end_offset, log_start_offset)
        return Verdict.APPEND if own == previous_epoch or NO_EPOCH in (own, previous_epoch) else Verdict.REFUSE
    is_there = log_start_offset <= base_offset and next_offset <= log_end_offset
    return Verdict.REPEATED if is_there and history.span_at(next_offset - 1)[0] == epoch else Verdict.REFUSE


class FollowerCursor:
    """A leader's place in one follower's log, for one session of that follower."""

    __slots__ = ("follower", "held", "is_pushing", "next_offset", "pushed_bytes", "session", "told_marks")

    def __init__(self, follower: ReplicaId, session: int, next_offset: int) -> None:
        self.follower = follower
        self.session = session
        self.next_offset = next_offset
        self.held = next_offset  # as far as it has answered
        self.is_pushing = False
        self.pushed_bytes = 0
        self.told_marks = NOTHING_TOLD  # high watermark and log start, with the last push

    def push(self, size: int, next_offset: int) -> bool:
        """Note a push, if it is within the bound. One alone may be larger."""
        if self.pushed_bytes and self.pushed_bytes + size > MAX_PUSHED_BYTES:
            return False
        self.pushed_bytes += size
        self.next_offset = next_offset
        return True

    def answered(self, size: int) -> None:
        self.pushed_bytes -= size

    def holds(self, log_end_offset: int) -> int:
        """Note what the follower holds after this answer. Within a session its log only grows; answers may overtake."""
        if log_end_offset > self.held:  # noqa: PLR1730 (each batch comes here: no call)
            self.held = log_end_offset
        return self.held


@dataclass(frozen=True, slots=True)
class RecordedPartition:
    """The part of the controller's state that a leader acts on."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[ReplicaId, ...]
    incarnations: tuple[ReplicaId, ...]  # of all replicas, as the controller knows them
    min_insync: int

    @property
    def is_under_min_isr(self) -> bool:
        return len(self.isr) < self.min_insync


class FollowerProgress:
    """The progress of one follower, by its own word.

    It is caught up at a moment if it then held all that the leader had; of a follower that reports how far it is only
    now and then, the same holds for the time of its report before, if it now holds what the leader had then.
    """

    __slots__ = (
        "_leader_end_then", "_reported_ms", "caught_up_ms", "incarnation", "is_here", "log_end_offset",
        "log_start_offset",
    )  # fmt: skip

    def __init__(self, incarnation: int, now_ms: int) -> None:
        self.incarnation = incarnation
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = 0
        self.is_here = False  # it follows at this moment
        self.caught_up_ms = now_ms  # it is given the time to catch up
        self._reported_ms = now_ms
        self._leader_end_then = UNKNOWN_OFFSET

    def holds(self, log_end_offset: int, leader_end_offset: int, now_ms: int) -> None:
        if log_end_offset >= leader_end_offset:
            self.caught_up_ms = now_ms
        elif self._leader_end_then != UNKNOWN_OFFSET and log_end_offset >= self._leader_end_then:
            self.caught_up_ms = max(self.caught_up_ms, self._reported_ms)
        self.is_here = True
        self.log_end_offset = log_end_offset
        self._leader_end_then = leader_end_offset
        self._reported_ms = now_ms

    def lags(self, leader_end_offset: int, now_ms: int, max_lag_ms: int) -> bool:
        """Whether it has been behind for too long. One that holds all there is does not lag, however quiet it is."""
        return self.log_end_offset < leader_end_offset and now_ms - self.caught_up_ms > max_lag_ms


class Leadership:
    """One replica's leadership of one epoch. Time is monotonic milliseconds."""

    def __init__(self, me: ReplicaId, recorded: RecordedPartition, epoch_start: int, now_ms: int) -> None:
        self.me = me
        self.epoch_start = epoch_start
        self.recorded = recorded
        self.proposed: tuple[ReplicaId, ...] | None = None
        self._progress: dict[int, FollowerProgress] = {}
        self._waits_for: tuple[ReplicaId, ...] = ()
        self._awaited: tuple[FollowerProgress | None, ...] = ()  # theirs, since each answer of a follower asks for it
        self.is_under_min_isr = False  # as recorded
        self._take_over(now_ms)

    # --- what the controller says ---

    def record(self, recorded: RecordedPartition, now_ms: int) -> None:
        """Take over a newer state of the same leader epoch."""
        if recorded.partition_epoch > self.recorded.partition_epoch:
            self.proposed = None
        self.recorded = recorded
        self._take_over(now_ms)

    def proposal_refused(self) -> None:
        """The controller has not recorded the proposal, and never will."""
        self.proposed = None
        self._find_whom_to_wait_for()

    def _take_over(self, now_ms: int) -> None:
        for broker_id, incarnation in self.recorded.incarnations:
            known = self._progress.get(broker_id)
            if broker_id != self.me[0] and (known is None or known.incarnation != incarnation):
                self._progress[broker_id] = FollowerProgress(incarnation, now_ms)
        self.is_under_min_isr = self.recorded.is_under_min_isr
        self._find_whom_to_wait_for()

    def _find_whom_to_wait_for(self) -> None:
        self._wait_for((*self.recorded.isr, *(self.proposed or ())))

    def _wait_for(self, members: tuple[ReplicaId, ...]) -> None:
        self._waits_for = tuple(member for member in dict.fromkeys(members) if member[0] != self.me[0])
        self._awaited = tuple(map(self._progress_of, self._waits_for))

    def _progress_of(self, replica: ReplicaId) -> FollowerProgress | None:
        """The progress of exactly this one: the word of a replaced incarnation counts for nothing (rule 5)."""
        progress = self._progress.get(replica[0])
        return progress if progress is not None and progress.incarnation == replica[1] else None

    # --- what followers say ---

    def follower_holds(
        self, follower: ReplicaId, log_end_offset: int, leader_end_offset: int, now_ms: int, log_start_offset: int = 0
    ) -> None:
        """A follower has told how far its log goes, and where it begins: never earlier than it has said before."""
        progress = self._progress_of(follower)
        if progress is not None:
            if log_start_offset > progress.log_start_offset:  # noqa: PLR1730 (each batch comes here: no call)
                progress.log_start_offset = log_start_offset
            progress.holds(log_end_offset, leader_end_offset, now_ms)

    def appends(self, first_offset: int, now_ms: int) -> None:
        """Note an append from there on. A follower that held all before it may be behind from now on.

        It has said so some time ago, perhaps: a follower of a quiet partition is silent for minutes.
        """
        for progress in self._progress.values():
            if progress.log_end_offset >= first_offset:
                progress.caught_up_ms = now_ms

    def follower_left(self, follower: ReplicaId) -> None:
        """Note that its stream has ended. It still holds what it held, but is not about to join."""
        progress = self._progress_of(follower)
        if progress is not None:
            progress.is_here = False

    def log_end_of(self, follower: ReplicaId) -> int:
        progress = self._progress_of(follower)
        return UNKNOWN_OFFSET if progress is None else progress.log_end_offset

    def broken_invariants(self) -> Iterator[str]:
        """Say in words what contradicts the top of this file."""
        members = {*self.recorded.isr, *(self.proposed or ())}
        if self.me not in self.recorded.isr:
            yield f"{self.me} leads, and is not in the recorded ISR {self.recorded.isr}"
        if {*self._waits_for, self.me} != members:
            yield f"the high watermark waits for {self._waits_for} where the maximal ISR is {sorted(members)}"
        if self._awaited != tuple(map(self._progress_of, self._waits_for)):
            yield f"the high watermark goes by the progress of others than {self._waits_for}"
        if self.is_under_min_isr != self.recorded.is_under_min_isr:
            yield f"that the ISR {self.recorded.isr} is too small is taken for {self.is_under_min_isr}"

    def is_covered(self, high_watermark: int, own_end_offset: int) -> bool:
        """Whether the high watermark may have moved there now (rule 3)."""
        ends = [own_end_offset, *map(self.log_end_of, self._waits_for)]
        return high_watermark <= min(ends) and not self.recorded.is_under_min_isr

    def is_behind(self, leader_end_offset: int) -> bool:
        """Whether a member of the recorded ISR lacks something, so that it may come to lag."""
        others = (member for member in self.recorded.isr if member[0] != self.me[0])
        return any(self.log_end_of(member) < leader_end_offset for member in others)

    # --- what follows ---

    def may_bring_back(self, log_start_offset: int) -> set[ReplicaId]:
        """The replicas that may lead next and are not known to have deleted what is before this offset.

        While the recorded ISR is too small, replicas that have left it may be eligible (rule 7); a leader is not told
        which.
        """
        members = self.recorded.incarnations if self.recorded.is_under_min_isr else self._waits_for
        return {
            (broker_id, incarnation)
            for broker_id, incarnation in members
            if broker_id != self.me[0] and not self._begins_at((broker_id, incarnation), log_start_offset)
        }

    def _begins_at(self, replica: ReplicaId, log_start_offset: int) -> bool:
        progress = self._progress_of(replica)
        return progress is not None and progress.log_start_offset >= log_start_offset

    def high_watermark(self, current: int, own_end_offset: int) -> int:
        """The present high watermark (rule 3). `own_end_offset`: as far as the leader's own log counts."""
        if self.is_under_min_isr:
            return current
        lowest = own_end_offset
        for progress in self._awaited:
            end_offset = UNKNOWN_OFFSET if progress is None else progress.log_end_offset
            if end_offset <= current:  # as after every append of the leader's own
                return current
            if end_offset < lowest:  # noqa: PLR1730 (each batch comes here: no call)
                lowest = end_offset
        return lowest if lowest > current else current

    def next_proposal(
        self, high_watermark: int, leader_end_offset: int, now_ms: int, max_lag_ms: int, log_start_offset: int = 0
    ) -> tuple[ReplicaId, ...] | None:
        """The ISR to propose now; None: leave it as it is, or wait for what has been proposed.

        `log_start_offset` is where the leader's own log begins.
        """
        if self.proposed is not None:
            return None
        staying = tuple(
            member
            for member in self.recorded.isr
            if not self._has_to_leave(member, leader_end_offset, now_ms, max_lag_ms)
        )
        members = {broker_id for broker_id, _ in self.recorded.isr}  # a member that leaves now does not join at once
        joining = tuple(
            replica
            for replica in self.recorded.incarnations
            if replica[0] not in members and self._may_join(replica, high_watermark, log_start_offset)
        )
        proposal = staying + joining
        return None if proposal == self.recorded.isr else proposal

    def propose(self, isr: tuple[ReplicaId, ...]) -> None:
        self.proposed = isr
        self._find_whom_to_wait_for()

    def _has_to_leave(self, member: ReplicaId, leader_end_offset: int, now_ms: int, max_lag_ms: int) -> bool:
        if member[0] == self.me[0]:
            return False
        progress = self._progress.get(member[0])
        return progress is not None and progress.lags(leader_end_offset, now_ms, max_lag_ms)

    def _may_join(self, replica: ReplicaId, high_watermark: int, log_start_offset: int) -> bool:
        """Whether this replica may join the ISR (rule 5)."""
        progress = self._progress.get(replica[0])
        if progress is None or not progress.is_here:
            return False
        log_end_offset = self.log_end_of(replica)
        holds_enough = log_end_offset >= high_watermark and log_end_offset >= self.epoch_start
        return holds_enough and self._begins_at(replica, log_start_offset)
