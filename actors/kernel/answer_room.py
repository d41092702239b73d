"""The count of bytes of answers that a process holds: being read, or written and not taken yet (rule 31).

What must stay true:
- Before anything large is read for an answer there is room for it, on its stream and in the process. Until then a
  client's request costs nothing, however long it waits.
- One answer alone may be larger than the bound of its stream. Small answers are not counted.
- Bytes that have left this process are not counted. How many have left is looked up only when the bound is met.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from raylog.actors.kernel.stream_interface import Stream
from raylog.config import KIB, MIB
from raylog.errors import StreamNotOpen, TooManyBytesInFlight

COUNTED_BYTES: Final = 64 * KIB  # smaller answers are not counted
STREAM_BYTES: Final = 64 * MIB
PROCESS_BYTES: Final = 256 * MIB
_LOOK_SECONDS: Final = 0.01  # between two looks at all streams


class AnswerRoom:
    """The count of one process."""

    def __init__(self, stream_bytes: int = STREAM_BYTES, process_bytes: int = PROCESS_BYTES) -> None:
        self._stream_bytes = stream_bytes
        self._process_bytes = process_bytes
        self._unsent: dict[Stream, int] = {}  # as of the last look
        self._read_for: dict[Stream, int] = {}
        self._queued: dict[Stream, deque[asyncio.Future[None]]] = {}
        self._total = 0
        self._looked_at = 0.0

    @property
    def held(self) -> int:
        """Return how many bytes are held, as of the last look at each stream."""
        return self._total

    def check(self, size: int) -> None:
        """Raise TooManyBytesInFlight where this process has no room for so many more bytes."""
        if self._total + size > self._process_bytes:
            self._look()
            if self._total + size > self._process_bytes and self._total:
                raise TooManyBytesInFlight(size, self._total, self._process_bytes)

    def answered(self, asker: Stream) -> None:
        """Note that an answer that counts was written to this stream."""
        self._note(asker, asker.bytes_unsent)

    def ended(self, asker: Stream) -> None:
        """Note that this stream has ended."""
        self._note(asker, 0)
        self._queued.pop(asker, None)

    @asynccontextmanager
    async def reading(self, asker: Stream, size: int) -> AsyncIterator[None]:
        """Hold room while so much is read for an answer. Waits until the asker reads, and has room.

        StreamNotOpen: its stream has ended. TooManyBytesInFlight.
        """
        while True:
            await until_it_reads(asker)
            if not self._is_full(asker, size):
                break
            await self._until_something_is_read(asker)
        self.check(size)
        self._read_for[asker] = self._read_for.get(asker, 0) + size
        self._total += size
        self._wake_next(asker)
        try:
            yield
        finally:
            self._total -= size
            left = self._read_for[asker] - size
            if left:
                self._read_for[asker] = left
            else:
                del self._read_for[asker]
            self._wake_next(asker)

    def _is_full(self, asker: Stream, size: int) -> bool:
        reading = self._read_for.get(asker, 0)
        return reading > 0 and reading + size > self._stream_bytes

    async def _until_something_is_read(self, asker: Stream) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queued.setdefault(asker, deque()).append(turn)
        await asyncio.wait([turn, asker.closed], return_when=asyncio.FIRST_COMPLETED)
        _check_open(asker)

    def _wake_next(self, asker: Stream) -> None:
        """Wake the next answer of this stream. It looks for room itself, and wakes the one after it."""
        queued = self._queued.get(asker)
        if queued:
            _wake(queued.popleft())
        if not queued:
            self._queued.pop(asker, None)

    def _note(self, asker: Stream, unsent: int) -> None:
        self._total += unsent - self._unsent.pop(asker, 0)
        if unsent:
            self._unsent[asker] = unsent

    def _look(self) -> None:
        """Count anew what the streams have not sent, unless that was done a moment ago."""
        now = asyncio.get_running_loop().time()
        if now >= self._looked_at + _LOOK_SECONDS:
            self._looked_at = now
            for asker in list(self._unsent):
                self._note(asker, 0 if asker.closed.done() else asker.bytes_unsent)


async def until_it_reads(asker: Stream) -> None:
    """Return once the other side reads its answers, which is mostly at once. StreamNotOpen: it has ended."""
    while asker.is_congested:
        _check_open(asker)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asker.when_it_reads(partial(_wake, turn))
        await asyncio.wait([turn, asker.closed], return_when=asyncio.FIRST_COMPLETED)
    _check_open(asker)


def _check_open(asker: Stream) -> None:
    if asker.closed.done():
        raise StreamNotOpen(asker.peer, "it ended before it was answered")


def _wake(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)
