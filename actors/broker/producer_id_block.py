"""A broker's block of producer ids, which it gives to clients one after the other.

So clients need no controller for an id, and the controller commits one record for a thousand ids.

What must stay true: an id is given once (rule 18). It is gone when it is taken, even if the answer is lost. What is
left of a block when its broker ends is gone too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from raylog.actors.cluster.producer_ids import BLOCK_SIZE
from raylog.actors.kernel.stream_interface import Response, expected
from raylog.actors.protocol.control_messages import AllocateProducerIds, ProducerIdsAllocated
from raylog.actors.protocol.messages import Message
from raylog.errors import InvalidRequest


class ProducerIdBlock:
    """Producer ids of one broker. `ask_controller` sends a message, and returns or raises the answer."""

    def __init__(self, ask_controller: Callable[[Message], Awaitable[Response]]) -> None:
        self._ask_controller = ask_controller
        self._next = self._end = 0
        self._fetching: asyncio.Task[None] | None = None

    async def hand_out(self, request: AllocateProducerIds) -> Response:
        if not 1 <= request.count <= BLOCK_SIZE:
            raise InvalidRequest(f"A broker hands out 1 to {BLOCK_SIZE} producer ids at once, not {request.count}.")
        while self._end - self._next < request.count:
            await self._next_block()
        first = self._next
        self._next += request.count
        return Response(ProducerIdsAllocated(first, self._next))

    async def _next_block(self) -> None:
        """Ask for a block. Many that find the old one empty at once ask together, and hear the outcome together."""
        if self._fetching is None or self._fetching.done():
            self._fetching = asyncio.get_running_loop().create_task(self._fetch())
        await asyncio.wait([fetching := self._fetching])
        fetching.result()

    async def _fetch(self) -> None:
        told = await self._ask_controller(AllocateProducerIds(BLOCK_SIZE))
        answer = expected(told.message, ProducerIdsAllocated, "the controller")
        self._next, self._end = answer.first, answer.end
