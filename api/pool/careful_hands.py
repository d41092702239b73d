"""Care before a handler sees a record: poison is refused, and in careful times each record is told of before.

See `rules/poison.py`. What must stay true: in careful times one record is handled at a time, and no handler begins with
one before it was told of, or the telling has failed in its own time.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from raylog.api.connection.records import ConsumerRecord
from raylog.api.pool.rules.poison import Place
from raylog.errors import RecordUnreadable

Tell = Callable[[Place], None]  # blocks, for a bounded time


class CarefulHands:
    """Used by all that handle records in one worker. `orders` may come from any thread."""

    def __init__(self, tell: Tell) -> None:
        self.is_careful = False
        self._tell = tell
        self._poison: frozenset[Place] = frozenset()
        self._one_at_a_time = threading.Lock()

    def orders(self, *, is_careful: bool, poison: frozenset[Place]) -> None:
        self.is_careful, self._poison = is_careful, poison

    def is_poison(self, record: ConsumerRecord) -> bool:
        return (record.topic, record.partition, record.offset) in self._poison

    @contextmanager
    def over(self, record: ConsumerRecord) -> Iterator[None]:
        """Surround the handling of a record. RecordUnreadable: it is poison."""
        self.check(record)
        if not self.is_careful:
            yield
            return
        with self._one_at_a_time:
            self._tell((record.topic, record.partition, record.offset))
            yield

    @asynccontextmanager
    async def over_async(self, record: ConsumerRecord, one_at_a_time: asyncio.Lock) -> AsyncIterator[None]:
        """Do the same on a loop, which goes on meanwhile. The lock is the loop's own.

        Only the telling takes a thread of the loop's executor: were the waiting there too, it could use up all threads.
        """
        self.check(record)
        if not self.is_careful:
            yield
            return
        async with one_at_a_time:
            await asyncio.to_thread(self._tell, (record.topic, record.partition, record.offset))
            yield

    def check(self, record: ConsumerRecord) -> None:
        if self.is_poison(record):
            reason = "two actors died with it in hand"
            raise RecordUnreadable(record.topic, record.partition, record.offset, record.offset + 1, reason)
