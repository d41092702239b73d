"""A worker's loop for handlers that take one record: a ParallelConsumer, watched.

What must stay true is said there: at least once, each key in its order, and a commit lies below all that is not done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from raylog.api.pool.handlers import Handler

if TYPE_CHECKING:
    from collections.abc import Mapping

    from raylog.api.connection.records import ConsumerRecord, TopicPartition
    from raylog.api.pool.careful_hands import CarefulHands
    from raylog.api.pool.work_meter import WorkMeter

_LOOK_MS: Final = 250


class RecordConsumer(Protocol):
    """The part of a `ParallelConsumer` that is used here."""

    def run(self, timeout_ms: float | None = None) -> None: ...
    def metrics(self) -> dict[str, Any]: ...
    def positions(self) -> Mapping[TopicPartition, int | None]: ...


class RecordLoop:
    """One run of a worker. `pause(0)` says whether to stop."""

    def __init__(
        self, consumer: RecordConsumer, concurrency: int, meter: WorkMeter, pause: Callable[[float], bool]
    ) -> None:
        self._consumer = consumer
        self._concurrency = concurrency
        self._meter = meter
        self._pause = pause
        found = meter.read()
        self._before = found.handled, found.failed, found.put_aside  # by consumers of this worker before this one

    def run(self) -> None:
        """Work until `pause` says stop. HandlerFailed, HandlerTimedOut, and what consumers raise."""
        while not self._pause(0):
            self._consumer.run(_LOOK_MS)
            self.look()

    def look(self) -> None:
        """Pass the consumer's counts on, and how far it is."""
        told = self.count()
        positions = self._consumer.positions()
        if told["records_held"]:
            self._meter.reads(len(positions))
            self._meter.has(told["records_running"], is_full=told["records_held"] > self._concurrency)
        else:
            known = {place: offset for place, offset in positions.items() if offset is not None}
            self._meter.rests(known, len(positions))

    def count(self) -> dict[str, Any]:
        """Pass the consumer's counts on. It may be closed."""
        told = self._consumer.metrics()
        handled, failed, put_aside = self._before
        self._meter.set_totals(
            handled=handled + told["records_done"],
            failed=failed + told["attempts_failed"],
            put_aside=put_aside + told["records_given_up"],
        )
        return told


def watched(handler: Handler, hands: CarefulHands) -> Callable[[ConsumerRecord], Any]:
    """Return the handler as one ParallelConsumer takes it, with careful hands around each call."""
    if handler.is_async:
        one_at_a_time = asyncio.Lock()  # a lock belongs to one loop, and each ParallelConsumer has its own

        async def handle_async(record: ConsumerRecord) -> None:
            async with hands.over_async(record, one_at_a_time):
                await handler.function(record)

        return handle_async

    def handle(record: ConsumerRecord) -> Any:
        with hands.over(record):
            return handler.function(record)

    return handle
