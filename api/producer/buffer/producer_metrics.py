"""Counts of a producer's work. They are made per batch, never per record, so that counting costs nothing.

Names are those of Kafka's producer metrics. Everything is counted on the event loop and may be read from any thread.
"""

from __future__ import annotations

from raylog.api.producer.buffer.record_accumulator import BufferPool
from raylog.api.producer.rules.producer_batch import ProducerBatch


class ProducerMetrics:
    def __init__(self, pool: BufferPool) -> None:
        self._pool = pool
        self._in_flight = 0
        self._records_sent = 0
        self._records_failed = 0
        self._batches = 0
        self._retries = 0
        self._bytes = 0
        self._records_requested = 0
        self._requests_answered = 0
        self._seconds = 0.0
        self._longest_seconds = 0.0
        self._queued_seconds = 0.0

    def sent(self, batch: ProducerBatch, size: int, now: float, is_retry: bool) -> None:
        """A request was sent."""
        self._batches += 1
        self._retries += is_retry
        self._bytes += size
        self._records_requested += batch.count
        self._queued_seconds += max(0.0, now - batch.opened_at)

    def acknowledged(self, count: int, seconds: float) -> None:
        self._records_sent += count
        self._requests_answered += 1
        self._seconds += seconds
        self._longest_seconds = max(self._longest_seconds, seconds)

    def resolved(self, batch: ProducerBatch) -> None:
        if batch.outcome is not None and batch.outcome.error is not None:
            parts = [count for _, count, outcome in batch.parts if outcome.error is not None]
            self._records_failed += sum(parts) if parts else batch.count

    def read(self) -> dict[str, float]:
        """The figures as they are now."""
        requests = max(1, self._batches)
        return {
            "record-send-total": self._records_sent,
            "record-error-total": self._records_failed,
            "record-retry-total": self._retries,
            "request-total": self._batches,
            "byte-total": self._bytes,
            "batch-size-avg": self._bytes / requests,
            "records-per-request-avg": self._records_requested / requests,
            "record-queue-time-avg": 1000 * self._queued_seconds / requests,
            "request-latency-avg": 1000 * self._seconds / max(1, self._requests_answered),
            "request-latency-max": 1000 * self._longest_seconds,
            "buffer-total-bytes": self._pool.limit,
            "buffer-available-bytes": self._pool.free,
            "waiting-threads": self._pool.waiting,
        }
