"""How much a producer may hold that is not delivered yet: `buffer_memory`, given out and taken back (rule 31).

What must stay true: what is given out never exceeds the limit; whoever waits is told of every return; nobody waits
longer than it said. One record, or one batch of a bulk send, is never larger than the whole
(`producer_options.py`), so room for it comes once what is under way has been delivered or has failed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Final

_SLICE_SECONDS: Final = 0.2  # a signal that comes just before a thread goes to sleep does not wake it up


class BufferRoom:
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.waiting = 0  # how many wait for room; the sender then sends what it would let grow
        self._free = limit
        self._returned = threading.Condition()
        self._on_return: list[Callable[[], object]] = []

    @property
    def free(self) -> int:
        return self._free

    def take(self, size: int, wanted: int = 0) -> int:
        """`wanted` bytes, or `size` of them where that is all there is; 0: there is not so much."""
        with self._returned:
            granted = max(size, wanted) if self._free >= max(size, wanted) else size
            if granted > self._free:
                return 0
            self._free -= granted
            return granted

    def give_back(self, size: int) -> None:
        if size:
            with self._returned:
                self._free += size
                if self.waiting:
                    self._returned.notify_all()
                listeners, self._on_return = self._on_return, []
            for listener in listeners:
                listener()

    def wait(self, size: int, until: float) -> bool:
        """Until so much is free, or the monotonic clock says `until`; whether it is."""
        with self._returned:
            self.waiting += 1
            try:
                while self._free < size:
                    left = until - monotonic()
                    if left <= 0:
                        return False
                    self._returned.wait(min(left, _SLICE_SECONDS))
                return True
            finally:
                self.waiting -= 1

    @contextmanager
    def wanted(self) -> Iterator[None]:
        """Somebody waits who cannot block; open batches are sent for it as for others."""
        with self._returned:
            self.waiting += 1
        try:
            yield
        finally:
            with self._returned:
                self.waiting -= 1

    def when_returned(self, listener: Callable[[], object]) -> None:
        """Call it once when something is given back next; for those that cannot block."""
        with self._returned:
            self._on_return.append(listener)
