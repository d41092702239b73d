"""The memory of one connection: what it holds of requests and answers, and what it waits for (rule 31).

    reads        a request that is midway is given room for all of it before more of it is read; whoever holds more than
                 a little reads nothing while others wait
    begins       a request whose answer may be long is given room for that first
    gives up     a client that keeps others waiting, and moves too little, is closed by the listener

Produce is not among those that wait: its answer is short, and its records hold memory until it has begun. Neither is
Fetch: its polls ask for room themselves (`partition_polls.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from raylog.api.kafka.rules.memory_budget import FREE_BYTES, Account

LONG_ANSWER_BYTES: Final = 256 * 1024
# Those that list things: offsets, topics, groups, settings, directories.
_LONG_ANSWERS: Final = frozenset({2, 3, 9, 15, 16, 19, 23, 29, 32, 35, 46, 60, 75})
STALL_SECONDS: Final = 10.0


class _Mark(NamedTuple):
    """A moment: what a client had moved by then, and how much it has to move from there on."""

    at: float
    moved: int
    waits: int


class ConnectionMemory:
    """`go_on` is called, in a later turn of the loop, when there is room."""

    def __init__(self, loop: asyncio.AbstractEventLoop, account: Account, go_on: Callable[[], None]) -> None:
        self._loop = loop
        self._account = account
        self._go_on = go_on
        self._counted = 0
        self._midway = 0  # of what is counted: for the rest of a request, which has begun
        self._for_answer = 0  # likewise: for the answer to a request that begins, or is under way
        self._waits_to_read = False
        self._waits_to_begin = False
        self._mark: _Mark | None = None

    @property
    def most_read(self) -> int | None:
        """The most that is read at once, where no request is midway. None: as much as there is."""
        return FREE_BYTES if self._account.budget.is_short else None

    def count(self, held: int, midway: int) -> None:
        """Note how many bytes are held now, besides a request of that size which is midway."""
        if midway == 0:
            self._midway = 0
        counted = held + self._midway + self._for_answer
        change, self._counted = counted - self._counted, counted
        if change:
            self._account.take(change)

    # --- reading --------------------------------------------------------------------------------------------------

    def may_read(self, midway: int) -> bool:
        """Whether more is to be read. If not, `go_on` is called once that has changed."""
        if self._waits_to_read:
            return False
        if midway == self._midway > 0:
            return True
        if midway > 0:
            if self._account.may_take(midway):
                self._has_room_to_read(midway)
                return True
            return self._wait_to_read(midway)
        if self._account.held <= FREE_BYTES or not self._account.budget.is_short:
            return True
        return self._wait_to_read(0)

    def _wait_to_read(self, size: int) -> bool:
        self._waits_to_read = True
        self._account.wait(size, lambda: self._read_on(size))
        return not self._waits_to_read

    def _read_on(self, size: int) -> None:
        self._waits_to_read = False
        self._has_room_to_read(size)
        self._loop.call_soon(self._go_on)

    def _has_room_to_read(self, size: int) -> None:
        self._midway += size
        self._counted += size

    # --- beginning ------------------------------------------------------------------------------------------------

    def may_begin(self, api_key: int) -> bool:
        """Whether such a request is to begin, which is then to be told to `is_answered`. If not, `go_on` is called once
        that has changed.
        """
        if api_key not in _LONG_ANSWERS or self._for_answer:
            return True
        if self._waits_to_begin:
            return False
        if self._account.may_take(LONG_ANSWER_BYTES):
            self._has_room_to_begin()
            return True
        self._waits_to_begin = True
        self._account.wait(LONG_ANSWER_BYTES, self._begin_now)
        return not self._waits_to_begin

    def is_answered(self) -> None:
        """Note that the answer is there, and counts itself. Only those that nothing overlaps have long ones."""
        self._for_answer = 0

    def _begin_now(self) -> None:
        self._waits_to_begin = False
        self._has_room_to_begin()
        self._loop.call_soon(self._go_on)

    def _has_room_to_begin(self) -> None:
        self._for_answer = LONG_ANSWER_BYTES
        self._counted += LONG_ANSWER_BYTES

    # --- clients that keep others waiting -------------------------------------------------------------------------

    def has_stalled(self, waits: int, moved: int) -> bool:
        """Whether a client has not moved, for too long, as many bytes as it keeps waiting. To be asked now and then.

        `waits`: bytes that only the client can move. `moved`: all that it has moved.
        """
        now, mark = self._loop.time(), self._mark
        if waits <= FREE_BYTES:
            self._mark = None
        elif mark is None or moved - mark.moved >= mark.waits:
            self._mark = _Mark(now, moved, waits)
        else:
            return now - mark.at >= STALL_SECONDS
        return False

    def nobody_waits(self) -> None:
        """Forget what the client has not moved: it keeps nobody waiting."""
        self._mark = None
