"""The reading of one stream's socket: when it pauses, and when a frame takes too long to come whole.

What must stay true:
- The socket is not read while handlers hold too much (rule 31), nor for a moment after a large frame (rule 35).
- A frame of which nothing more comes for `stall_seconds` ends the stream, unless it was not read here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from raylog.actors.machine.stream_frames import FrameReader
from raylog.errors import FrameInvalid


class SocketReading:
    """Begins with `start`, and does nothing after `end`. `stalled` takes the error that ends the stream."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        reader: FrameReader,
        stall_seconds: float,
        stalled: Callable[[FrameInvalid], None],
    ) -> None:
        self._loop = loop
        self._reader = reader
        self._stall_seconds = stall_seconds
        self._stalled = stalled
        self._transport: asyncio.Transport | None = None
        self._is_wanted = True
        self._rests = False  # for the rest of this turn of the loop
        self._stall_timer: asyncio.TimerHandle | None = None

    def start(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def end(self) -> None:
        self._transport = None
        if self._stall_timer is not None:
            self._stall_timer.cancel()

    def read_on(self, yes: bool) -> None:
        """Read from now on, or do not."""
        self._is_wanted = yes
        if self._transport is not None and not self._rests:
            (self._transport.resume_reading if yes else self._transport.pause_reading)()

    def rest(self) -> None:
        """Let other streams have their turn after something large, of which more may have come (rule 35)."""
        if self._is_wanted and not self._rests and self._transport is not None:
            self._rests = True
            self._transport.pause_reading()
            self._loop.call_soon(self._end_rest)

    def _end_rest(self) -> None:
        self._rests = False
        if self._is_wanted and self._transport is not None:
            self._transport.resume_reading()

    def watch_for_stall(self) -> None:
        """Look after a while whether the rest of a frame that has begun is there."""
        if self._stall_timer is None and self._transport is not None:
            received = self._reader.bytes_received
            self._stall_timer = self._loop.call_later(self._stall_seconds, self._check_stall, received)

    def _check_stall(self, received_then: int) -> None:
        self._stall_timer = None
        if not self._reader.is_midway or self._transport is None:
            return
        if self._reader.bytes_received == received_then and self._is_wanted:
            self._stalled(FrameInvalid(f"A frame began and then nothing more came for {self._stall_seconds:g} s."))
        else:
            self.watch_for_stall()
