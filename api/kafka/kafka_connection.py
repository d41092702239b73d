"""One connection of a Kafka client: bytes to requests, requests to whoever serves them, and the answers back in order.

What must stay true:
- A client costs itself only. What is no request, or is not served in this version, ends its connection with one line in
  the log; so does a request that fails, because there is no answer to say it in. Many such clients do not fill the log.
- A client that does not take its answers is not asked for more: its requests wait, and then its socket is not read.
- What it holds counts in its account, and more is read or begun only where there is room (`connection_memory.py`).
- A client that has not said who it is, where it has to, sends few and small requests only, and not for long.
- A connection that is over serves nothing and writes nothing, and what is under way for it is cancelled.
- Produce and Fetch begin in the moment in which they arrive, and are answered in that in which they are served. What is
  served at once is answered in the next turn of the loop: a client that sends a thousand such requests has a turn for
  each, as with a task.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias, cast

from raylog.actors.kernel.prompt_call import PromptCall
from raylog.actors.kernel.rare_log import RareLog
from raylog.api.kafka.connection_memory import STALL_SECONDS, ConnectionMemory
from raylog.api.kafka.protocol.api_versions import has_flexible_header
from raylog.api.kafka.protocol.codecs import RequestHeader, read_request_header
from raylog.api.kafka.request_frames import MOST_BEFORE_ADMISSION, MOST_REQUEST_BYTES, RequestFrames
from raylog.api.kafka.rules.memory_budget import Account
from raylog.api.kafka.rules.request_order import DEFAULT_MOST_BYTES, RequestOrder, Turn
from raylog.errors import KafkaClientTooSlow, KafkaProtocolError, NotAuthenticated
from raylog.storage.format.record_batch import Bytes

_PRODUCE: Final = 0
_PROMPT: Final = frozenset({_PRODUCE, 1})  # Fetch
_ADMISSION_SECONDS: Final = 30.0
_READ_BEFORE_ADMISSION: Final = 1024  # at once: what is kept of tiny requests is forty times as much
_of_clients: Final = RareLog(logging.getLogger(__name__))

# A request with its frame: the message begins at `header.end`. The parts of the answer's frame; None if there is none.
Serve: TypeAlias = Callable[[RequestHeader, bytearray], Awaitable[Sequence[Bytes] | None]]
_Request: TypeAlias = tuple[RequestHeader, bytearray]


class KafkaConnection(asyncio.BufferedProtocol):
    """The protocol of one socket. `shared` is the buffer that all connections of this loop read into.

    `is_admitted`: whether the client has said who it is.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        shared: memoryview,
        serve: Serve,
        when_over: Callable[[KafkaConnection], None],
        account: Account,
        *,
        most_bytes: int = DEFAULT_MOST_BYTES,
        is_admitted: Callable[[], bool] = lambda: True,
    ) -> None:
        self._loop = loop
        self._serve = serve
        self._when_over = when_over
        self._is_admitted = is_admitted
        self._admission: asyncio.TimerHandle | None = None
        self._most_bytes = most_bytes
        self._frames = RequestFrames(shared, MOST_BEFORE_ADMISSION)
        self._order: RequestOrder[_Request] = RequestOrder(min(most_bytes, MOST_BEFORE_ADMISSION))
        if is_admitted():
            self._let_send_much()
        self._memory = ConnectionMemory(loop, account, self._go_on)
        self._under_way: dict[asyncio.Future[None], None] = {}  # an empty set is larger, and there are many
        self._transport: asyncio.Transport | None = None
        self._is_congested = False  # the client does not take what was written
        self._is_reading = True
        self._client_id: str | None = None
        self._used_at = loop.time()
        self._unsent = 0  # when it was last looked at
        self._moved = 0  # bytes that have come, and that were written

    def idle_seconds(self) -> float:
        """Return for how long nothing was under way here, and no byte came or went. To be called now and then.

        It makes no difference what else a client has begun: half a request, or answers that it does not take.
        """
        unsent = self._bytes_unsent
        if self._order.is_serving or unsent != self._unsent:
            self._used_at = self._loop.time()
        self._unsent = unsent
        return self._loop.time() - self._used_at

    @property
    def bytes_held(self) -> int:
        """Bytes of requests and answers that wait for something."""
        return self._order.bytes_held + self._frames.bytes_held + self._bytes_unsent

    @property
    def _bytes_unsent(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def look(self, *, somebody_waits: bool) -> None:
        """Count anew what is held; and end if its client keeps somebody waiting for memory, and hangs."""
        self._count()
        if not somebody_waits:
            self._memory.nobody_waits()
            return
        unsent = self._bytes_unsent
        waits = unsent + (self._frames.bytes_held if self._is_reading else 0)
        if self._memory.has_stalled(waits, self._moved - unsent):
            self.end(KafkaClientTooSlow(waits, round(1000 * STALL_SECONDS)))

    # --- what the event loop calls --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's do not derive from it
        if not self._is_admitted():
            self._admission = self._loop.call_later(_ADMISSION_SECONDS, self._end_stranger)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 (the loop's guess; the frames know better)
        most_read = self._memory.most_read if self._admission is None else _READ_BEFORE_ADMISSION
        return self._frames.get_buffer(most_read)

    def buffer_updated(self, nbytes: int) -> None:
        if self._transport is None:
            return
        self._used_at = self._loop.time()
        self._moved += nbytes
        try:
            for frame in self._frames.received(nbytes):
                self._take(frame)
        except KafkaProtocolError as error:
            self.end(error)
            return
        self._go_on()

    def pause_writing(self) -> None:
        self._is_congested = True
        self._read_or_not()

    def resume_writing(self) -> None:
        self._is_congested = False
        self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (why a client went is its own affair)
        self._finish()

    # --- requests and answers -------------------------------------------------------------------------------------

    def end(self, reason: Exception | None = None) -> None:
        """Close the connection at once; with a reason it is said in the log."""
        transport = self._transport
        if transport is None:
            return
        if reason is not None:
            peer = transport.get_extra_info("peername")
            _of_clients.warning("The connection of Kafka client %r at %s is closed: %s", self._client_id, peer, reason)
        transport.abort()
        self._finish()

    def _take(self, frame: bytearray) -> None:
        header = read_request_header(frame, has_flexible_header)
        self._client_id = header.client_id
        self._order.arrived((header, frame), len(frame), may_overlap=header.api_key == _PRODUCE)

    def _go_on(self) -> None:
        """Write the answers that may go out, begin the requests that may begin, and read on if there is room."""
        transport = self._transport
        if transport is None:
            return
        parts = self._order.take_answers()
        if parts:
            self._used_at = self._loop.time()
            self._moved += sum(map(len, parts))
            transport.writelines(parts)
        self._count()
        if not self._is_congested:
            for turn in self._order.begin(self._has_room):
                self._begin(turn)
        self._read_or_not()

    def _begin(self, turn: Turn[_Request]) -> None:
        header, _ = turn.request
        if header.api_key not in _PROMPT:
            task = self._loop.create_task(self._answer(turn))
            self._under_way[task] = None
            task.add_done_callback(self._done)
            return
        call = PromptCall(self._answer(turn), self._done)
        self._under_way[call] = None
        if call.done():
            self._loop.call_soon(self._done, call)

    def _has_room(self, turn: Turn[_Request]) -> bool:
        header, _ = turn.request
        return self._memory.may_begin(header.api_key)

    def _count(self) -> None:
        self._memory.count(self._order.bytes_held + self._bytes_unsent, self._frames.bytes_held)

    async def _answer(self, turn: Turn[_Request]) -> None:
        header, frame = turn.request
        self._order.answered(turn, await self._serve(header, frame))
        if self._admission is not None and self._is_admitted():
            self._admission.cancel()
            self._admission = None
            self._let_send_much()
        self._memory.is_answered()

    def _let_send_much(self) -> None:
        self._frames.most_bytes, self._order.most_bytes = MOST_REQUEST_BYTES, self._most_bytes

    def _done(self, work: asyncio.Future[None]) -> None:
        self._under_way.pop(work, None)
        if work.cancelled():
            return
        error = work.exception()
        if error is None:
            self._go_on()
        else:
            self.end(error if isinstance(error, Exception) else None)

    def _end_stranger(self) -> None:
        self.end(NotAuthenticated(f"it has had {_ADMISSION_SECONDS:g} s for that"))

    def _read_or_not(self) -> None:
        transport = self._transport
        is_full = self._is_congested or self._order.is_full
        reads = not is_full and self._memory.may_read(self._frames.bytes_held)
        if transport is not None and reads != self._is_reading:
            self._is_reading = reads
            if reads:
                transport.resume_reading()
            else:
                transport.pause_reading()

    def _finish(self) -> None:
        if self._transport is None:
            return
        self._transport = None
        if self._admission is not None:
            self._admission.cancel()
        for work in list(self._under_way):
            work.cancel()
        self._when_over(self)
