"""Memory of records that are not delivered yet: `buffer_memory`, given out and taken back (rule 31).

What must stay true:
- What is given out never exceeds the limit.
- A waiting thread is told of every return, and none waits longer than it said. One record, or one batch of a bulk
  send, is never larger than the whole (`producer_options.py`), so room for it comes once what is under way has been
  delivered or has failed.
- What is given out is noted in its holder's `size` in the same step, so that an interrupt (Ctrl-C) loses none of it.

The lock is a plain one, held for a few steps. A `threading.Condition` would not do: an interrupt (Ctrl-C) while one
is entered may leave it locked for ever, since entering it is a function of Python. `with` of a plain lock is one
step.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Final, Protocol

_SLICE_SECONDS: Final = 0.2  # a Ctrl-C that comes just before a thread goes to sleep does not wake it up


class Holder(Protocol):
    """A batch. Its `size` is changed here only."""

    size: int


class BufferPool:
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._free = limit
        self._lock = threading.Lock()
        self._waiters: list[threading.Lock] = []  # locked until something is given back
        self._wanting: dict[object, None] = {}
        self._on_return: list[Callable[[], object]] = []

    @property
    def free(self) -> int:
        return self._free

    @property
    def waiting(self) -> int:
        """The number of those that wait for room; the sender then sends what it would let grow."""
        return len(self._waiters) + len(self._wanting)

    def take(self, holder: Holder, size: int, wanted: int = 0) -> int:
        """`wanted` bytes, or `size` of them where that is all there is; 0: there is not so much."""
        most = max(size, wanted)
        with self._lock:
            granted = most if self._free >= most else size
            if granted > self._free:
                return 0
            self._move(holder, granted)
            return granted

    def give_back(self, holder: Holder, size: int) -> None:
        if size:
            with self._lock:
                self._move(holder, -size)
                waiters, self._waiters = self._waiters, []
                listeners, self._on_return = self._on_return, []
            for waiter in waiters:
                waiter.release()
            for listener in listeners:
                listener()

    def _move(self, holder: Holder, size: int) -> None:
        free, held = self._free - size, holder.size + size
        try:
            self._free = free
            holder.size = held
        except BaseException:  # an interrupt before, between or behind the two
            self._free = free
            holder.size = held
            raise

    def wait(self, size: int, until: float) -> bool:
        """Wait until so much is free, or the monotonic clock says `until`. Returns whether it is free."""
        while True:
            waiter = threading.Lock()
            waiter.acquire()
            with self._lock:
                if self._free >= size:
                    return True
                self._waiters.append(waiter)
            try:
                left = until - monotonic()
                while left > 0 and self._free < size and not waiter.acquire(timeout=min(left, _SLICE_SECONDS)):
                    left = until - monotonic()
            finally:
                with self._lock:
                    if waiter in self._waiters:
                        self._waiters.remove(waiter)
            if left <= 0:
                return self._free >= size

    @contextmanager
    def wanted(self) -> Iterator[None]:
        """Count somebody who waits but cannot block; open batches are sent for it as for others."""
        token = object()
        self._wanting[token] = None
        try:
            yield
        finally:
            del self._wanting[token]

    def when_returned(self, listener: Callable[[], object]) -> None:
        """Call it once when something is given back next; for those that cannot block."""
        with self._lock:
            self._on_return.append(listener)
