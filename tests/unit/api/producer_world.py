"""The real sender of a producer as a client of a simulated cluster; one event loop, no threads."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from raylog.actors.link.cluster_link import ClusterLink
from raylog.api.producer.buffer.record_accumulator import BufferPool, Clocks, RecordAccumulator
from raylog.api.producer.buffer.record_future import RecordFuture
from raylog.api.producer.rules.producer_options import ProducerOptions
from raylog.api.producer.sending.sender import ProducerMetrics, Sender


def _no_pause(_seconds: float) -> None:
    raise AssertionError("With one thread the gate is never closed.")


class LoopProducer:
    """To be made and used on the loop of its link."""

    def __init__(self, link: ClusterLink, **options: object) -> None:
        self.options = ProducerOptions.parse(options)
        loop = asyncio.get_running_loop()
        clocks = Clocks(lambda: link.env.wall_ms() / 1000, loop.time, _no_pause)
        self.pool = BufferPool(self.options.buffer_memory)
        seconds = self.options.delivery_timeout_ms / 1000
        self.accumulator = RecordAccumulator(
            self.pool, self.options.batch_size, seconds, clocks, lambda: loop.call_soon(self.sender.drain)
        )
        self.metrics = ProducerMetrics(self.pool)
        self.sender = Sender(link, self.accumulator, self.options, self.metrics)

    def send(self, topic: str, partition: int, value: bytes, key: bytes | None = None) -> RecordFuture:
        sent = self.accumulator.append(self.accumulator.queue(topic, partition), key, value)
        assert sent is not None, "There is no room."
        return sent

    async def flush(self) -> None:
        for batch in self.accumulator.flush():
            done = asyncio.get_running_loop().create_future()
            batch.listen(lambda done=done: done.done() or done.set_result(None))  # type: ignore[misc]
            await done


def outcomes(futures: Sequence[RecordFuture]) -> Iterator[int | Exception]:
    for future in futures:
        error = future.exception(0)
        yield future.result(0).offset if error is None else error
