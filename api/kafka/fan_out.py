"""Requests of clients that name many things, each of which another process is asked about (rules 31 and 34).

What must stay true: however many there are, a bounded number is under way; the loop has other turns between them; and
what is answered for one request fits a bounded room.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from typing import Final, TypeVar

from raylog.errors import TooManyBytesInFlight

MOST_AT_A_TIME: Final = 100
_PER_TURN: Final = 32  # that end without waiting; then others have their turn of the loop
ANSWER_BYTES: Final = 16 * 1024 * 1024

_Item = TypeVar("_Item")
_Found = TypeVar("_Found")
_Key = TypeVar("_Key", bound=Hashable)


async def some_at_a_time(
    call: Callable[[_Item], Awaitable[_Found]], items: Sequence[_Item], most: int = MOST_AT_A_TIME
) -> list[_Found]:
    """Return what `call` returns for each item, in their order. They begin in that order too.

    An error of one ends all.
    """
    found: dict[int, _Found] = {}
    left = iter(enumerate(items))

    async def work() -> None:
        for done, (place, item) in enumerate(left, start=1):
            found[place] = await call(item)
            if done % _PER_TURN == 0:
                await asyncio.sleep(0)

    workers = [asyncio.ensure_future(work()) for _ in range(min(most, len(items)))]
    try:
        await asyncio.gather(*workers)
    finally:
        for each in workers:
            each.cancel()
    return [found[place] for place in range(len(items))]


def named_twice(names: Iterable[_Key]) -> set[_Key]:
    """Return the names that a request has more than once."""
    return {name for name, count in Counter(names).items() if count > 1}


class AnswerBudget:
    """The room for what is answered to one request."""

    def __init__(self, size: int = ANSWER_BYTES) -> None:
        self._size = size
        self._taken = 0

    def check(self) -> None:
        """Raise TooManyBytesInFlight where it is used up: the client asks again for what it has not got."""
        if self._taken >= self._size:
            raise TooManyBytesInFlight(0, self._taken, self._size)

    def take(self, size: int) -> None:
        """Count what is to be answered. The last may be larger than what was left."""
        self._taken += size
