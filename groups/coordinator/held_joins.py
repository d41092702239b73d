"""Requests of Kafka clients that wait for their group: a JoinGroup for the other members, a SyncGroup for the leader.

What must stay true:
- Of each member at most one of a kind waits. A later one takes the place of the one before, which its sender has given
  up.
- A group that waits for something has one timer. It removes members under the same rules as the sessions of other
  groups: not for the coordinator's own absence, nor for that of its log.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from raylog.actors.kernel.background import TimerHandle, Timers
from raylog.actors.kernel.stream_interface import LaterAnswer
from raylog.errors import RebalanceInProgress
from raylog.groups.coordinator.given_answers import Owed
from raylog.groups.records.classic_messages import NO_GENERATION, JoinClassic, SyncClassic
from raylog.groups.rules.classic_group import HeldRequest, Waiting
from raylog.groups.rules.classic_groups import ClassicGroups
from raylog.groups.rules.membership import Moment

_LATE_MS: Final = 300
_LOOK_AGAIN_MS: Final = 20


class HeldJoins:
    """`confirmed_ms`: when something was appended that has been committed since; it has a newer append made where the
    log is idle. `looked(group)`: the group may have changed, so what is new of it is to be written and told.
    `tell`: gives answers of a group, once all is written that they rest on.
    """

    def __init__(
        self,
        groups: ClassicGroups,
        timers: Timers,
        now: Callable[[], Moment],
        late_pause_ms: int,
        confirmed_ms: Callable[[], int],
        confirm: Callable[[], None],
        looked: Callable[[str, Callable[[], None]], None],
        tell: Callable[[str, list[Owed]], None],
    ) -> None:
        self._groups = groups
        self._timers = timers
        self._now = now
        self._late_pause_ms = late_pause_ms
        self._confirmed_ms = confirmed_ms
        self._confirm = confirm
        self._looked = looked
        self._tell = tell
        self._held: dict[str, dict[HeldRequest, LaterAnswer]] = {}
        self._due: dict[str, TimerHandle] = {}

    def __bool__(self) -> bool:
        """Whether any group waits for something, as one with members does."""
        return bool(self._due)

    def hold(self, request: JoinClassic | SyncClassic) -> LaterAnswer:
        """Return what the answer will be."""
        if isinstance(request, JoinClassic):
            key = HeldRequest(request.member or request.new_member, Waiting.JOIN)
        else:
            key = HeldRequest(request.member, Waiting.SYNC)
        of_group = self._held.setdefault(request.group, {})
        before = of_group.get(key)
        if before is not None:
            self._tell(request.group, [(before, RebalanceInProgress(request.group, NO_GENERATION))])
        owed = of_group[key] = LaterAnswer()
        return owed

    def release(self) -> None:
        """Answer the requests that wait no more."""
        for group in list(self._groups.to_release):
            held = self._held.get(group, {})
            released = self._groups.take_released(group).items()
            told: list[Owed] = [(held.pop(key), answer) for key, answer in released if key in held]
            if self._groups.due_ms(group) is None:  # nobody is in it any more
                error = RebalanceInProgress(group, NO_GENERATION)
                told += [(owed, error) for owed in self._held.pop(group, {}).values()]
            if told:
                self._tell(group, told)

    def fail_all(self, error_for: Callable[[str], Exception]) -> None:
        """Tell everybody who waits an error for their group."""
        held, self._held = self._held, {}
        for group, of_group in held.items():
            error = error_for(group)
            self._tell(group, [(owed, error) for owed in of_group.values()])

    # --- time -----------------------------------------------------------------------------------------------------

    def watch(self) -> None:
        """Set the timers of groups whose time may have come nearer."""
        while self._groups.to_time:
            group, _ = self._groups.to_time.popitem()
            due_ms = self._groups.due_ms(group)
            if due_ms is None:
                self._cancel(group)
            else:
                self._look_in(group, due_ms - self._now().now_ms, due_ms)

    def _look_in(self, group: str, delay_ms: float, due_ms: int) -> None:
        self._cancel(group)
        look = partial(self._looked, group, partial(self._look, group, due_ms))
        self._due[group] = self._timers.after(max(0, delay_ms), look)

    def _cancel(self, group: str) -> None:
        timer = self._due.pop(group, None)
        if timer is not None:
            self._timers.cancel(timer)

    def _look(self, group: str, due_ms: int) -> None:
        """Look at a group, but remove nobody whom the coordinator, or its log, may have kept from being heard."""
        self._due.pop(group, None)
        at = self._now()
        if self._groups.expels(group, at):
            if self._confirmed_ms() < due_ms:
                self._confirm()
                self._look_in(group, min(max(_LOOK_AGAIN_MS, at.now_ms - due_ms), self._late_pause_ms), due_ms)
                return
            if at.now_ms - due_ms > _LATE_MS:
                self._look_in(group, self._late_pause_ms, at.now_ms + self._late_pause_ms)
                return
        self._groups.look(group, at)
        self._groups.to_time[group] = None
