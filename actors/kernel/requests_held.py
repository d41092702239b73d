"""The answering half of a stream: the requests that have arrived and are not answered, and their handlers.

What must stay true:
- The bytes of these requests have a bound; past it the socket is not read until half of them are gone (rule 31).
- A client that sends many requests at once begins some of them in each turn of the loop (rule 34).
- Requests begin in the order in which they came. None begins while the peer does not read its answers, or too many
  handlers run.
- What only processes of the cluster may ask gets no further than here on a client's stream (rule 33).
- What waits for an answer ends with its stream. A handler that is at work goes on: what it does may be half done.
- No handler's error is lost: each goes to `answer`, and so does the loss of a handler that was cancelled.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from raylog.actors.kernel.rare_log import RareLog
from raylog.actors.kernel.stream_interface import Answer, Handler, LaterAnswer, Request, Response
from raylog.actors.protocol.endpoint import StreamLimits
from raylog.actors.protocol.messages import Done, Ping, is_for_clients, pack
from raylog.errors import InternalOnly, MessageUnknown, StreamNotOpen

_CANCEL_SECONDS: Final = 1.0
_PER_TURN: Final = 64  # requests of a client that begin; then others have their turn of the loop (rule 34)
_of_clients: Final = RareLog(logging.getLogger(__name__))


def refuse_all(request: Request) -> Answer:
    """The handler of a side that takes no requests."""
    kind, version, _ = pack(request.message)
    raise MessageUnknown(kind, version)


class RequestsHeld:
    """`answer` takes (correlation id, answer, failure); `read_on` stops or resumes the reading of the socket."""

    def __init__(
        self,
        handler: Handler,
        limits: StreamLimits,
        answer: Callable[[int, Answer, BaseException | None], None],
        read_on: Callable[[bool], None],
    ) -> None:
        self.bytes_held = 0
        self.is_internal = False  # what the other side has proved to be; until then it asks nothing
        self.peer = ""
        self.is_congested = False  # the peer does not read its answers
        self.most_bytes = limits.held_bytes
        self.begun_in_turn = 0  # the stream sets it to 0 when it begins to hand over what has arrived
        self._goes_on = False  # in the next turn
        self._handler = handler
        self._limits = limits
        self._answer = answer
        self._read_on = read_on
        self._is_reading = True
        self._queued: deque[Request] = deque()
        self._waiting_for_reads: deque[Callable[[], None]] = deque()
        self._running: set[asyncio.Future[Answer]] = set()
        self._owed: dict[LaterAnswer, Request] = {}
        self._nothing_owed: asyncio.Future[None] | None = None

    def take(self, request: Request) -> None:
        """Handle a request, now or when its turn comes."""
        if not self.is_internal and not is_for_clients(type(request.message)):
            refused = InternalOnly(type(request.message).__name__, self.peer)
            _of_clients.warning("A request is refused: %s", refused)
            if request.correlation_id:
                self._answer(request.correlation_id, None, refused)
            return
        self.bytes_held += request.size
        if self.bytes_held > self.most_bytes and self._is_reading:
            self._is_reading = False
            self._read_on(False)
        if (
            self._queued
            or self.is_congested
            or len(self._running) + len(self._owed) >= self._limits.max_handlers
            or (self.begun_in_turn >= _PER_TURN and self._is_turn_over())
        ):
            self._queued.append(request)
        else:
            self.begun_in_turn += 1
            self._handle(request)

    def when_it_reads(self, call: Callable[[], None]) -> None:
        """See `Stream.when_it_reads`."""
        if self.is_congested:
            self._waiting_for_reads.append(call)
        else:  # that so much is unwritten shows before the transport has said so
            asyncio.get_running_loop().call_soon(call)

    def handle_queued(self) -> None:
        """The peer reads its answers again, or a handler is done."""
        while self._waiting_for_reads and not self.is_congested:
            self._waiting_for_reads.popleft()()
        while self._queued and not self._is_busy() and not self._is_turn_over():
            self.begun_in_turn += 1
            self._handle(self._queued.popleft())

    def forget_queued(self) -> None:
        """The stream has ended: nobody waits for what has not begun."""
        for request in self._queued:
            self.bytes_held -= request.size
        self._queued.clear()

    def stream_ended(self) -> None:
        """Nobody waits for anything any more: what only waits is cancelled, what is being done goes on (rule 31)."""
        self.forget_queued()
        self._waiting_for_reads.clear()
        for owed in list(self._owed):
            self.bytes_held -= self._owed.pop(owed).size
            owed.cancel()
        for running in list(self._running):
            if not isinstance(running, asyncio.Task):
                running.cancel()

    async def end(self, timeout: float) -> None:
        """Wait so long for the handlers that run, cancel those that are not done, and let them end."""
        self.forget_queued()
        me = asyncio.current_task()
        for seconds in (timeout, _CANCEL_SECONDS):
            others: list[asyncio.Future[Any]] = [each for each in self._running if each is not me]
            if self._owed:
                self._nothing_owed = asyncio.get_running_loop().create_future()
                others.append(self._nothing_owed)
            if others:
                _, late = await asyncio.wait(others, timeout=seconds)
                for each in late:
                    each.cancel()
                for owed in list(self._owed):
                    owed.cancel()
                    self._given(owed, None, self._cancelled())

    def _is_turn_over(self) -> bool:
        """Whether a client has had enough of this turn of the loop; then it goes on in the next."""
        if self.begun_in_turn < _PER_TURN or self.is_internal:
            return False
        if not self._goes_on:
            self._goes_on = True
            asyncio.get_running_loop().call_soon(self._next_turn)
        return True

    def _next_turn(self) -> None:
        self._goes_on = False
        self.begun_in_turn = 0
        self.handle_queued()

    def _is_busy(self) -> bool:
        return self.is_congested or len(self._running) + len(self._owed) >= self._limits.max_handlers

    def _handle(self, request: Request) -> None:
        try:
            answer = Response(Done()) if type(request.message) is Ping else self._handler(request)
            if answer is None or isinstance(answer, Response):
                self._finish(request, answer)
                return
            if type(answer) is LaterAnswer:
                self._owed[answer] = request
                answer.when_over(partial(self._given, answer))
                return
            running = asyncio.ensure_future(answer)
        except Exception as error:  # noqa: BLE001 (whatever it is, it goes back to the requester)
            self._finish(request, None, error)
            return
        self._running.add(running)
        running.add_done_callback(partial(self._handled, request))

    def _given(self, owed: LaterAnswer, answer: Answer, failure: BaseException | None) -> None:
        self._finish(self._owed.pop(owed), answer, failure)
        if self._queued:  # whoever has given this answer is in the middle of something
            asyncio.get_running_loop().call_soon(self.handle_queued)
        if self._nothing_owed is not None and not self._owed and not self._nothing_owed.done():
            self._nothing_owed.set_result(None)

    def _cancelled(self) -> StreamNotOpen:
        return StreamNotOpen("its peer", "the handler of this request was cancelled")

    def _handled(self, request: Request, running: asyncio.Future[Answer]) -> None:
        self._running.discard(running)
        if running.cancelled():
            self._finish(request, None, self._cancelled())
        elif (error := running.exception()) is not None:
            self._finish(request, None, error)
        else:
            self._finish(request, running.result())
        if self._queued:
            self.handle_queued()

    def _finish(self, request: Request, answer: Answer, failure: BaseException | None = None) -> None:
        self._answer(request.correlation_id, answer, failure)
        self.bytes_held -= request.size
        if not self._is_reading and self.bytes_held * 2 <= self.most_bytes:
            self._is_reading = True
            self._read_on(True)
