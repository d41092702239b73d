"""The times at which the host of many replicas looks at each of them next.

    changed ──a moment──► looked at ──wants it soon──► looked at again then
                             └──wants nothing──► after a pause that doubles, up to half a minute

What must stay true:
- A member that has changed is looked at within `ROUND_SECONDS`, however often it changes meanwhile.
- Each member is looked at within `LONGEST_PAUSE` and a little, also if nobody has told of a change. Clocks jump, and
  what was forgotten to be told is found then.
- An idle member costs a look each half a minute. Those looks come together, so that the process wakes up rarely.

Time is monotonic seconds, and an argument.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Hashable, Iterator
from typing import Final, Generic, TypeVar

ROUND_SECONDS: Final = 1.0
LONGEST_PAUSE: Final = 30.0
TOGETHER_SECONDS: Final = 5.0  # pauses that are at least twice as long end at a multiple of this

CHECKPOINT_SECONDS: Final = 5.0
LONGEST_CHECKPOINT_SECONDS: Final = 60.0
CHECKPOINTS_PER_SECOND: Final = 50  # of a host; each is two syncs

_K = TypeVar("_K", bound=Hashable)


def checkpoint_seconds(replicas: int) -> float:
    """Return how often a replica writes its marks, in a host of so many.

    A thousand that are written to all the time would sync 400 times a second, for marks that only a restart reads.
    """
    return min(max(CHECKPOINT_SECONDS, replicas / CHECKPOINTS_PER_SECOND), LONGEST_CHECKPOINT_SECONDS)


class _Member:
    __slots__ = ("due", "has_changed", "pause")

    def __init__(self, due: float) -> None:
        self.due = due
        self.pause = ROUND_SECONDS
        self.has_changed = True


class SweepSchedule(Generic[_K]):
    """The members of a sweep, and when each of them is due."""

    def __init__(self) -> None:
        self._members: dict[_K, _Member] = {}
        self._heap: list[tuple[float, int, _K]] = []  # one entry at least for each that is due; older ones are passed
        self._numbers = 0

    def __len__(self) -> int:
        return len(self._members)

    def add(self, key: _K, now: float) -> None:
        """Sweep this one too, from the next round on."""
        self._members[key] = _Member(math.inf)
        self._expect(key, now + ROUND_SECONDS)

    def remove(self, key: _K) -> None:
        """Sweep it no more."""
        self._members.pop(key, None)
        if not self._members:
            self._heap.clear()

    def changed(self, key: _K, now: float) -> bool:
        """Look at it soon. Return whether that is sooner than was known."""
        member = self._members.get(key)
        if member is None or member.has_changed:
            return False
        member.has_changed = True
        if member.due <= now + ROUND_SECONDS:
            return False
        self._expect(key, now + ROUND_SECONDS)
        return True

    def looked(self, key: _K, now: float, wanted: float | None) -> None:
        """Take note that it was looked at. `wanted`: it has to be looked at again in so many seconds, or sooner."""
        member = self._members.get(key)
        if member is None:
            return
        due = now + member.pause
        if member.pause >= 2 * TOGETHER_SECONDS:
            due = math.ceil(due / TOGETHER_SECONDS) * TOGETHER_SECONDS
        if wanted is not None:
            due = min(due, now + max(wanted, 0.0))
        if member.has_changed:  # during the look, or by it
            due = min(due, now + ROUND_SECONDS)
        self._expect(key, due)

    def wake_at(self) -> float | None:
        """Return when the next member is due. None: there is none."""
        while self._heap:
            due, _, key = self._heap[0]
            member = self._members.get(key)
            if member is not None and member.due == due:
                return due
            heapq.heappop(self._heap)
        return None

    def take(self, now: float, at_most: int) -> list[_K]:
        """Return members that are due. Each is looked at by the caller, who then says so."""
        taken: list[_K] = []
        while len(taken) < at_most and (due := self.wake_at()) is not None and due <= now:
            key = heapq.heappop(self._heap)[2]
            member = self._members[key]
            member.pause = ROUND_SECONDS if member.has_changed else min(2 * member.pause, LONGEST_PAUSE)
            member.has_changed = False
            member.due = math.inf
            taken.append(key)
        return taken

    def broken_invariants(self, now: float) -> Iterator[str]:
        """Say in words what contradicts the top of this file. To be called when none is being looked at."""
        for key, member in self._members.items():
            if member.due > now + LONGEST_PAUSE + TOGETHER_SECONDS:
                yield f"{key} is looked at in {member.due - now} s only"
            if member.has_changed and member.due > now + ROUND_SECONDS:
                yield f"{key} has changed, and is looked at in {member.due - now} s only"

    def _expect(self, key: _K, due: float) -> None:
        self._members[key].due = due
        self._numbers += 1
        heapq.heappush(self._heap, (due, self._numbers, key))
