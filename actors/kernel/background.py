"""Work that a process leaves to its event loop: timers, watches for silence, and tasks beside its answers.

The timers are a hierarchical timing wheel, turned by the event loop.

Setting and cancelling a timer takes O(1), however many there are. The wheel holds the timers that come with each
request, member, transaction or watched process. There may be thousands, and nearly all are cancelled before their time:
appends and fetches that wait, held heartbeats, commits, sessions of members, deadlines of transactions, leases. For all
of them the loop holds one timer, for the moment when the wheel has to move next.

Timers of which there are few are not on the wheel, where they would cost one step more:
- of a stream: the limits of admission and of a frame, and one timer for the time-outs of all its requests, which costs
  nothing for a request that is answered in time (`stream_requests.py`);
- of a task: its pause until the next round, and the time-out of the one answer that it waits for (`asyncio.sleep`,
  `asyncio.wait`); of a coordinator's log, its next claim;
- of a client: one for each partition of a producer and each member of a group (`api/`).

The wheel reads no clock: time is a number of milliseconds that its owner passes in. Level 0 has a slot for each of the
next 64 ms, level 1 a slot for each of the next 64 times 64 ms, and so on. A timer waits in the level that its distance
fits, and moves down as its time comes near, at most once a level. A bit mask a level says which slots are in use, so
that empty slots are skipped.

What must stay true: a timer in a slot of level n is due at least one and at most 64 slots of that level from now. So
the slot that `now` lies in is empty, and a timer found there is a full turn away. Where slots of several levels begin
at the same time, all of them are emptied then; a timer left in one would wait for a full turn.

`SilenceWatch` finds out what has been silent for too long (rule 29). A broker watches its replicas with it, the
controller the leases of brokers. A sign of life costs one dictionary look-up and no timer. Each watched key has one
timer. When that goes off, it looks when the last sign came, and either waits for the rest of the time or reports the
key as silent.

What must stay true: no key counts as silent because the watcher itself did not run. A watcher that was stopped or busy
wakes with all timers over and all signs unread. So after a timer that goes off late there is time for two more signs.

`BackgroundTasks` holds on to the tasks that a core runs beside its answers, so that none of them fails unheard. An
error that is not expected is the end of the core: it has done part of something, and what it holds may be wrong. The
core's owner ends the process, and a new one begins from what is durable.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Hashable
from functools import partial
from operator import attrgetter
from typing import Any, Final, Generic, TypeAlias, TypeVar

_T = TypeVar("_T")

_BITS: Final = 6
_SLOTS: Final = 1 << _BITS
_MASK: Final = _SLOTS - 1
_ALL: Final = (1 << _SLOTS) - 1
HEARTBEAT_SECONDS: Final = 0.3
SILENCE_SECONDS: Final = 1.5
_LATE_SECONDS: Final = 0.3
_GRACE_SECONDS: Final = 2 * HEARTBEAT_SECONDS

_K = TypeVar("_K", bound=Hashable)


class Timer(Generic[_T]):
    """One timer that was set. It is what `cancel` takes."""

    __slots__ = ("_number", "action", "deadline_ms", "slot")

    def __init__(self, deadline_ms: int, action: _T, number: int) -> None:
        self.deadline_ms = deadline_ms
        self.action = action
        self._number = number
        self.slot: dict[int, Timer[_T]] | None = None


class _Level(Generic[_T]):
    """64 slots. A slot is a dictionary by timer number: it keeps their order, and removes one in O(1)."""

    def __init__(self) -> None:
        self.slots: list[dict[int, Timer[_T]]] = [{} for _ in range(_SLOTS)]
        self.used = 0  # one bit a slot; a slot that was emptied by cancelling may still have its bit

    def distance(self, now: int) -> int:
        """Return how many slots after that of `now` the next used one comes, 1 to 64; 0: there is none."""
        if not self.used:
            return 0
        turn = (now & _MASK) + 1
        ahead = ((self.used >> turn) | (self.used << (_SLOTS - turn))) & _ALL
        return (ahead & -ahead).bit_length()


class TimingWheel(Generic[_T]):
    """Timers with an action each. The owner says what an action is."""

    def __init__(self, now_ms: int = 0) -> None:
        self.now_ms = now_ms
        self._levels: list[_Level[_T]] = [_Level()]
        self._due: dict[int, Timer[_T]] = {}
        self._count = 0
        self._numbers = 0

    def __len__(self) -> int:
        """Return how many timers are set and have not gone off."""
        return self._count

    def set(self, deadline_ms: int, action: _T) -> Timer[_T]:
        """Let `action` go off at `deadline_ms`. One whose deadline is over goes off at the next `advance`."""
        self._numbers += 1
        timer = Timer(deadline_ms, action, self._numbers)
        self._count += 1
        self._place(timer)
        return timer

    def cancel(self, timer: Timer[_T]) -> bool:
        """Cancel a timer. Return whether it had not gone off, and now will not."""
        if timer.slot is None:
            return False
        del timer.slot[timer._number]
        timer.slot = None
        self._count -= 1
        return True

    def advance(self, now_ms: int) -> list[_T]:
        """Move on to `now_ms`. Return the actions that go off, by deadline and then in the order of setting.

        A time that lies before the last one changes nothing.
        """
        gone_off = list(self._due.values())
        self._due.clear()
        while (begins := self._next_beginning()) is not None and begins <= now_ms:
            self.now_ms = begins
            for number in reversed(range(len(self._levels))):
                if begins & ((1 << number * _BITS) - 1) == 0:
                    for timer in self._take_slot(number).values():
                        self._place(timer)
            gone_off += self._due.values()
            self._due.clear()
        self.now_ms = max(self.now_ms, now_ms)
        for timer in gone_off:
            timer.slot = None
        self._count -= len(gone_off)
        gone_off.sort(key=attrgetter("deadline_ms", "_number"))
        return [timer.action for timer in gone_off]

    def wake_at(self) -> int | None:
        """Return when to call `advance` next: at the first deadline, or a little before. None: there is no timer."""
        if self._due:
            return self.now_ms
        return self._next_beginning()

    def _place(self, timer: Timer[_T]) -> None:
        distance = timer.deadline_ms - self.now_ms
        if distance <= 0:
            slot = self._due
        else:
            number = (distance.bit_length() - 1) // _BITS
            while number >= len(self._levels):
                self._levels.append(_Level())
            index = (timer.deadline_ms >> (number * _BITS)) & _MASK
            level = self._levels[number]
            level.used |= 1 << index
            slot = level.slots[index]
        slot[timer._number] = timer
        timer.slot = slot

    def _next_beginning(self) -> int | None:
        """Return when the next used slot of any level begins."""
        earliest: int | None = None
        for number, level in enumerate(self._levels):
            shift = number * _BITS
            now = self.now_ms >> shift
            while distance := level.distance(now):
                index = (now + distance) & _MASK
                if level.slots[index]:
                    begins = (now + distance) << shift
                    if earliest is None or begins < earliest:
                        earliest = begins
                    break
                level.used &= ~(1 << index)
        return earliest

    def _take_slot(self, number: int) -> dict[int, Timer[_T]]:
        """Empty the slot of `now` in this level, and return what was in it."""
        level = self._levels[number]
        index = (self.now_ms >> (number * _BITS)) & _MASK
        slot, level.slots[index] = level.slots[index], {}
        level.used &= ~(1 << index)
        return slot


Callback: TypeAlias = Callable[[], None]
TimerHandle: TypeAlias = Timer[Callback]


class Timers:
    """Callbacks at given times. One for each event loop is enough."""

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
        # A new timer does not need the wheel to move before its deadline; an earlier wake-up sets the next one itself.
        if self._wake is None or timer.deadline_ms < self._wake_ms:
            self._wake_for(timer.deadline_ms)
        return timer

    def cancel(self, timer: TimerHandle) -> bool:
        """Cancel a timer. Return whether it had not gone off. One that went off in this very turn is still called."""
        return self._wheel.cancel(timer)

    def close(self) -> None:
        """Drop all timers."""
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
        """Run callbacks that are due, each as a call of the loop of its own: one that raises stops no other."""
        self._wake = None
        for callback in self._wheel.advance(max(self._now_ms(), self._wake_ms)):
            self._loop.call_soon(callback)
        if (next_ms := self._wheel.wake_at()) is not None:
            self._wake_for(next_ms)


class _Watched:
    """One watched period of one key."""

    __slots__ = ("heard_at", "looked_for_at", "timer")

    timer: TimerHandle

    def __init__(self, heard_at: float, looked_for_at: float) -> None:
        self.heard_at = heard_at
        self.looked_for_at = looked_for_at


class SilenceWatch(Generic[_K]):
    """Calls `on_silent` once for each key that was silent for `seconds`, and watches it no more."""

    def __init__(self, timers: Timers, on_silent: Callable[[_K], None], seconds: float = SILENCE_SECONDS) -> None:
        self._timers = timers
        self._on_silent = on_silent
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._watched: dict[_K, _Watched] = {}

    def __contains__(self, key: _K) -> bool:
        return key in self._watched

    def watch(self, key: _K) -> None:
        """Watch this key for a full period from now on."""
        self.forget(key)
        self._look_after(key, self._loop.time(), self._seconds)

    def heard(self, key: _K) -> None:
        """Note a sign of life. It does nothing for a key that is not watched."""
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


class BackgroundTasks:
    """Tasks of one core. `on_error` is called with the error of a task that failed."""

    def __init__(self, on_error: Callable[[BaseException], None]) -> None:
        self._on_error = on_error
        self._tasks: dict[asyncio.Task[Any], None] = {}  # a dictionary keeps their order, a set would not
        self._is_closed = False

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        if self._is_closed:
            work.close()
            return
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    async def close(self, timeout: float = 1.0) -> None:
        """Cancel all tasks, and wait so long for them to end."""
        self._is_closed = True
        others = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=timeout)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_error(error)
