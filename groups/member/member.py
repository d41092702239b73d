"""A member's side of the protocol: what to say next, what to give up, what it owns. No clock, no loop, no stream.

    joining   it has no epoch yet, or lost it; it owns nothing
    joined    it heartbeats, and does with its partitions as it is told
    idle      nobody polled for too long: it has left, and joins again with the next poll
    leaving   it says that it goes, once
    left
    stopped   the coordinator will not have it: `stopped_by` says why

    joining → joined, leaving, stopped     joined → joining, idle, leaving, stopped
    idle → joining, left                   leaving → left

Its driver calls `tick` and `next_heartbeat` at `wake_at()` and after every other call, sends what the latter returns,
and tells the outcome by `answered` or `failed`. These and `tick` return what has become of the partitions.

What must stay true (rule 23):
- `holds` is what it reads or might still read. A heartbeat tells exactly that, at the moment when it is made.
- An answer counts only if it is that of the last heartbeat that was made: one that was given up can grant nothing.
- A partition that it is to give up leaves `holds` when its owner says `revoked`, and not before.
- What is lost (another member may have it already) leaves at once, without anybody being asked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final, NamedTuple

from raylog.actors.kernel.backoff import Backoff
from raylog.errors import FencedMember, GroupError, RaylogError, UnknownMember
from raylog.groups.records.messages import (
    JOINING,
    LEAVING,
    PAUSING,
    CommitOffsets,
    FetchOffsets,
    GroupHeartbeat,
    GroupHeartbeatAnswer,
    OffsetToCommit,
    PartitionId,
    Profile,
    ProfileFields,
    each_of,
    grouped,
)

if TYPE_CHECKING:
    from random import Random

_FIRST_RETRY_MS: Final = 50
_LONGEST_RETRY_MS: Final = 1_000
_NOTHING: Final[frozenset[PartitionId]] = frozenset()

_JOINING: Final = "joining"
_JOINED: Final = "joined"
_IDLE: Final = "idle"
_LEAVING: Final = "leaving"
_LEFT: Final = "left"
_STOPPED: Final = "stopped"


class Changes(NamedTuple):
    """`revoke`: stop reading these, commit what was done, then call `revoked`. `assigned`: read these from now on.
    `lost`: they are another's; no commit of them is taken any more. `error`: worth telling the application.
    """

    revoke: frozenset[PartitionId] = _NOTHING
    assigned: frozenset[PartitionId] = _NOTHING
    lost: frozenset[PartitionId] = _NOTHING
    error: RaylogError | None = None


class GroupMember:
    """`draw_id` gives ids that nobody else ever has; `random` is for its retries."""

    def __init__(
        self,
        group: str,
        profile: Profile,
        max_poll_interval_ms: int,
        draw_id: Callable[[], str],
        random: Random,
        now_ms: int,
    ) -> None:
        self.group = group
        self.member_id = draw_id()
        self.epoch = JOINING
        self.holds: set[PartitionId] = set()
        self.revoking: set[PartitionId] = set()
        self.stopped_by: RaylogError | None = None
        self._profile = profile
        self._draw_id = draw_id
        self._max_poll_interval_ms = max_poll_interval_ms
        self._state = _JOINING
        self._profile_is_told = False
        self._sequence = 0
        self._under_way: GroupHeartbeat | None = None
        self._sent_at_ms = now_ms
        self._due_at_ms = now_ms
        self._is_urgent = False  # due even if one is under way
        self._farewell_epoch: int | None = None  # of a leave that is still to be said
        self._interval_ms = _LONGEST_RETRY_MS
        self._backoff_ms = Backoff(_FIRST_RETRY_MS, _LONGEST_RETRY_MS, random)
        self._polled_at_ms = now_ms
        self._was: tuple[str, int, int, str] | None = None  # member id, epoch, since when it is not, why

    # --- what the driver asks -------------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        return self._state

    @property
    def is_member(self) -> bool:
        return self._state == _JOINED

    @property
    def reads(self) -> frozenset[PartitionId]:
        """The partitions that it owns and is not about to give up."""
        return frozenset(self.holds - self.revoking)

    @property
    def is_over(self) -> bool:
        return self._state in (_LEFT, _STOPPED)

    def wake_at(self) -> int | None:
        """Return when something is to be done next if nothing happens; None: nothing."""
        times = []
        if self._has_something_to_say():
            times.append(self._due_at_ms)
        if self._state in (_JOINING, _JOINED):
            times.append(self._polled_at_ms + self._max_poll_interval_ms)
        return min(times, default=None)

    def tick(self, now_ms: int) -> Changes:
        """Time has passed: has nobody polled for too long? Then it gives its place up, before others wait for it."""
        overdue = now_ms - self._polled_at_ms >= self._max_poll_interval_ms
        if not overdue or self._state not in (_JOINING, _JOINED):
            return Changes()
        was_member = self.epoch > 0
        lost = self._lose_all()
        self._state = _IDLE
        self._farewell_epoch = self._goodbye() if was_member else None
        self._make_due(now_ms)
        silent = now_ms - self._polled_at_ms
        why = f"nobody polled for {silent} ms (max_poll_interval_ms {self._max_poll_interval_ms}), so it left"
        self._was = self.member_id, self.epoch, now_ms, why
        return Changes(lost=lost, error=self.absence(now_ms))

    def absence(self, now_ms: int) -> UnknownMember:
        """Return why nothing can be committed now, by the name and the epoch that it had last."""
        if self._was is None:
            return UnknownMember(self.group, self.member_id, self.epoch, -1, f"it is {self._state} just now")
        member_id, epoch, since_ms, why = self._was
        return UnknownMember(self.group, member_id, epoch, now_ms - since_ms, why)

    def next_heartbeat(self, now_ms: int) -> GroupHeartbeat | None:
        """Return the heartbeat to send now. One that is under way is given up by it: its outcome is not looked at."""
        if now_ms < self._due_at_ms or not self._has_something_to_say():
            return None
        if self._farewell_epoch is not None:
            epoch, self._farewell_epoch = self._farewell_epoch, None
            return self._make(epoch, 0, None, now_ms)
        profile = None if self._profile_is_told else self._profile.fields()
        return self._make(self.epoch, self._interval_ms, profile, now_ms)

    # --- what comes of a heartbeat --------------------------------------------------------------------------------

    def answered(self, request: GroupHeartbeat, answer: GroupHeartbeatAnswer, now_ms: int) -> Changes:
        if request is not self._under_way:
            return Changes()
        self._under_way = None
        self._backoff_ms.reset()
        if request.epoch < 0:
            self._farewell_is_over()
            return Changes()
        if now_ms - self._sent_at_ms >= self._profile.session_timeout_ms:
            self._make_due(now_ms)  # this process stood still: what it was granted may be another's by now
            return Changes()
        self._profile_is_told |= request.profile is not None and request.profile == self._profile.fields()
        is_news = answer.epoch != self.epoch or answer.assignment is not None
        self._state, self.epoch, self._interval_ms = _JOINED, answer.epoch, answer.heartbeat_interval_ms
        self._was = None
        changes = Changes() if answer.assignment is None else self._take(each_of(answer.assignment))
        # While it gives up, the coordinator has the same to say each time: no need to ask before that is done.
        soon = (is_news and not self.revoking) or not self._profile_is_told
        self._due_at_ms = now_ms if soon else max(now_ms, self._sent_at_ms + self._interval_ms)
        return changes

    def failed(self, request: GroupHeartbeat, error: RaylogError, now_ms: int) -> Changes:
        """Take in that a heartbeat was refused, or that its outcome is unknown."""
        if request is not self._under_way:
            return Changes()
        self._under_way = None
        if request.epoch < 0:
            self._farewell_is_over()
            return Changes()
        if isinstance(error, (UnknownMember, FencedMember)):
            return self._join_anew(error, now_ms)
        if isinstance(error, GroupError) and not error.retriable:
            self._state, self.stopped_by = _STOPPED, error
            return Changes(lost=self._lose_all(), error=error)
        self._due_at_ms = now_ms + round(self._backoff_ms.next())
        return Changes(error=error)

    # --- what the application does --------------------------------------------------------------------------------

    def polled(self, now_ms: int) -> None:
        self._polled_at_ms = now_ms
        if self._state == _IDLE:
            self._state = _JOINING
            if self._farewell_epoch is None:
                self.member_id = self._draw_id()  # it has left under the old one
            self._farewell_epoch = None
            self._begin_anew(now_ms)

    def revoked(self, partitions: Collection[PartitionId], now_ms: int) -> None:
        """Take in that these partitions are not read any more, and that nothing of them will be committed."""
        self.holds.difference_update(partitions)
        self.revoking.difference_update(partitions)
        if not self.revoking:
            self._make_due(now_ms)

    def change_profile(self, profile: Profile, now_ms: int) -> None:
        """Another subscription. What it does not cover any more the coordinator will ask back."""
        if profile != self._profile:
            self._profile, self._profile_is_told = profile, False
            self._make_due(now_ms)

    def leave(self, now_ms: int, *, for_good: bool = False) -> frozenset[PartitionId]:
        """A static member may be back within its session, and then finds its partitions. Returns what it still held."""
        held = self._lose_all()
        if self.is_over or self._state == _LEAVING:
            return held
        if self._state == _IDLE or (self.epoch == JOINING and self._sequence == 0):
            self._state = _LEFT
            return held
        self._farewell_epoch = LEAVING if for_good else self._goodbye()
        self._state = _LEAVING
        self._make_due(now_ms)
        return held

    def doubted(self, now_ms: int) -> None:
        """A commit was refused for what this member is: the next heartbeat finds out, now."""
        if self._state == _JOINED:
            self._make_due(now_ms)

    def commit(self, offsets: Collection[OffsetToCommit]) -> CommitOffsets:
        """Return the request that commits these offsets as this member, at its present epoch (rule 24)."""
        return CommitOffsets(self.group, self.member_id, self.epoch, tuple(offsets))

    def fetch_offsets(self, partitions: Collection[PartitionId]) -> FetchOffsets:
        return FetchOffsets(self.group, self.member_id, self.epoch, grouped(partitions))

    # --- within ---------------------------------------------------------------------------------------------------

    def _has_something_to_say(self) -> bool:
        if self._state in (_JOINING, _JOINED):
            return self._under_way is None or self._is_urgent
        return self._farewell_epoch is not None

    def _make(self, epoch: int, max_wait_ms: int, profile: ProfileFields | None, now_ms: int) -> GroupHeartbeat:
        self._sequence += 1
        owned = grouped(self.holds) if epoch > 0 else ()
        request = GroupHeartbeat(self.group, self.member_id, epoch, self._sequence, max_wait_ms, owned, profile)
        self._under_way, self._sent_at_ms, self._is_urgent = request, now_ms, False
        return request

    def _make_due(self, now_ms: int) -> None:
        """Say something now, even if a heartbeat is under way."""
        self._due_at_ms = now_ms
        self._is_urgent = True

    def _take(self, assignment: frozenset[PartitionId]) -> Changes:
        revoke = frozenset(self.holds - assignment - self.revoking)
        assigned = frozenset(assignment - self.holds)
        self.revoking |= revoke
        self.holds |= assigned
        return Changes(revoke=revoke, assigned=assigned)

    def _lose_all(self) -> frozenset[PartitionId]:
        lost = frozenset(self.holds)
        self.holds.clear()
        self.revoking.clear()
        return lost

    def _join_anew(self, error: RaylogError, now_ms: int) -> Changes:
        lost = self._lose_all()
        self._state = _JOINING
        why = error.reason if isinstance(error, UnknownMember) else "its epoch was over"
        self._was = self.member_id, self.epoch, now_ms, why
        if isinstance(error, UnknownMember):
            self.member_id = self._draw_id()  # what was sent under the old one shall never count again
        self._begin_anew(now_ms)
        return Changes(lost=lost, error=error)

    def _begin_anew(self, now_ms: int) -> None:
        self.epoch = JOINING
        self._under_way = None
        self._profile_is_told = False
        self._make_due(now_ms)

    def _goodbye(self) -> int:
        return PAUSING if self._profile.instance_id else LEAVING

    def _farewell_is_over(self) -> None:
        if self._state == _LEAVING:
            self._state = _LEFT
