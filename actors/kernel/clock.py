"""The timers of a process: a timing wheel, turned by its event loop.

On the wheel is what comes with each request, member, transaction or process that is watched: there may be thousands,
and nearly all are cancelled before their time. Appends and fetches that wait, requests that wait for a stream or for
newer metadata, heartbeats that are held, commits, sessions of members, deadlines of transactions, leases. Of all these
the loop holds one timer, for the moment when the wheel has to move next.

Not on it is what the loop holds few of, so that a wheel would only be one step more:
- of a stream: how long admission and a frame may take, and one timer for the time-outs of all its requests, which costs
  a request nothing as long as it is answered in time (`requests_in_flight.py`);
- of a task: its pause until the next round, and the bound of the one answer that it waits for (`asyncio.sleep`,
  `asyncio.wait`); of a coordinator's log, its next claim;
- of a client: what each partition of a producer and each member of a group waits for (`api/`), one at a time.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import TypeAlias

from raylog.actors.kernel.timing_wheel import Timer, TimingWheel

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
