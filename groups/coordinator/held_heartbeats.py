"""Heartbeats that wait for news: so a member hears of a change when it happens, and not at its next turn.

What must stay true: of each member at most one waits. A later one takes the place of the one before, which its sender
has given up (StaleHeartbeat).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from raylog.actors.kernel.background import TimerHandle, Timers
from raylog.errors import StaleHeartbeat
from raylog.groups.records.messages import GroupHeartbeat, GroupHeartbeatAnswer, each_of
from raylog.groups.rules.shard import Held


@dataclass(slots=True)
class _Waiting:
    held: Held
    sequence: int
    future: asyncio.Future[GroupHeartbeatAnswer]
    timer: TimerHandle


class HeldHeartbeats:
    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._by_group: dict[str, dict[str, _Waiting]] = {}

    def hold(
        self, request: GroupHeartbeat, otherwise: GroupHeartbeatAnswer, wait_ms: int
    ) -> asyncio.Future[GroupHeartbeatAnswer]:
        """Return the answer to a request, at the latest after `wait_ms`, when it is `otherwise`."""
        future: asyncio.Future[GroupHeartbeatAnswer] = asyncio.get_running_loop().create_future()
        timer = self._timers.after(wait_ms, lambda: self._over(waiting, otherwise))
        owned = each_of(request.owned) if request.epoch > 0 else frozenset()
        held = Held(request.group, request.member, request.epoch, owned)
        waiting = _Waiting(held, request.sequence, future, timer)
        self._by_group.setdefault(request.group, {})[request.member] = waiting
        return future

    def give_up_before(self, request: GroupHeartbeat) -> None:
        """A later heartbeat of this member is here."""
        waiting = self._by_group.get(request.group, {}).get(request.member)
        if waiting is not None and waiting.sequence < request.sequence:
            self.fail(waiting.held, StaleHeartbeat(request.group, request.member, waiting.sequence, request.sequence))

    def of_group(self, group: str) -> Iterator[Held]:
        for waiting in list(self._by_group.get(group, {}).values()):
            yield waiting.held

    def answer(self, held: Held, answer: GroupHeartbeatAnswer) -> None:
        waiting = self._take(held)
        if not waiting.future.done():
            waiting.future.set_result(answer)

    def fail(self, held: Held, error: Exception) -> None:
        waiting = self._take(held)
        if not waiting.future.done():
            waiting.future.set_exception(error)

    def fail_all(self, error_for: Callable[[str], Exception]) -> None:
        for group in list(self._by_group):
            for held in self.of_group(group):
                self.fail(held, error_for(group))

    def _over(self, waiting: _Waiting, otherwise: GroupHeartbeatAnswer) -> None:
        held = waiting.held
        if self._by_group.get(held.group, {}).get(held.member) is waiting:
            self.answer(held, otherwise)

    def _take(self, held: Held) -> _Waiting:
        of_group = self._by_group[held.group]
        waiting = of_group.pop(held.member)
        if not of_group:
            del self._by_group[held.group]
        self._timers.cancel(waiting.timer)
        return waiting
