"""The requests of one Kafka client, cut out of the bytes that arrive: a length of four bytes, then so many.

What must stay true:
- No memory is set aside for a request before its length has been checked, and what is set aside is not touched before
  bytes come: a client that only says how much it will send costs addresses, not memory.
- A connection without a request midway holds no memory: all connections of a process read into one buffer, and the
  beginning of a request that is left in it moves into memory of its own.
- A request is the taker's own, writable, and its bytes are copied at most once.
"""

from __future__ import annotations

import struct
from typing import Final

from raylog.actors.machine.kept_memory import raw_memory
from raylog.errors import MalformedRequest

MOST_REQUEST_BYTES: Final = 100 * 1024 * 1024  # Kafka's socket.request.max.bytes
MOST_BEFORE_ADMISSION: Final = 64 * 1024  # before a client has said who it is
_LENGTH: Final = struct.Struct(">i")
_NOTHING: Final = memoryview(bytearray())


class RequestFrames:
    """The receiving half of one connection. `shared` is the buffer that all connections of this loop read into."""

    def __init__(self, shared: memoryview, most_bytes: int = MOST_REQUEST_BYTES) -> None:
        self.most_bytes = most_bytes
        self._shared = shared
        self._length_so_far = b""  # fewer than four bytes of it
        self._request = bytearray()
        self._rest = _NOTHING  # of the request that is midway: what is still to come

    @property
    def bytes_held(self) -> int:
        """Bytes of the request that is midway, as it says of itself."""
        return len(self._request)

    def get_buffer(self, most_bytes: int | None = None) -> memoryview:
        """Return the memory for the next bytes, at most so many where no request is midway.

        `received` has to be called before another connection asks.
        """
        if self._request:
            return self._rest
        begin = len(self._length_so_far)
        self._shared[:begin] = self._length_so_far
        return self._shared[begin:] if most_bytes is None else self._shared[begin : begin + most_bytes]

    def received(self, count: int) -> list[bytearray]:
        """Return the requests that are whole, after so many bytes were read into that memory. MalformedRequest."""
        if self._request:
            self._rest = self._rest[count:]
            if self._rest:
                return []
            whole, self._request = self._request, bytearray()
            return [whole]
        return self._cut(self._shared[: len(self._length_so_far) + count])

    def _cut(self, arrived: memoryview) -> list[bytearray]:
        requests: list[bytearray] = []
        position = 0
        while len(arrived) - position >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(arrived, position)
            self._check(length)
            begin = position + _LENGTH.size
            position = begin + length
            if position > len(arrived):
                self._length_so_far = b""
                self._begin(length, arrived[begin:])
                return requests
            requests.append(bytearray(arrived[begin:position]))
        self._length_so_far = bytes(arrived[position:])
        return requests

    def _check(self, length: int) -> None:
        if not 0 < length <= self.most_bytes:
            raise MalformedRequest("request", 0, f"it declares {length} bytes where {self.most_bytes} are allowed")

    def _begin(self, length: int, arrived: memoryview) -> None:
        self._request = raw_memory(length)
        whole = memoryview(self._request)
        whole[: len(arrived)] = arrived
        self._rest = whole[len(arrived) :]
