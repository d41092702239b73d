"""One side of a stream: the protocol object between a transport of the event loop and requests and handlers.

    state      frames taken                               ends when
    ADMITTING  hello, challenge, proof, of ≤ 512 bytes    the peer has proved itself · time-out, anything else: CLOSED
    OPEN       requests, answers, one-way                 `close` · the connection ends
    CLOSING    answers; requests are refused              handlers are done, or out of time
    CLOSED     none                                       –

What must stay true:
- Nothing that a stranger sends reaches a handler (rule 30). After a malformed frame nothing more is read.
- However a stream ends, each of its requests ends, with what is known about the outcome (`stream_requests.py`).
- Memory has a bound in both directions (rule 31). Outgoing: requests in flight. Incoming: requests that handlers hold;
  past that the socket is not read. While the peer does not read its answers, none of its requests is begun. Answers to
  our own requests are still taken; otherwise two sides with unread answers would wait for each other for ever.
- No handler's error is lost: it goes back as the answer, or to the log where no answer is awaited.

`stream_frames.py` says when what is written goes out.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from enum import Enum
from typing import Final, cast

from raylog.actors.kernel.answer_room import COUNTED_BYTES, AnswerRoom
from raylog.actors.kernel.rare_log import RareLog
from raylog.actors.kernel.stream_interface import Answer, AnswerTaker, Handler, Request, Response
from raylog.actors.kernel.stream_requests import OVERHEAD_BYTES, AnswerCall, Reply, RequestsHeld, RequestsInFlight, fail
from raylog.actors.machine.admission import Acceptor, Admission, Dialer
from raylog.actors.machine.socket_reading import SocketReading
from raylog.actors.machine.stream_frames import BLOCKED_BYTES, CONGESTED_BYTES, LARGE_BYTES, FrameReader, OutgoingFrames
from raylog.actors.protocol import messages
from raylog.actors.protocol.cluster_secrets import Key, Standing
from raylog.actors.protocol.endpoint import StreamLimits
from raylog.actors.protocol.messages import (
    CLIENT_MESSAGE_BYTES,
    ERROR,
    LENGTH_BYTES,
    MAX_ADMISSION_FRAME_BYTES,
    NO_PARTITION,
    NO_TOPIC,
    ONE_WAY,
    REQUEST,
    RESPONSE,
    Done,
    DoorFull,
    Failure,
    Frame,
    GivenUp,
    Message,
    TakesFrames,
)
from raylog.actors.protocol.remote_errors import failure_of, remote_failed
from raylog.config import KIB, MIB
from raylog.errors import (
    FrameInvalid,
    MessageTooLarge,
    MessageUnknown,
    PeerNotAdmitted,
    PeerUnreachable,
    RaylogError,
    StreamClosed,
    StreamError,
    StreamNotOpen,
    TooManyBytesInFlight,
)
from raylog.storage.format.record_batch import Bytes

_RECEIVE_BUFFER_BYTES: Final = 128 * KIB

_log = logging.getLogger(__name__)
_of_strangers: Final = RareLog(_log)


class State(Enum):
    ADMITTING = 0
    OPEN = 1
    CLOSING = 2
    CLOSED = 3


class StreamConnection(asyncio.BufferedProtocol):
    """A `Stream`, once `admitted` is done."""

    def __init__(
        self,
        admission: Admission,
        handler: Handler,
        limits: StreamLimits,
        peer: str,
        on_admitted: Callable[[StreamConnection], None] | None = None,
        on_connected: Callable[[StreamConnection, str], None] | None = None,
        room: AnswerRoom | None = None,
    ) -> None:
        """`on_connected` takes the peer's address: empty at a unix socket. `room` counts its answers."""
        self._loop = asyncio.get_running_loop()
        self._admission = admission
        self._limits = limits
        self._on_admitted = on_admitted
        self._on_connected = on_connected
        self._room = room
        self._address = peer
        self.state = State.ADMITTING
        self.admitted: asyncio.Future[None] = self._loop.create_future()
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self._reason: Exception | None = None
        self._transport: asyncio.Transport | None = None
        self._reader = FrameReader(MAX_ADMISSION_FRAME_BYTES, MAX_ADMISSION_FRAME_BYTES)
        self.get_buffer = self._reader.get_buffer  # type: ignore[method-assign]  # the loop calls it for every read
        self._outgoing = OutgoingFrames(self._loop, limits.max_frame_bytes, self._congested)
        self._asked = RequestsInFlight(self._loop, limits.in_flight_bytes, self._outgoing.write, self._give_up)
        self._asked.peer = peer
        # From here on, for a TLS handshake that fails never gets as far as `connection_made`.
        late = PeerNotAdmitted(peer, f"it did not prove itself within {limits.admission_seconds:g} s")
        self._admission_timer = self._loop.call_later(limits.admission_seconds, self.abort, late)
        self._reading = SocketReading(self._loop, self._reader, limits.stall_seconds, self._break_off)
        self._held = RequestsHeld(handler, limits, self._answer, self._reading.read_on)
        self._has_said_limit = False  # of frames, to a client
        self._is_turned_away = False

    @property
    def peer(self) -> str:
        """See `Stream.peer`. Claims of a peer that is not admitted are not in it."""
        role = self._admission.peer_role if self._admission.is_admitted else ""
        return f"{role} at {self._address}" if role else self._address

    @property
    def is_internal(self) -> bool:
        """See `Stream.is_internal`."""
        return self._held.is_internal

    @property
    def is_congested(self) -> bool:
        """See `Stream.is_congested`."""
        return self._held.is_congested or self.bytes_unsent > CONGESTED_BYTES

    @property
    def bytes_unsent(self) -> int:
        """See `Stream.bytes_unsent`."""
        return self._outgoing.bytes_unsent

    def when_it_reads(self, call: Callable[[], None]) -> None:
        """See `Stream.when_it_reads`."""
        self._held.when_it_reads(call)

    @property
    def key(self) -> Key | None:
        """Return the key that both sides have proved to hold."""
        return self._admission.key

    @property
    def held_bytes(self) -> int:
        """Return how many bytes the requests hold that have arrived and are not answered."""
        return self._held.bytes_held

    @property
    def bytes_in_flight(self) -> int:
        """See `Stream.bytes_in_flight`."""
        return self._asked.bytes_in_flight

    # --- asking ---------------------------------------------------------------------------------------------------

    def request(
        self,
        message: Message,
        payload: Bytes = b"",
        *,
        topic_id: bytes = NO_TOPIC,
        partition: int = NO_PARTITION,
        timeout: float | None = None,
        wait: bool = True,
    ) -> Reply:
        """See `Stream.request`."""
        future: Reply = self._loop.create_future()
        self._ask(future, message, payload, topic_id, partition, timeout, wait)
        return future

    def request_then(
        self,
        taken: AnswerTaker,
        message: Message,
        payload: Bytes = b"",
        *,
        topic_id: bytes = NO_TOPIC,
        partition: int = NO_PARTITION,
        timeout: float | None = None,
    ) -> None:
        """See `Stream.request_then`."""
        self._ask(AnswerCall(self._loop, taken), message, payload, topic_id, partition, timeout, True)

    def _ask(
        self,
        reply: Reply | AnswerCall,
        message: Message,
        payload: Bytes,
        topic_id: bytes,
        partition: int,
        timeout: float | None,
        wait: bool,
    ) -> None:
        asked = self._asked
        asked.last_id = correlation_id = asked.last_id + 1
        try:
            if self.state is not State.OPEN:
                self._check_open()
            parts, size = self._outgoing.encode(message, payload, REQUEST, correlation_id, topic_id, partition)
        except StreamError as error:
            fail(reply, error)
            return
        seconds = self._limits.request_seconds if timeout is None else timeout
        asked.start(reply, correlation_id, parts, size, seconds, wait)

    def send(
        self, message: Message, payload: Bytes = b"", *, topic_id: bytes = NO_TOPIC, partition: int = NO_PARTITION
    ) -> None:
        """See `Stream.send`."""
        self._check_open()
        parts, size = self._outgoing.encode(message, payload, ONE_WAY, 0, topic_id, partition)
        if self._asked.is_congested:
            raise TooManyBytesInFlight(size, self._asked.bytes_in_flight, self._limits.in_flight_bytes)
        self._outgoing.write(parts)

    def look_for_cancelled(self) -> None:
        """See `Stream.look_for_cancelled`."""
        self._asked.look_for_cancelled()

    def _give_up(self, given_up: GivenUp) -> None:
        if self.state is State.OPEN:
            self._outgoing.write_behind(self._outgoing.encode(given_up, b"", ONE_WAY, 0)[0])

    async def close(self, timeout: float = 5.0) -> None:
        """See `Stream.close`. May be called again, and from a handler."""
        if self.state is State.ADMITTING:
            self.abort(PeerNotAdmitted(self.peer, "it was closed here"))
        elif self.state is State.OPEN:
            self._reason = StreamNotOpen(self.peer, "it was closed here")
            self.state = State.CLOSING
            self._asked.fail_all("it was closed here")
        deadline = self._loop.time() + timeout
        await self._held.end(timeout)
        if self._transport is not None and not self.closed.done():
            self._outgoing.write_all()
            self._transport.close()
            await asyncio.wait([self.closed], timeout=max(0.0, deadline - self._loop.time()))
            if not self.closed.done():
                self._transport.abort()
                await asyncio.wait([self.closed])

    def abort(self, error: Exception) -> None:
        """End the stream at once."""
        if self.state is State.CLOSED:
            return
        self._reason = error
        self.state = State.CLOSED
        self._end_bytes()
        self._asked.fail_all(str(error))
        if self._transport is not None:
            self._transport.abort()
        else:
            self.connection_lost(error)

    def _check_open(self) -> None:
        if self.state is not State.OPEN:
            raise StreamNotOpen(self.peer, self._why_closed())

    def _why_closed(self) -> str:
        reason = self._reason
        return reason.reason if isinstance(reason, StreamNotOpen) else str(reason or "it is not admitted yet")

    # --- what the event loop calls --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's do not derive from it
        if self.state is State.CLOSED:  # given up before it began
            self._transport.abort()
            return
        self._outgoing.start(self._transport)
        self._reading.start(self._transport)
        self._transport.set_write_buffer_limits(high=BLOCKED_BYTES, low=0)
        if (handle := transport.get_extra_info("socket")) is not None and handle.family == socket.AF_UNIX:
            handle.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MIB)
        if self._on_connected is not None:
            self._on_connected(self, self._take_address(transport))
        if self._is_turned_away:
            self.turn_away()
        self._say(self._admission.opening())

    def _take_address(self, transport: asyncio.BaseTransport) -> str:
        """Return the peer's address; empty at a unix socket."""
        name = transport.get_extra_info("peername")
        if not isinstance(name, tuple):
            return ""
        self._address = f"{name[0]}:{name[1]}, {self._address}"
        return str(name[0])

    def turn_away(self) -> None:
        """Turn away a peer that has not proved itself yet, to make room for others. It may try again."""
        self._is_turned_away = True
        if self.state is not State.ADMITTING or self._transport is None:  # then it is told with the first word
            return
        self._say(DoorFull())
        self._outgoing.uncork()
        self._reason = PeerNotAdmitted(self._address, "too many wait to prove themselves")
        self.state = State.CLOSED
        self._end_bytes()
        self._transport.close()

    def buffer_updated(self, nbytes: int) -> None:
        reader = self._reader
        reader.received(nbytes)
        outgoing = self._outgoing
        was_corked, outgoing.is_corked = outgoing.is_corked, True
        self._held.begun_in_turn = 0
        try:
            while reader.is_midway and self.state is not State.CLOSED and (frame := reader.next_frame()) is not None:
                if self.state is State.ADMITTING:
                    self._take_admission(frame)
                elif frame.header.flags & RESPONSE:
                    self._take_answer(frame)
                else:
                    self._take_request(frame)
                if frame.header.length >= LARGE_BYTES <= len(frame.payload):
                    self._reading.rest()
        except (FrameInvalid, PeerNotAdmitted, PeerUnreachable) as error:
            self._break_off(error)
        if not was_corked:
            outgoing.is_corked = False
            if outgoing.waiting:
                outgoing.uncork()
        if reader.is_midway:
            self._reading.watch_for_stall()

    def _break_off(self, error: StreamError) -> None:
        log = _log if self._admission.is_admitted else _of_strangers
        log.warning("A stream with %s is closed: %s", self.peer, error)
        self.abort(error)

    def eof_received(self) -> None:
        self.abort(StreamNotOpen(self.peer, "the other side closed it"))

    def connection_lost(self, exc: Exception | None) -> None:
        reason = self._reason = self._reason or exc or StreamNotOpen(self.peer, "the other side closed it")
        self.state = State.CLOSED
        self._end_bytes()
        self._asked.fail_all(str(reason))
        self._held.stream_ended()
        self._admission_timer.cancel()
        if not self.admitted.done():
            refused = reason if isinstance(reason, StreamError) else StreamNotOpen(self.peer, str(reason))
            self.admitted.set_exception(refused)
            self.admitted.exception()
        if not self.closed.done():
            self.closed.set_result(None)

    def pause_writing(self) -> None:
        self._outgoing.paused()

    def resume_writing(self) -> None:
        self._outgoing.resumed()

    def _congested(self, yes: bool) -> None:
        self._asked.is_congested = self._held.is_congested = yes
        if not yes:
            self._asked.send_waiting()
            self._held.handle_queued()

    def _end_bytes(self) -> None:
        """Neither write nor read any more."""
        self._outgoing.end()
        self._reading.end()

    # --- frames that have arrived ---------------------------------------------------------------------------------

    def _take_admission(self, frame: Frame) -> None:
        try:
            message = messages.unpack(frame.header.kind, frame.header.message_version, frame.message)
        except MessageUnknown as error:
            raise PeerNotAdmitted(self._address, "its messages are out of turn") from error
        if frame.header.flags != ONE_WAY or frame.payload:
            raise PeerNotAdmitted(self._address, "its messages are out of turn")
        self._say(self._admission.step(message))
        if self._admission.is_admitted and not self.admitted.done():  # cancelled: its dialler is about to give it up
            self._admission_timer.cancel()
            self.state = State.OPEN
            self._asked.peer = self._held.peer = self.peer
            self._held.is_internal = self.key is not None and self.key.standing is Standing.INTERNAL
            self._widen()
            self.admitted.set_result(None)
            if self._on_admitted is not None:
                self._on_admitted(self)
            if self._is_for_client:
                self._say(TakesFrames(self._reader.max_frame_bytes))
                self._has_said_limit = True

    def _widen(self) -> None:
        """Set the limits of an admitted peer: a client may send less than a process of the cluster (rule 34)."""
        limits = self._limits
        if self._held.is_internal:
            self._reader.widen(limits.max_frame_bytes, _RECEIVE_BUFFER_BYTES)
        elif self._is_for_client:
            self._held.most_bytes = limits.client_held_bytes
            self._reader.widen(min(limits.client_frame_bytes, limits.max_frame_bytes), _RECEIVE_BUFFER_BYTES)
        else:
            self._outgoing.max_message_bytes = CLIENT_MESSAGE_BYTES
            self._reader.widen(limits.max_frame_bytes, _RECEIVE_BUFFER_BYTES)

    def take_frames_of(self, size: int) -> None:
        """See `Stream.take_frames_of`."""
        if self._is_for_client and size > self._reader.max_frame_bytes and self.state is State.OPEN:
            self._reader.max_frame_bytes = min(size, self._limits.max_frame_bytes)
            self._held.most_bytes = 2 * size
            if self._has_said_limit:
                self._say(TakesFrames(self._reader.max_frame_bytes))

    @property
    def _is_for_client(self) -> bool:
        """Whether a client has opened it."""
        return isinstance(self._admission, Acceptor) and not self._held.is_internal

    def _say(self, message: Message | None) -> None:
        if message is not None:
            self._outgoing.write(self._outgoing.encode(message, b"", ONE_WAY, 0)[0])

    def _take_answer(self, frame: Frame) -> None:
        header = frame.header
        reply = self._asked.answered(header.correlation_id)
        if reply is None and self.state is State.CLOSING:  # what it answers was given up when closing began
            return
        if reply is None:
            raise FrameInvalid(f"An answer to request {header.correlation_id}, which is not in flight.")
        try:
            message = messages.unpack(header.kind, header.message_version, frame.message)
            is_failure = type(message) is Failure
            if bool(header.flags & ERROR) != is_failure:
                raise FrameInvalid(f"Message kind {header.kind} came with flags {header.flags}.")
        except (FrameInvalid, MessageUnknown) as error:
            fail(reply, StreamClosed(self.peer, str(error)))  # it may have been carried out
            raise FrameInvalid(f"An answer cannot be read. {error}") from error
        if is_failure:
            fail(reply, remote_failed(self.peer, cast(Failure, message)))
        elif type(reply) is AnswerCall:
            if not reply.is_over:
                reply.set_result(Response(message, frame.payload))
        elif not reply.done():
            reply.set_result(Response(message, frame.payload))

    def _take_request(self, frame: Frame) -> None:
        header = frame.header
        try:
            if header.message_length > CLIENT_MESSAGE_BYTES and not self._held.is_internal:
                raise MessageTooLarge(header.message_length, CLIENT_MESSAGE_BYTES)
            message = messages.unpack(header.kind, header.message_version, frame.message)
            if type(message) is TakesFrames and isinstance(self._admission, Dialer):
                self._outgoing.max_frame_bytes = min(message.most_bytes, self._limits.max_frame_bytes)
                return
            if type(message) is GivenUp:
                self._held.given_up(message.requests)
                return
            if self.state is State.CLOSING:
                raise StreamNotOpen(self.peer, "it is being closed there")
        except (MessageUnknown, MessageTooLarge, StreamNotOpen) as error:
            self._answer(header.correlation_id, failure=error)
            return
        size = header.length + (LENGTH_BYTES + OVERHEAD_BYTES)
        self._held.take(
            Request(message, frame.payload, header.topic_id, header.partition, self, header.correlation_id, size)
        )

    def _answer(self, correlation_id: int, answer: Answer = None, failure: BaseException | None = None) -> None:
        if failure is not None and (correlation_id == 0 or not isinstance(failure, RaylogError)):
            _log.error("A request of %s failed.", self.peer, exc_info=failure)
        if correlation_id == 0 or self.state is State.CLOSED:
            return
        if failure is None:
            try:
                sent = answer or Response(Done())
                parts, size = self._outgoing.encode(sent.message, sent.payload, RESPONSE, correlation_id)
            except Exception as error:  # noqa: BLE001 (an answer that cannot be sent is a failure of its handler)
                failure = error
        if failure is not None:
            parts, size = self._outgoing.encode(failure_of(failure), b"", RESPONSE | ERROR, correlation_id)
        self._outgoing.write(parts)
        if self._room is not None and size >= COUNTED_BYTES:
            self._room.answered(self)
