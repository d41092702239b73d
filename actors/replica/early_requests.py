"""Requests that reach a leader before its epoch is on disk: they wait for that, a few milliseconds.

What must stay true: they are handled in the order in which they came, and before any that comes later (rule 28). How
much may wait has a bound (rule 31): beyond it a request is refused as by a replica that does not lead, and so is each
that comes after it. Nothing is kept of a request whose stream has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from raylog.actors.kernel.stream_interface import Answer, LaterAnswer, Request, Response, pass_on
from raylog.config import MIB
from raylog.errors import RaylogError

_MOST_REQUESTS: Final = 1_024
_MOST_BYTES: Final = 16 * MIB


class EarlyRequests:
    """`hold` takes requests from `begin` until `release`. `start` runs what cannot be answered at once."""

    def __init__(self, start: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]) -> None:
        self._start = start
        self._held: list[tuple[Request, LaterAnswer]] = []
        self._bytes = 0
        self.is_open = False
        self._is_full = False  # one was refused for that: what follows may not overtake it

    def begin(self) -> None:
        """Hold requests from now on."""
        self.is_open = True

    def hold(self, request: Request) -> LaterAnswer | None:
        """Let a request wait. None: nothing is waited for, or too much waits already."""
        if not self.is_open:
            return None
        has_room = len(self._held) < _MOST_REQUESTS and self._bytes + len(request.payload) <= _MOST_BYTES
        self._is_full |= not has_room
        if self._is_full:
            return None
        owed = LaterAnswer()
        self._held.append((request, owed))
        self._bytes += len(request.payload)
        return owed

    def release(self, handle: Callable[[Request], Answer | Awaitable[Answer]]) -> None:
        """Handle all that waits, now."""
        held, self._held = self._held, []
        self._bytes, self.is_open, self._is_full = 0, False, False
        for request, owed in held:
            if owed.done():
                continue  # its stream has ended
            try:
                answer = handle(request)
            except Exception as error:  # noqa: BLE001 (whatever it is, it goes back to the requester)
                owed.fail(error)
            else:
                self._pass_on(answer, owed)

    def _pass_on(self, answer: Answer | Awaitable[Answer], owed: LaterAnswer) -> None:
        """Give this as the answer that is owed; where nobody waits for that any more, nobody waits for this either."""
        if answer is None or isinstance(answer, Response):
            owed.give(answer)
        elif isinstance(answer, LaterAnswer):
            owed.when_cancelled(answer.cancel)
            pass_on(answer, owed)
        else:
            waiting = self._start(_wait_for(answer, owed))
            owed.when_cancelled(lambda: _cancel(waiting))


def _cancel(waiting: asyncio.Task[None]) -> None:
    waiting.cancel()


async def _wait_for(answer: Awaitable[Answer], owed: LaterAnswer) -> None:
    try:
        pass_on(await answer, owed)
    except RaylogError as error:
        if not owed.done():
            owed.fail(error)
