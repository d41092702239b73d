"""The order of events over all processes of a simulated world, in whole microseconds.

    scheduler = Scheduler(Random(seed))
    scheduler.after(2_000_000, loop.pause)
    scheduler.run(until=5_000_000)

What must stay true:
- The same seed and the same calls give the same run: events of one time happen in the order in which they were made.
- Python's cyclic garbage collector runs at fixed numbers of events only, for what it finds may have `finally` blocks.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from random import Random
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tests.simulator.world.delays import Delays, Rarely

if TYPE_CHECKING:
    from tests.simulator.world.virtual_loop import VirtualHandle, VirtualLoop

MICROSECONDS: Final = 1_000_000
FINGERPRINT_FACTOR: Final = 1_000_003
FINGERPRINT_MASK: Final = (1 << 61) - 1
_GC_EVENTS: Final = 50_000
_FULL_GC_ROUNDS: Final = 16
_MANY_CANCELLED: Final = 512


class TooManyEvents(RuntimeError):
    """The world makes events without end."""


class Event:
    """A call that the world makes, outside of any process."""

    __slots__ = ("_scheduler", "args", "callback")

    def __init__(self, scheduler: Scheduler, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._scheduler = scheduler
        self.callback: Callable[..., object] | None = callback
        self.args = args

    def cancel(self) -> None:
        if self.callback is not None:
            self.callback = None
            self.args = ()
            self._scheduler.count_cancelled()


_Entry: TypeAlias = "tuple[int, int, VirtualLoop | None, VirtualHandle | Event | None]"


class Scheduler:
    """The order of events over all processes. `now` is in microseconds."""

    NEVER: Final = 1 << 60

    def __init__(self, random: Random) -> None:
        self.now = 0
        self.events = 0  # callbacks that have run, of processes and of the world
        self.fingerprint = 0
        self.is_stopping = False  # `run` returns after the present event
        self.turn_cost = _turn_costs(random).draw  # microseconds
        self._heap: list[_Entry] = []
        self._serial = 0
        self._cancelled = 0
        self.is_in_turn = False  # of any loop
        self._gc_rounds = 0
        self._next_gc = _GC_EVENTS

    @property
    def pending(self) -> int:
        """Return how many events are still to come, with cancelled timers that were not removed yet."""
        return len(self._heap)

    def next_serial(self) -> int:
        self._serial += 1
        return self._serial

    def at(self, when: int, callback: Callable[..., object], *args: Any) -> Event:
        """Call at that time, or at once if it is over."""
        event = Event(self, callback, args)
        self.push(when, None, event)
        return event

    def after(self, delay: int, callback: Callable[..., object], *args: Any) -> Event:
        return self.at(self.now + delay, callback, *args)

    def push(self, when: int, loop: VirtualLoop | None, handle: VirtualHandle | Event | None) -> None:
        self._serial += 1
        heappush(self._heap, (when if when > self.now else self.now, self._serial, loop, handle))

    def count_cancelled(self) -> None:
        """One more entry of the heap is void. They are thrown out before they are the larger part."""
        self._cancelled += 1
        if self._cancelled > _MANY_CANCELLED and self._cancelled * 2 > len(self._heap):
            self._heap[:] = [entry for entry in self._heap if entry[3] is None or entry[3].callback is not None]
            heapify(self._heap)
            self._cancelled = 0

    def count_found(self) -> None:
        """A void entry has left the heap by itself."""
        self._cancelled -= 1

    def run(self, until: int, is_enough: Callable[[], bool] | None = None, max_events: int | None = None) -> bool:
        """Let things happen up to and including that time. True: `is_enough` held, asked after each event."""
        last = None if max_events is None else self.events + max_events
        had_gc = gc.isenabled()
        gc.disable()
        heap = self._heap
        try:
            while heap and heap[0][0] <= until and not self.is_stopping:
                self.now, _, loop, handle = heappop(heap)
                if loop is not None:
                    loop.happen(handle)  # type: ignore[arg-type]  # a loop's entries hold its own handles
                else:
                    self._call(handle)  # type: ignore[arg-type]  # and the world's hold its own
                if is_enough is not None and is_enough():
                    return True
                if self.events >= self._next_gc:
                    self._collect_garbage()
                if last is not None and self.events > last:
                    raise TooManyEvents(f"More than {max_events} events by {self.now / MICROSECONDS:.6f} s.")
        finally:
            if had_gc:
                gc.enable()
        if not self.is_stopping and until < self.NEVER and (heap or is_enough is None):
            self.now = max(self.now, until)
        return False

    def _call(self, event: Event) -> None:
        callback, args = event.callback, event.args
        if callback is None:
            self.count_found()
            return
        event.callback = None  # so that cancelling it later counts nothing
        self.events += 1
        self.fingerprint = (self.fingerprint * FINGERPRINT_FACTOR + self.now) & FINGERPRINT_MASK
        callback(*args)

    def _collect_garbage(self) -> None:
        self._gc_rounds += 1
        self._next_gc += _GC_EVENTS
        gc.collect(2 if self._gc_rounds % _FULL_GC_ROUNDS == 0 else 1)

    def clear(self) -> None:
        self._heap.clear()


def _turn_costs(random: Random) -> Delays:
    """Mostly a few; sometimes a handler that takes long, a garbage run, a process that has to wait for its turn."""
    slow, stalled = random.choice(((0.01, 0.0005), (0.05, 0.001), (0.002, 0.0)))
    return Delays(random, 1, 30, Rarely(slow, 30, 1_000), Rarely(stalled, 1_000, 30_000))
