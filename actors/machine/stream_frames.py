"""The frames of one stream: read out of the bytes that arrive, in whatever pieces, and written onto the transport.

Reading: the stream asks for a buffer, reads into it, says how much came, and takes the frames that are whole. Small
frames are read many at a time into one receive buffer. When a frame's header says that more than a little of it is
still to come, its body gets memory of its own, and the rest is read straight into that.

Writing: the first frame in a turn of the event loop is sent at once, since the peer may wait for it. What follows in
the same turn is sent together, and so are the answers to a burst of requests. Only small payloads are ever copied.
While the kernel takes no more, large frames wait here, and small ones overtake them: many partitions share a stream,
and a flood of one of them must not hold up the others (rule 35).

What must stay true: requests of one partition, and those of none, go out in the order in which they were written. An
answer may overtake whatever is large.

Also: the bytes of a payload that arrives are copied at most once between socket and taker, and the payload is the
taker's own, writable, so that a leader stamps its batches in place. `message` of a frame lies in memory that the next
read overwrites: it has to be unpacked before. No memory is set aside for a frame before its header has passed every
check of `read_header`. That memory is not cleared, and nobody sees it before it has been filled.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from raylog.actors.machine.kept_memory import raw_memory
from raylog.actors.protocol import messages
from raylog.actors.protocol.messages import (
    HEADER_BYTES,
    LENGTH_BYTES,
    MAX_MESSAGE_BYTES,
    NO_PARTITION,
    NO_TOPIC,
    Frame,
    FrameHeader,
    Message,
    check_outgoing,
    encode_header,
    lane_of,
    read_header,
)
from raylog.config import KIB, MIB
from raylog.storage.format.record_batch import Bytes

# Less than this still missing: it is waited for in the receive buffer, where the next frames come along with it.
_WORTH_OWN_MEMORY: Final = 4096
# After a large frame the next is probably large too: read little more than its header, so that the rest goes straight
# into its own memory. Measured at 1 MiB: over TCP a tenth to a quarter more, over unix sockets the same.
_AFTER_LARGE: Final = 4096
_JOIN_BYTES: Final = 4 * KIB  # a payload up to here is copied into one piece with its header: three pieces cost more
_FLUSH_BYTES: Final = 128 * KIB  # collected so much: no reason to wait for the end of the turn
LARGE_BYTES: Final = 128 * KIB  # a payload from here on is overtaken by small frames
BLOCKED_BYTES: Final = 64 * KIB  # so much in the transport that the kernel has not taken: large frames wait
CONGESTED_BYTES: Final = 4 * MIB  # unsent: the other side does not read
_FREE_BYTES: Final = MIB


class FrameReader:
    """The receiving half of one stream."""

    def __init__(self, max_frame_bytes: int, buffer_bytes: int) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._buffer = memoryview(bytearray(buffer_bytes))
        self._buffer_bytes = buffer_bytes
        self._start = 0  # of the bytes in the receive buffer that no frame has taken
        self._end = 0
        self._window = buffer_bytes  # how much of the receive buffer the next read may fill
        self._header: FrameHeader | None = None  # of the frame that has memory of its own
        self._body = memoryview(bytearray())
        self._filled = 0
        self.is_midway = False  # bytes have arrived that no frame has taken
        self.bytes_received = 0

    def widen(self, max_frame_bytes: int, buffer_bytes: int) -> None:
        """Take larger frames from now on, since the peer has been admitted. To be called between two frames only."""
        rest = self._buffer[self._start : self._end]
        self._buffer_bytes = max(buffer_bytes, len(rest))
        self._buffer = memoryview(bytearray(self._buffer_bytes))
        self._buffer[: len(rest)] = rest
        self._start, self._end = 0, len(rest)
        self._window = self._buffer_bytes
        self.max_frame_bytes = max_frame_bytes

    def get_buffer(self, sizehint: int = -1) -> memoryview:  # noqa: ARG002 (the loop's guess; this knows better)
        """Return the memory for the next bytes. It is never empty once `next_frame` has returned None."""
        if self._header is not None:
            return self._body[self._filled :]
        return self._buffer[self._end : self._end + self._window]

    def received(self, count: int) -> None:
        """Note that so many bytes have been read into the memory of `get_buffer`."""
        self.is_midway = True
        self.bytes_received += count
        if self._header is not None:
            self._filled += count
        else:
            self._end += count

    def next_frame(self) -> Frame | None:
        """Return the next whole frame; None until more bytes have come. FrameInvalid: they are no frame."""
        if self._header is not None:
            return self._take_body(self._header) if self._filled == len(self._body) else None
        start = self._start
        have = self._end - start
        if have < HEADER_BYTES:
            self._make_room(HEADER_BYTES)
            return None
        header = read_header(self._buffer, start, self.max_frame_bytes)
        size = header[0] + LENGTH_BYTES
        if size > have:
            self._wait_for_rest(header, size, size - have)
            return None
        message_at = start + HEADER_BYTES
        payload_at = message_at + header[8]
        end = start + size
        if have > size:
            self._start = end
        else:
            self._start = self._end = 0
            self.is_midway = False
        self._window = self._buffer_bytes
        buffer = self._buffer
        return tuple.__new__(Frame, (header, buffer[message_at:payload_at], bytearray(buffer[payload_at:end])))

    def _wait_for_rest(self, header: FrameHeader, size: int, missing: int) -> None:
        if missing >= _WORTH_OWN_MEMORY or size > self._buffer_bytes:
            self._begin_body(header)
        else:
            self._make_room(size)

    def _make_room(self, size: int) -> None:
        """Make room for `size` bytes from `_start` on in the receive buffer."""
        if self._start + size > self._buffer_bytes:
            rest = self._end - self._start
            self._buffer[:rest] = self._buffer[self._start : self._end]
            self._start, self._end = 0, rest

    def _begin_body(self, header: FrameHeader) -> None:
        arrived = self._buffer[self._start + HEADER_BYTES : self._end]
        self._header = header
        self._body = memoryview(raw_memory(header.body_length))
        self._body[: len(arrived)] = arrived
        self._filled = len(arrived)
        self._start = self._end = 0

    def _take_body(self, header: FrameHeader) -> Frame:
        body = self._body
        self._header = None
        self.is_midway = False
        self._body = memoryview(bytearray())
        if header.size > len(self._buffer):
            self._window = _AFTER_LARGE
        return Frame(header, body[: header.message_length], body[header.message_length :])


class OutgoingFrames:
    """Writes nothing before `start` and after `end`. `when_congested` hears when too much waits, and when no more."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        max_frame_bytes: int,
        when_congested: Callable[[bool], None] = lambda _: None,
    ) -> None:
        self.is_corked = False  # what is written now waits for what follows
        self.max_message_bytes = MAX_MESSAGE_BYTES
        self.max_frame_bytes = max_frame_bytes
        self._when_congested = when_congested
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self.waiting: list[Bytes] = []  # for the end of this turn
        self._bytes_waiting = 0
        self._is_blocked = False  # the kernel has not taken all that was written
        self._is_congested = False
        # Large frames, and what must not overtake them.
        self._held_back: deque[tuple[bytes | None, Sequence[Bytes]]] = deque()
        self._lanes: dict[bytes | None, int] = {}  # of those: how many each has
        self._bytes_held_back = 0

    def start(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def end(self) -> None:
        """Drop what waits, and all that is written from now on."""
        self._transport = None
        self.waiting.clear()
        self._bytes_waiting = 0
        self._held_back.clear()
        self._lanes.clear()
        self._bytes_held_back = 0

    @property
    def bytes_unsent(self) -> int:
        """Return how many bytes wait here and in the transport."""
        in_transport = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return self._bytes_waiting + self._bytes_held_back + in_transport

    def encode(
        self,
        message: Message,
        payload: Bytes,
        flags: int,
        correlation_id: int,
        topic_id: bytes = NO_TOPIC,
        partition: int = NO_PARTITION,
    ) -> tuple[list[Bytes], int]:
        """Return (the parts of the frame, its size). What cannot be sent fails here, before any byte is written."""
        kind, version, packed = messages.pack(message)
        if type(payload) is memoryview:
            payload = payload.cast("B")
        message_length, payload_length = len(packed), len(payload)
        size = HEADER_BYTES + message_length + payload_length
        if size > self.max_frame_bytes or message_length > self.max_message_bytes:
            check_outgoing(message_length, payload_length, self.max_frame_bytes, self.max_message_bytes)
        header = encode_header(
            kind, version, flags, correlation_id, message_length, payload_length, topic_id, partition
        )
        if payload_length > _JOIN_BYTES:
            return [header, packed, payload], size
        return [b"".join((header, packed, payload))], size

    def write(self, parts: Sequence[Bytes]) -> None:
        """Write the parts of a frame: a small one at the latest when this turn of the loop ends."""
        if self._transport is None:
            return
        if (self._is_blocked or len(parts[-1]) >= LARGE_BYTES) and self._is_held_back(parts):
            return
        if not self.is_corked:
            self.is_corked = True
            self._loop.call_soon(self.uncork)
            self._transport.writelines(parts)
            return
        self.waiting += parts
        self._bytes_waiting += sum(map(len, parts))
        if self._bytes_waiting >= _FLUSH_BYTES:
            self._flush()

    def write_behind(self, parts: Sequence[Bytes]) -> None:
        """Write the parts of a small frame, behind all that was written before, also what is large."""
        if self._held_back:
            self._hold_back(None, parts)
        else:
            self.write(parts)

    def uncork(self) -> None:
        """Write what waits; the next frame goes out at once."""
        self.is_corked = False
        if self.waiting:
            self._flush()

    def write_all(self) -> None:
        """Write everything: the stream is about to be closed."""
        self.uncork()
        while self._held_back:
            self._write_next_large()

    # --- large frames ---

    def paused(self) -> None:
        """Note that the kernel has not taken all that was written."""
        self._is_blocked = True
        self._look_whether_congested()

    def resumed(self) -> None:
        """Note that the kernel has taken all. What waits for that goes out in the next turn, behind this write."""
        self._is_blocked = False
        self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        while self._held_back and not self._is_blocked:
            self._write_next_large()
        if self._is_congested and self.bytes_unsent <= _FREE_BYTES:
            self._is_congested = False
            self._when_congested(False)

    def _is_held_back(self, parts: Sequence[Bytes]) -> bool:
        """Hold back a large frame while there is no room for it, and whatever must not overtake one that waits."""
        lane = lane_of(parts[0])
        is_large = len(parts[-1]) >= LARGE_BYTES
        held_back = (is_large and self._is_blocked) or (lane in self._lanes and lane is not None)
        if held_back:
            self._hold_back(lane, parts)
        if self._is_blocked:
            self._look_whether_congested()
        return held_back

    def _hold_back(self, lane: bytes | None, parts: Sequence[Bytes]) -> None:
        self._held_back.append((lane, parts))
        self._lanes[lane] = self._lanes.get(lane, 0) + 1
        self._bytes_held_back += sum(map(len, parts))

    def _write_next_large(self) -> None:
        if self.waiting:  # it may be of the same partition
            self._flush()
        lane, parts = self._held_back.popleft()
        self._bytes_held_back -= sum(map(len, parts))
        left = self._lanes[lane] - 1
        if left:
            self._lanes[lane] = left
        else:
            del self._lanes[lane]
        if self._transport is not None:
            self._transport.writelines(parts)

    def _look_whether_congested(self) -> None:
        if not self._is_congested and self.bytes_unsent > CONGESTED_BYTES:
            self._is_congested = True
            self._when_congested(True)

    def _flush(self) -> None:
        waiting, self.waiting = self.waiting, []
        self._bytes_waiting = 0
        if self._transport is not None:
            self._transport.writelines(waiting)
