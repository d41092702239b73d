"""One sweep over all replicas of a host: their upkeep, followers that lag, and which marks its broker is to be told.

What must stay true:
- The host has one timer for all of this. A replica to which nothing happens has neither a timer nor a task.
- What a replica does in a look is short. Whatever waits for a disk, it starts beside the loop.
- A turn of the loop looks at few replicas, so that an append of another one is not held up (rule 35).
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Final, Generic, Protocol, TypeVar

from raylog.actors.kernel.background import TimerHandle, Timers
from raylog.actors.replica.rules.sweep import SweepSchedule, checkpoint_seconds

_AT_ONCE: Final = 32
_CHECKPOINTS_AT_ONCE: Final = 2  # of the threads for the disk, which have more urgent work


class Swept(Hashable, Protocol):
    """A replica as its host's sweep sees it."""

    def look(self) -> float | None:
        """Do what is due. Return in how many seconds more will be; None: not before something has changed."""


class CheckpointTurns(Protocol):
    """Turns of a host's replicas to write their marks."""

    checkpoints: asyncio.Semaphore

    @property
    def checkpoint_seconds(self) -> float:
        """The time from one write of a replica's marks to the next."""


_S = TypeVar("_S", bound=Swept)


class HostSweep(Generic[_S]):
    """Looks at the replicas of one host, each when it is due."""

    def __init__(self, timers: Timers) -> None:
        self.checkpoints = asyncio.Semaphore(_CHECKPOINTS_AT_ONCE)
        self._timers = timers
        self._loop = asyncio.get_running_loop()
        self._schedule: SweepSchedule[_S] = SweepSchedule()
        self._changed: dict[_S, None] = {}  # since the broker was told last
        self._noted: set[_S] = set()  # those of `_changed` that are to be looked at soon: more changes alter nothing
        self._timer: TimerHandle | None = None
        self._timer_at = 0.0

    @property
    def checkpoint_seconds(self) -> float:
        """See `CheckpointTurns`."""
        return checkpoint_seconds(len(self._schedule))

    def add(self, replica: _S) -> None:
        """Look after this one from now on."""
        self._schedule.add(replica, self._loop.time())
        self._changed[replica] = None
        self._set_timer()

    def remove(self, replica: _S) -> None:
        self._schedule.remove(replica)
        self._changed.pop(replica, None)
        self._noted.discard(replica)

    def changed(self, replica: _S) -> None:
        """Look at it soon: its marks, role or settings may be others. Each append says so: it costs little."""
        if replica in self._noted:
            return
        self._changed[replica] = None
        self._noted.add(replica)
        if self._schedule.changed(replica, self._loop.time()):
            self._set_timer()

    def take_changed(self) -> list[_S]:
        """Return the replicas whose marks may have changed since this was asked last."""
        changed, self._changed = self._changed, {}
        self._noted.clear()
        return list(changed)

    def close(self) -> None:
        """Look at nothing any more."""
        self._schedule = SweepSchedule()
        self._noted.clear()
        if self._timer is not None:
            self._timers.cancel(self._timer)
            self._timer = None

    def _set_timer(self) -> None:
        at = self._schedule.wake_at()
        if at is None or (self._timer is not None and self._timer_at <= at):
            return
        if self._timer is not None:
            self._timers.cancel(self._timer)
        self._timer_at = at
        self._timer = self._timers.after((at - self._loop.time()) * 1000, self._sweep)

    def _sweep(self) -> None:
        self._timer = None
        due = self._schedule.take(self._loop.time(), _AT_ONCE)
        self._noted.difference_update(due)
        for replica in due:
            wanted = replica.look()
            self._changed[replica] = None  # also where nobody has told of the change
            self._schedule.looked(replica, self._loop.time(), wanted)
        self._set_timer()
