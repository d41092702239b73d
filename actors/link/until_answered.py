"""One question, asked again and again until there is an answer.

    asked ──answer──► done
      ▲ └──error──► final, or the time is over: raised
      └───pause─────┘ otherwise

The caller says which errors are final, since that depends on the question. A coordinator, for example, asks again for
a topic that is unknown, because it waits for its own; a consumer does not, because its user may have misspelt the name.

What must stay true:
- Only questions that may be asked twice go this way.
- The time that is given is a bound for all attempts and pauses together. The last error is raised when it is over.
- An answer of the wrong kind is final (`AnswerUnexpected`): no repetition mends versions that differ.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import TypeVar

from raylog.actors.kernel.backoff import Backoff
from raylog.errors import AnswerUnexpected, MessageUnknown, PeerNotAdmitted, RaylogError, StreamError

_T = TypeVar("_T")


async def until_answered(
    ask: Callable[[float], Awaitable[_T]],
    backoff: Backoff,
    *,
    is_final: Callable[[RaylogError], bool],
    failed: Callable[[RaylogError], None],
    pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
    seconds: float = math.inf,
) -> _T:
    """Return what `ask` returns; it is given the seconds that are left, and is called at least once.

    `failed` is called with each error that is not final. `pause` waits for so long, or less where something has
    changed; what it raises is raised. After a pause that the end of the time cuts short the last error is raised.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while True:
        try:
            return await ask(max(0.0, deadline - loop.time()))
        except RaylogError as error:
            if isinstance(error, AnswerUnexpected) or is_final(error):
                raise
            last = error
        failed(last)
        left, wait = deadline - loop.time(), backoff.next()
        if left > 0:
            await pause(min(wait, left))
        if wait >= left:
            raise last


def may_pass(error: RaylogError) -> bool:
    """Return whether an error may pass by itself. Errors of streams do, but for those of secrets and versions."""
    never = isinstance(error, (AnswerUnexpected, MessageUnknown, PeerNotAdmitted))
    return error.retriable or (isinstance(error, StreamError) and not never)
