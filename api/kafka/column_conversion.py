"""Columns made of what Kafka clients produce, for topics that want all their batches so (`batch.format`).

    produced batch ──stored──► the bytes for its leader ──appended──► let_go

What must stay true:
- Batches of one connection for one partition go on in the order in which they came, however long one of them takes.
  Whoever calls `stored` sends what it returns without waiting for anything else first.
- Nothing keeps the loop for long: what is much work is done beside it, a few at a time of all connections (rule 34).
- What such work holds counts in the memory of all clients, and so do its columns until they are appended (rule 31). It
  waits for nobody's memory: the batch itself holds some, and only its end gives that back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from raylog.actors.link.rules.topic_cache import TopicView
from raylog.api.kafka.rules.batch_conversion import columns_memory, conversion_bytes, stored_columns
from raylog.api.kafka.rules.memory_budget import Account, MemoryBudget
from raylog.api.kafka.rules.producer_order import Partition
from raylog.config import BATCHES_OF_COLUMNS
from raylog.storage.format.record_batch import BatchHeader, Bytes

CONVERTED_ON_LOOP: Final = 128 * 1024  # of `conversion_bytes`: some thousand records
AT_ONCE: Final = 2  # more would wait for each other: it is Python's own work, nearly all of it


class LargeConversions:
    """Conversions beside the loop, of all connections of a gateway."""

    def __init__(
        self, off_loop: Callable[[Callable[[], Bytes]], Awaitable[Bytes]], budget: MemoryBudget
    ) -> None:
        self._off_loop = off_loop
        self._account = budget.account()
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def convert(self, work: Callable[[], Bytes], size: int) -> Bytes:
        """Return what `work` returns, which holds so many bytes. If this is cancelled, the work goes on to its end."""
        await self._turns.acquire()
        self._account.take(size)
        converting = asyncio.ensure_future(self._off_loop(work))
        converting.add_done_callback(lambda _: self._ended(size))
        return await asyncio.shield(converting)

    def _ended(self, size: int) -> None:
        self._account.take(-size)
        self._turns.release()


class ColumnConversion:
    """The batches of one connection."""

    def __init__(self, large: LargeConversions, account: Account) -> None:
        self._large = large
        self._account = account
        self._last: dict[Partition, asyncio.Future[None]] = {}  # done once the last batch of the partition goes on

    @property
    def under_way(self) -> int:
        """Return of how many partitions a batch has not gone on."""
        return len(self._last)

    async def stored(self, partition: Partition, header: BatchHeader, batch: Bytes, topic: TopicView) -> Bytes:
        """Return a produced batch in the form for its topic, in its turn. BatchError, which is raised in its turn too.

        Give what is not the batch itself to `let_go` once it is appended.
        """
        wants_columns = topic.batch_format == BATCHES_OF_COLUMNS
        convert = partial(stored_columns, batch, topic.max_batch_bytes)
        before = self._last.get(partition)
        is_quick = not wants_columns or conversion_bytes(header, batch) <= CONVERTED_ON_LOOP
        if before is None and is_quick:
            return self._counted(batch, convert()) if wants_columns else batch
        gone_on = self._last[partition] = asyncio.get_running_loop().create_future()
        try:
            work = convert if wants_columns else lambda: batch
            size = 0 if is_quick else columns_memory(header, batch, topic.max_batch_bytes)
            return self._counted(batch, await self._after(before, work, size))
        finally:
            if self._last.get(partition) is gone_on:
                del self._last[partition]
            if not gone_on.done():  # the one that waits for it may have been cancelled
                gone_on.set_result(None)

    def let_go(self, columns: Bytes) -> None:
        """Note that this has been appended, or is given up."""
        self._account.take(-len(columns))

    def _counted(self, batch: Bytes, stored: Bytes) -> Bytes:
        if stored is not batch:
            self._account.take(len(stored))
        return stored

    async def _after(self, before: asyncio.Future[None] | None, convert: Callable[[], Bytes], size: int) -> Bytes:
        """`size`: of what it holds, where it is done beside the loop; else 0."""
        try:
            return await self._large.convert(convert, size) if size else convert()
        finally:
            if before is not None:
                await before
