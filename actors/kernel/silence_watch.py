"""Who has been silent for too long (rule 29): a broker watches its replicas so, the controller the brokers' leases.

A sign of life costs a dictionary entry and no timer. Each one that is watched has one timer, which on going off looks
when the last sign came, and either waits for the rest or tells.

What must stay true: nobody is found silent because the watcher itself did not run. A watcher that was stopped,
or too busy to look, wakes with all timers over and all signs still unread; so after a timer that goes off late there is
time for two more signs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from functools import partial
from typing import Final, Generic, TypeVar

from raylog.actors.kernel.timers import TimerHandle, Timers

HEARTBEAT_SECONDS: Final = 0.3
SILENCE_SECONDS: Final = 1.5
_LATE_SECONDS: Final = 0.3
_GRACE_SECONDS: Final = 2 * HEARTBEAT_SECONDS

_K = TypeVar("_K", bound=Hashable)


class _Watched:
    """One period of one key."""

    __slots__ = ("heard_at", "looked_for_at", "timer")

    timer: TimerHandle

    def __init__(self, heard_at: float, looked_for_at: float) -> None:
        self.heard_at = heard_at
        self.looked_for_at = looked_for_at


class SilenceWatch(Generic[_K]):
    """`on_silent` is called once for each key that was silent so long, and it is not watched any more."""

    def __init__(self, timers: Timers, on_silent: Callable[[_K], None], seconds: float = SILENCE_SECONDS) -> None:
        self._timers = timers
        self._on_silent = on_silent
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._watched: dict[_K, _Watched] = {}

    def __contains__(self, key: _K) -> bool:
        return key in self._watched

    def watch(self, key: _K) -> None:
        """Begin, or begin anew, with a full period."""
        self.forget(key)
        self._look_after(key, self._loop.time(), self._seconds)

    def heard(self, key: _K) -> None:
        """A sign of life; of somebody who is not watched it means nothing."""
        watched = self._watched.get(key)
        if watched is not None:
            watched.heard_at = self._loop.time()

    def forget(self, key: _K) -> None:
        watched = self._watched.pop(key, None)
        if watched is not None:
            self._timers.cancel(watched.timer)

    def close(self) -> None:
        for key in list(self._watched):
            self.forget(key)

    def _look_after(self, key: _K, heard_at: float, seconds: float) -> None:
        watched = self._watched[key] = _Watched(heard_at, self._loop.time() + seconds)
        watched.timer = self._timers.after(seconds * 1000, partial(self._look, key, watched))

    def _look(self, key: _K, watched: _Watched) -> None:
        if self._watched.get(key) is not watched:  # forgotten between the timer's going off and this call
            return
        del self._watched[key]
        now = self._loop.time()
        if now - watched.looked_for_at > _LATE_SECONDS:
            self._look_after(key, watched.heard_at, _GRACE_SECONDS)
        elif (rest := watched.heard_at + self._seconds - now) > 0:
            self._look_after(key, watched.heard_at, rest)
        else:
            self._on_silent(key)
