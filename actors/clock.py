"""The timers of a process: a timing wheel, turned by its event loop.

Whatever waits for a time in a process sets its timer here; the loop itself only ever holds one, for the moment
when the wheel has to move next.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import TypeAlias

from raylog.actors.timing_wheel import Timer, TimingWheel

Callback: TypeAlias = Callable[[], None]
TimerHandle: TypeAlias = Timer[Callback]


class Timers:
    """Callbacks at a time, O(1) to set and to cancel. One for each event loop is enough."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._wheel: TimingWheel[Callback] = TimingWheel(self._now_ms())
        self._wake: asyncio.TimerHandle | None = None
        self._wake_ms = 0

    def __len__(self) -> int:
        return len(self._wheel)

    def after(self, delay_ms: float, callback: Callback) -> TimerHandle:
        """Call `callback` on the loop in `delay_ms` or up to a millisecond later, never before."""
        timer = self._wheel.set(math.ceil(self._loop.time() * 1000 + delay_ms), callback)
        # What is set now cannot need the wheel before its deadline; a wake-up that is earlier sets the next itself.
        if self._wake is None or timer.deadline_ms < self._wake_ms:
            self._wake_for(timer.deadline_ms)
        return timer

    def cancel(self, timer: TimerHandle) -> bool:
        """Whether the timer had not gone off and now will not. One that went off in this very turn is still called."""
        return self._wheel.cancel(timer)

    def close(self) -> None:
        """No timer goes off any more."""
        if self._wake is not None:
            self._wake.cancel()
        self._wheel = TimingWheel(self._now_ms())
        self._wake = None

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def _wake_for(self, at_ms: int) -> None:
        if self._wake is not None:
            self._wake.cancel()
        self._wake_ms = at_ms
        self._wake = self._loop.call_at(at_ms / 1000, self._turn)

    def _turn(self) -> None:
        """A callback that raises loses nobody else's timer: each runs in a turn of the loop of its own."""
        self._wake = None
        for callback in self._wheel.advance(max(self._now_ms(), self._wake_ms)):
            self._loop.call_soon(callback)
        if (next_ms := self._wheel.wake_at()) is not None:
            self._wake_for(next_ms)
