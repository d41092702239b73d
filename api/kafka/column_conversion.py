"""Columns made of what Kafka clients produce, for topics that want all their batches so (`batch.format`).

    produced batch ──stored──► the bytes for its leader

What must stay true:
- Batches of one connection for one partition go on in the order in which they came, however long one of them takes.
  Whoever calls `stored` sends what it returns without waiting for anything else first.
- Nothing keeps the loop for long: what is much work is done beside it, within bounds (rules 31, 34).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from raylog.actors.link.rules.topic_cache import TopicView
from raylog.api.kafka.rules.batch_conversion import conversion_bytes, stored_columns
from raylog.api.kafka.rules.producer_order import Partition
from raylog.config import BATCHES_OF_COLUMNS
from raylog.storage.format.record_batch import BatchHeader, Bytes

CONVERTED_ON_LOOP: Final = 128 * 1024  # of `conversion_bytes`: some thousand records


class ColumnConversion:
    """The batches of one connection."""

    def __init__(self, off_loop: Callable[[Callable[[], Bytes]], Awaitable[Bytes]]) -> None:
        self._off_loop = off_loop
        self._last: dict[Partition, asyncio.Future[None]] = {}  # done once the last batch of the partition goes on

    @property
    def under_way(self) -> int:
        """Return of how many partitions a batch has not gone on."""
        return len(self._last)

    async def stored(self, partition: Partition, header: BatchHeader, batch: Bytes, topic: TopicView) -> Bytes:
        """Return a produced batch in the form for its topic, in its turn. BatchError, which is raised in its turn too.
        """
        wants_columns = topic.batch_format == BATCHES_OF_COLUMNS
        convert = partial(stored_columns, batch, topic.max_batch_bytes)
        before = self._last.get(partition)
        is_quick = not wants_columns or conversion_bytes(header, batch) <= CONVERTED_ON_LOOP
        if before is None and is_quick:
            return convert() if wants_columns else batch
        gone_on = self._last[partition] = asyncio.get_running_loop().create_future()
        try:
            return await self._after(before, convert if wants_columns else lambda: batch, is_quick)
        finally:
            if self._last.get(partition) is gone_on:
                del self._last[partition]
            if not gone_on.done():  # the one that waits for it may have been cancelled
                gone_on.set_result(None)

    async def _after(self, before: asyncio.Future[None] | None, convert: Callable[[], Bytes], is_quick: bool) -> Bytes:
        try:
            return convert() if is_quick else await self._off_loop(convert)
        finally:
            if before is not None:
                await before
