"""How a follower's log comes to equal its leader's: truncation by epochs, and which batches join on.

    leader's cursor   what it does                            changes when
    PULLING           answers pulls                           an answer reaches the log end: PUSHING
    PUSHING           sends each batch as it is appended      a push is refused, or too much is unanswered: PULLING
    (none)            –                                       the follower pulls

What must stay true:
- A follower cuts its log by epochs as its leader tells them, never by a high watermark of its own (rules 9, 10).
- A fetch or push is taken only under the present epoch, and only where the epoch before it matches on both sides
  (rules 11, 12). What does not join on is refused; what is there already changes nothing.
- Between the answer that reaches the log end and the first push nothing is appended that is in neither.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, Protocol

from raylog.actors.protocol.control_messages import ReplicaId
from raylog.actors.protocol.replication_messages import NO_EPOCH, EpochEnd
from raylog.errors import StaleLeaderEpoch, UnknownLeaderEpoch
from raylog.storage.segment.leader_epochs import EpochStart

MAX_PUSHED_BYTES: Final = 32 * 1024 * 1024  # to one follower and not answered (rule 31)


class EpochHistory(Protocol):
    """Which epoch wrote what: `storage.leader_epochs.LeaderEpochs`."""

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
    """What a leader answers a reader who holds everything below `offset`, the last of it from `last_epoch`.

    None: both logs are the same up to there. Otherwise the largest epoch that is not above the reader's, and its end
    (rule 10).
    """
    if last_epoch == NO_EPOCH:
        return None
    epoch, end = history.end_offset_for(last_epoch, log_end_offset)
    return None if epoch == last_epoch and end >= offset else (epoch, end)


def truncation_offset(history: EpochHistory, log_end_offset: int, answer: EpochEnd) -> int:
    """Where a follower cuts after such an answer, before it asks again (rule 9).

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
    """What to do with a push (rule 12)."""

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

    __slots__ = ("follower", "held", "is_pushing", "next_offset", "pushed_bytes", "session", "told_high_watermark")

    def __init__(self, follower: ReplicaId, session: int, next_offset: int) -> None:
        self.follower = follower
        self.session = session
        self.next_offset = next_offset
        self.held = next_offset  # as far as it has answered
        self.is_pushing = False
        self.pushed_bytes = 0
        self.told_high_watermark = -1  # with the last push

    def may_push(self, size: int) -> bool:
        """One push alone may be larger than the bound."""
        return not self.pushed_bytes or self.pushed_bytes + size <= MAX_PUSHED_BYTES

    def pushed(self, size: int, next_offset: int) -> None:
        self.pushed_bytes += size
        self.next_offset = next_offset

    def answered(self, size: int) -> None:
        self.pushed_bytes -= size

    def holds(self, log_end_offset: int) -> int:
        """What the follower holds after this answer. Within a session its log only grows, and answers may overtake."""
        self.held = max(self.held, log_end_offset)
        return self.held
