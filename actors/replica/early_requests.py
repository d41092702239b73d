"""Requests that reach a leader before its epoch is on disk: they wait for that, a few milliseconds.

What must stay true: they are handled in the order in which they came, and before any that comes later (rule 28). How
much may wait has a bound (rule 31): beyond it a request is refused as by a replica that does not lead.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from raylog.actors.kernel.stream_interface import Answer, LaterAnswer, Request, Response, pass_on
from raylog.config import MIB
from raylog.errors import RaylogError

_MOST_REQUESTS: Final = 1_024
_MOST_BYTES: Final = 16 * MIB


class EarlyRequests:
    """`hold` takes requests from `begin` until `release`. `start` runs what cannot be answered at once."""

    def __init__(self, start: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        self._start = start
        self._held: list[tuple[Request, LaterAnswer]] = []
        self._bytes = 0
        self._is_open = False

    def begin(self) -> None:
        """Hold requests from now on."""
        self._is_open = True

    def hold(self, request: Request) -> LaterAnswer | None:
        """Let a request wait. None: nothing is waited for, or too much waits already."""
        has_room = len(self._held) < _MOST_REQUESTS and self._bytes + len(request.payload) <= _MOST_BYTES
        if not (self._is_open and has_room):
            return None
        owed = LaterAnswer()
        self._held.append((request, owed))
        self._bytes += len(request.payload)
        return owed

    def release(self, handle: Callable[[Request], Answer | Awaitable[Answer]]) -> None:
        """Handle all that waits, now."""
        held, self._held = self._held, []
        self._bytes, self._is_open = 0, False
        for request, owed in held:
            if owed.done():
                continue  # its stream has ended
            try:
                answer = handle(request)
            except RaylogError as error:
                owed.fail(error)
            else:
                if answer is None or isinstance(answer, (Response, LaterAnswer)):
                    pass_on(answer, owed)
                else:
                    self._start(_wait_for(answer, owed))


async def _wait_for(answer: Awaitable[Answer], owed: LaterAnswer) -> None:
    try:
        pass_on(await answer, owed)
    except RaylogError as error:
        if not owed.done():
            owed.fail(error)
