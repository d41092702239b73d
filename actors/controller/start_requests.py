"""The controller's requests that brokers start replicas: many in one message."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

from raylog.actors.kernel.stream_interface import Response, Stream, expected
from raylog.actors.protocol.messages import Failure
from raylog.actors.protocol.remote_errors import remote_failed
from raylog.actors.protocol.start_messages import ReplicaStart, StartReplicas, StartsUnderWay, StartUnderWay
from raylog.errors import AnswerUnexpected, RaylogError

_STARTS_TOGETHER: Final = 64  # in one message: reading it holds neither loop for long (rule 31)
_ORDER_SECONDS: Final = 8.0


class StartRequests:
    """Starts of one turn of the loop, as a message to each broker: a thousand replicas are no thousand requests."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._unsent: dict[Stream, list[tuple[ReplicaStart, asyncio.Future[StartUnderWay]]]] = {}

    async def send(self, stream: Stream, start: ReplicaStart, registered: asyncio.Future[bool]) -> StartUnderWay:
        """Send it with the others of this turn, and return what the broker says of it. Raises what refuses it.

        The answer comes when the slowest start of a message is done, say after the seconds for which a broker waits for
        a directory in use. One that is `registered` by then has had a place, and is not waited for.
        """
        told: asyncio.Future[StartUnderWay] = self._loop.create_future()
        registered.add_done_callback(lambda _: None if told.done() else told.set_result(StartUnderWay(has_place=True)))
        unsent = self._unsent.setdefault(stream, [])
        unsent.append((start, told))
        if len(unsent) == 1:
            self._loop.call_soon(self._send, stream)
        outcome = await told
        if outcome.refused is not None:
            refused = remote_failed(stream.peer, Failure(*outcome.refused))
            raise refused.error or refused
        return outcome

    def _send(self, stream: Stream) -> None:
        unsent = self._unsent.pop(stream)
        for at in range(0, len(unsent), _STARTS_TOGETHER):
            part = unsent[at : at + _STARTS_TOGETHER]
            answer = stream.request(StartReplicas(tuple(start for start, _ in part)), timeout=_ORDER_SECONDS)
            answer.add_done_callback(partial(self._answered, stream.peer, [told for _, told in part]))

    def _answered(
        self, peer: str, waiting: Sequence[asyncio.Future[StartUnderWay]], answer: asyncio.Future[Response]
    ) -> None:
        try:
            outcomes = expected(answer.result().message, StartsUnderWay, peer).outcomes
            if len(outcomes) != len(waiting):
                raise AnswerUnexpected(peer, f"{len(waiting)} outcomes", str(len(outcomes)))
        except RaylogError as error:
            for told in waiting:
                if not told.done():
                    told.set_exception(error)
            return
        for told, outcome in zip(waiting, outcomes, strict=True):
            if not told.done():
                told.set_result(outcome)
