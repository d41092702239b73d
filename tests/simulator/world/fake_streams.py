"""Fake streams: raylog's `Stream` between simulated processes, without sockets and frames.

    stream = await environment.dial(endpoint, "client", handler)        # see `machines.py` for the environment
    answer = await stream.request(Pull(...), timeout=1.0)
    world.network.cut(stream)

The book-keeping of both halves is raylog's own (`stream_requests.py`), so time-outs, bounds, and
the order in which handlers begin are the real ones. What must stay true, beyond `Stream`:
- Nothing that one process may still change reaches another: payloads are copied, a seed-chosen share of the messages is
  really packed and unpacked, and what a sender changes although it still belongs to the stream fails the run.
- A handler's error that is none of raylog's fails the run, and is answered as the real stream answers it.
- After its process is dead, a side does nothing; what code still on the stack asks of it is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, cast

from raylog.actors.kernel.stream_interface import Answer, AnswerTaker, Handler, Request, Response
from raylog.actors.kernel.stream_requests import OVERHEAD_BYTES, AnswerCall, Reply, RequestsHeld, RequestsInFlight, fail
from raylog.actors.machine.stream_connection import State
from raylog.actors.protocol import messages
from raylog.actors.protocol.cluster_secrets import KeyRing, Standing
from raylog.actors.protocol.messages import (
    ERROR,
    NO_PARTITION,
    NO_TOPIC,
    ONE_WAY,
    REQUEST,
    RESPONSE,
    Done,
    Failure,
    GivenUp,
    Message,
    check_outgoing,
)
from raylog.actors.protocol.remote_errors import failure_of, remote_failed
from raylog.errors import (
    PeerNotAdmitted,
    PeerUnreachable,
    RaylogError,
    StreamError,
    StreamNotOpen,
    TooManyBytesInFlight,
)
from raylog.storage.format.record_batch import Bytes
from tests.simulator.world.pipes import Node, Pipe, SimFrame
from tests.simulator.world.virtual_loop import VirtualLoop

if TYPE_CHECKING:
    from tests.simulator.world.fake_network import Network

_HELLO: Final = 8  # flags of our own: the dialler proves itself, and the acceptor
_WELCOME: Final = 16
_GUESSED_MESSAGE_BYTES: Final = 48  # of one that is not packed
_KINDS: Final = {
    REQUEST: "asks",
    RESPONSE: "answers",
    RESPONSE | ERROR: "refuses",
    ONE_WAY: "says",
    _HELLO: "hello",
    _WELCOME: "welcome",
}


class FakeStream:
    """One side of a stream."""

    def __init__(
        self, network: Network, loop: VirtualLoop, node: Node, keys: KeyRing, handler: Handler, address: str
    ) -> None:
        self.loop = loop
        self.keys = keys
        self.node = node
        self.serial = network.next_serial()
        self.label = f"{loop.name} – {address}"
        self.far: FakeStream | None = None  # the other side, once there is a connection
        self.is_dialler = False
        self.is_over = False
        self.is_reading = True
        self.state = State.ADMITTING
        self.admitted: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()
        self.out: Pipe | None = None
        self.on_admitted: Callable[[FakeStream], None] | None = None
        self._network = network
        self._limits = network.limits
        self.most_frame_bytes = network.limits.max_frame_bytes  # that this side sends
        self._address = address
        self._peer_role = ""
        self._my_role = ""
        self._reason: Exception | None = None
        self._lent: dict[int, SimFrame] = {}  # requests with payloads that stay as they are until the answer has come
        self._asked = RequestsInFlight(
            cast("asyncio.AbstractEventLoop", loop), self._limits.in_flight_bytes, self._write, self._give_up
        )
        self._asked.peer = address
        self._held = RequestsHeld(handler, self._limits, self._answer, self._read_on)
        self._admission_timer = loop.call_later(self._limits.admission_seconds, self._is_late)

    def __hash__(self) -> int:
        return self.serial

    def __eq__(self, other: object) -> bool:
        return self is other

    @property
    def peer(self) -> str:
        return f"{self._peer_role} at {self._address}" if self._peer_role else self._address

    @property
    def bytes_in_flight(self) -> int:
        return self._asked.bytes_in_flight

    @property
    def is_internal(self) -> bool:
        """See `Stream.is_internal`."""
        return self._held.is_internal

    def take_frames_of(self, size: int) -> None:
        """See `Stream.take_frames_of`. The other side hears of it at once."""
        if self.far is not None and not self.is_internal and not self.is_dialler:
            self.far.most_frame_bytes = max(self.far.most_frame_bytes, min(size, self._limits.max_frame_bytes))

    @property
    def is_congested(self) -> bool:
        """See `Stream.is_congested`."""
        return self._held.is_congested or (self.out is not None and self.out.is_congested)

    @property
    def bytes_unsent(self) -> int:
        """See `Stream.bytes_unsent`: what the other side has not read."""
        return 0 if self.out is None else self.out.bytes_unread

    def when_it_reads(self, call: Callable[[], None]) -> None:
        """See `Stream.when_it_reads`."""
        self._held.when_it_reads(call)

    @property
    def held_bytes(self) -> int:
        return self._held.bytes_held

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
        future: Reply = self.loop.create_future()
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
        reply = AnswerCall(cast("asyncio.AbstractEventLoop", self.loop), taken)
        self._ask(reply, message, payload, topic_id, partition, timeout, True)

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
        self._asked.last_id = correlation_id = self._asked.last_id + 1
        try:
            self._check_open()
            frame = self._frame(REQUEST, correlation_id, message, payload, topic_id, partition)
        except StreamError as error:
            fail(reply, error)
            return
        seconds = self._limits.request_seconds if timeout is None else timeout
        self._asked.start(reply, correlation_id, cast("Sequence[Bytes]", (frame,)), frame.size, seconds, wait)

    def send(
        self, message: Message, payload: Bytes = b"", *, topic_id: bytes = NO_TOPIC, partition: int = NO_PARTITION
    ) -> None:
        """See `Stream.send`."""
        self._check_open()
        frame = self._frame(ONE_WAY, 0, message, payload, topic_id, partition)
        if self._asked.is_congested:
            raise TooManyBytesInFlight(frame.size, self._asked.bytes_in_flight, self._limits.in_flight_bytes)
        self._put(frame)

    def look_for_cancelled(self) -> None:
        """See `Stream.look_for_cancelled`."""
        self._asked.look_for_cancelled()

    def _give_up(self, given_up: GivenUp) -> None:
        if self.state is State.OPEN:
            self._put(self._frame(ONE_WAY, 0, given_up))

    async def close(self, timeout: float = 5.0) -> None:
        """See `Stream.close`. May be called again, and from a handler."""
        if self.state is State.ADMITTING:
            self.abort(PeerNotAdmitted(self.peer, "it was closed here"))
        elif self.state is State.OPEN:
            self._reason = StreamNotOpen(self.peer, "it was closed here")
            self.state = State.CLOSING
            self._fail_all("it was closed here")
        await self._held.end(timeout)
        if self.state is not State.CLOSED:
            self._close(self._reason or StreamNotOpen(self.peer, "it was closed here"))

    def abort(self, error: Exception) -> None:
        """End the stream at once."""
        if self.state is not State.CLOSED:
            self._close(error)

    def _check_open(self) -> None:
        if self.state is not State.OPEN:
            raise StreamNotOpen(self.peer, self._why_closed())

    def _why_closed(self) -> str:
        if isinstance(self._reason, StreamNotOpen):
            return self._reason.reason
        return str(self._reason or "it is not admitted yet")

    def _close(self, reason: Exception) -> None:
        self._reason = self._reason or reason
        self._network.trace("{}: closed, {}", self.label, str(reason))
        self.state = State.CLOSED
        self.is_over = True
        self._fail_all(str(reason))
        self._held.stream_ended()
        self._admission_timer.cancel()
        if self.out is not None:
            self.out.end("the other side closed it")
        self._network.forget(self)
        if not self.admitted.done():
            refused = reason if isinstance(reason, StreamError) else StreamNotOpen(self.peer, str(reason))
            self.admitted.set_exception(refused)
            self.admitted.exception()
        if not self.closed.done():
            self.closed.set_result(None)

    def _fail_all(self, reason: str) -> None:
        for frame in self._lent.values():
            self._check_lent(frame)
        self._lent.clear()
        self._asked.fail_all(reason)

    # --- writing --------------------------------------------------------------------------------------------------

    def _frame(
        self,
        flags: int,
        correlation_id: int,
        message: Message,
        payload: Bytes = b"",
        topic_id: bytes = NO_TOPIC,
        partition: int = NO_PARTITION,
    ) -> SimFrame:
        """Return the frame of a message. One that cannot be sent fails here."""
        if type(payload) is memoryview:
            payload = payload.cast("B")
        frame = SimFrame(flags, correlation_id, message, payload, topic_id, partition)
        message_bytes = _GUESSED_MESSAGE_BYTES
        if self._network.is_packed():
            frame.packed = messages.pack(message)
            message_bytes = len(frame.packed[2])
        frame.size = check_outgoing(message_bytes, len(payload), self.most_frame_bytes)
        if payload and type(payload) is not bytes:
            frame.lend(payload)
        return frame

    def _write(self, parts: Sequence[Bytes]) -> None:
        """Write for `RequestsInFlight`, which gives a whole frame as the only part."""
        self._put(cast(SimFrame, parts[0]))

    def _put(self, frame: SimFrame) -> None:
        if self.out is None or self.is_over or self.loop.is_dead:
            return
        if frame.lent is not None:
            self._check_lent(frame)  # it may have waited for room
            if frame.flags == REQUEST:
                self._lent[frame.correlation_id] = frame
        frame.payload = bytearray(frame.payload)
        self.out.send(frame)

    def _check_lent(self, frame: SimFrame) -> None:
        if frame.is_changed() and not self.loop.is_dead:
            self._network.fail(f"{self.label}: the payload of {frame.message} was changed while the stream had it.")

    # --- what pipes and network tell ------------------------------------------------------------------------------

    def connected(self, role: str, far: FakeStream, out: Pipe) -> None:
        """Note that there is a connection. The acceptor's process hears of it with the hello."""
        self._my_role = role
        self.far = far
        self.out = out
        self.label = f"{self.loop.name} ← {far.loop.name}"

    def say_hello(self) -> None:
        """The dialler proves itself, and waits for the same."""
        self._put(SimFrame(_HELLO, 0, messages.Hello(self._my_role, self._address, b"")))

    def take(self, frame: SimFrame) -> None:
        far = self.far
        assert far is not None
        assert far.out is not None
        far.out.was_read(frame)
        if frame.flags != REQUEST:
            far._check_lent(frame)
        if self.is_over:
            return
        network = self._network
        network.count_delivered()
        network.trace("{}: {} {} #{}", self.label, _KINDS[frame.flags], frame.message, frame.correlation_id)
        if frame.packed is not None:
            frame.message = messages.unpack(*frame.packed)
        if frame.flags & RESPONSE:
            self._take_answer(frame)
        elif frame.flags & (_HELLO | _WELCOME):
            self._take_admission(frame)
        else:
            self._take_request(frame)

    def ended(self, reason: str) -> None:
        self.abort(StreamNotOpen(self.peer, reason))

    def refused(self, reason: str) -> None:
        """The dialler finds nobody there."""
        self.abort(PeerUnreachable(self._address, reason))

    def vanish(self) -> None:
        """End without a word: the process is no more, and nothing here runs again."""
        self.state = State.CLOSED
        self.is_over = True
        self._lent.clear()
        self._network.forget(self)

    def set_congested(self, yes: bool) -> None:
        self._asked.is_congested = self._held.is_congested = yes
        if not yes and not self.is_over:
            self._asked.send_waiting()
            self._held.handle_queued()

    def _read_on(self, yes: bool) -> None:
        self.is_reading = yes
        if yes and self.far is not None and self.far.out is not None:
            self.far.out.go_on()

    def _is_late(self) -> None:
        late = f"it did not prove itself within {self._limits.admission_seconds:g} s"
        if self.out is not None:
            self.abort(PeerNotAdmitted(self._address, late))
        else:
            self.abort(PeerUnreachable(self._address, "no connection in time"))

    # --- frames that have arrived ---------------------------------------------------------------------------------

    def _take_admission(self, frame: SimFrame) -> None:
        assert isinstance(frame.message, messages.Hello)
        assert self.far is not None
        if frame.flags == _HELLO:
            if self.far.is_over:  # it would not have proved itself
                return
            self._put(SimFrame(_WELCOME, 0, messages.Hello(self._my_role, "", b"")))
        if self.admitted.done():  # cancelled: its dialler is about to give it up
            return
        standing = self._shared_standing()
        if standing is None:
            self.abort(PeerNotAdmitted(self._address, "it did not prove that it holds this cluster's secret"))
            return
        self._held.is_internal = standing is Standing.INTERNAL
        self._admission_timer.cancel()
        self._peer_role = frame.message.role
        self._asked.peer = self._held.peer = self.peer
        self.state = State.OPEN
        self.admitted.set_result(None)
        if not (self.is_dialler or self.is_internal):
            self.far.most_frame_bytes = self._limits.client_frame_bytes
        if self.on_admitted is not None:
            self.on_admitted(self)

    def _shared_standing(self) -> Standing | None:
        """Return the standing of the newest key of the dialler's that the acceptor has."""
        assert self.far is not None
        dialler, acceptor = (self, self.far) if self.is_dialler else (self.far, self)
        valid = acceptor.keys.keys()
        return next((key.standing for key in dialler.keys.secrets.own_keys if key in valid), None)

    def _take_answer(self, frame: SimFrame) -> None:
        reply = self._asked.answered(frame.correlation_id)
        lent = self._lent.pop(frame.correlation_id, None)
        if lent is not None:
            self._check_lent(lent)
        if reply is None and self.state is State.CLOSING:
            return
        if reply is None:
            self._network.fail(f"{self.label}: an answer to request {frame.correlation_id}, which is not in flight.")
        elif isinstance(frame.message, Failure):
            fail(reply, remote_failed(self.peer, frame.message))
        elif not reply.done():
            reply.set_result(Response(frame.message, frame.payload))

    def _take_request(self, frame: SimFrame) -> None:
        if self.state is State.CLOSING:
            self._answer(frame.correlation_id, None, StreamNotOpen(self.peer, "it is being closed there"))
            return
        if type(frame.message) is GivenUp:
            self._held.given_up(frame.message.requests)
            return
        assert isinstance(frame.payload, bytearray)
        size = frame.size + OVERHEAD_BYTES
        self._held.begun_in_turn = 0
        self._held.take(
            Request(
                frame.message, frame.payload, frame.topic_id, frame.partition, self, frame.correlation_id, size
            )
        )

    def _answer(self, correlation_id: int, answer: Answer = None, failure: BaseException | None = None) -> None:
        if failure is not None and not isinstance(failure, RaylogError) and not self.loop.is_dead:
            self._network.fail(f"{self.label}: a handler failed.", failure)
        if failure is not None and correlation_id == 0:
            self._network.trace("{}: what was said failed with {}", self.label, repr(failure))
        if correlation_id == 0 or self.state is State.CLOSED:
            return
        sent = answer or Response(Done())
        flags = RESPONSE
        if failure is not None:
            sent, flags = Response(failure_of(failure)), RESPONSE | ERROR
        try:
            frame = self._frame(flags, correlation_id, sent.message, sent.payload)
        except RaylogError as error:
            frame = self._frame(RESPONSE | ERROR, correlation_id, failure_of(error))
        self._put(frame)


class FakeServer:
    """Accepts streams at one process's endpoints until it is closed."""

    def __init__(
        self,
        network: Network,
        loop: VirtualLoop,
        node: Node,
        keys: KeyRing,
        role: str,
        handler: Handler,
        on_stream: Callable[[FakeStream], None] | None,
    ) -> None:
        self.loop = loop
        self.node = node
        self.keys = keys
        self.role = role
        self.handler = handler
        self._network = network
        self._on_stream = on_stream
        self._streams: dict[int, FakeStream] = {}

    def accepted(self, stream: FakeStream) -> None:
        """The machine has a connection for it."""
        self._streams[stream.serial] = stream
        stream.on_admitted = self._on_stream
        stream.closed.add_done_callback(lambda _: self._streams.pop(stream.serial))

    async def close(self, timeout: float = 5.0) -> None:
        """Accept no more, wait so long for the handlers, end all streams."""
        self._network.stop_listening(self)
        await asyncio.gather(*(stream.close(timeout) for stream in list(self._streams.values())))
