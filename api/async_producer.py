"""The producer for asyncio: the one for threads, of which only what never waits is called on the event loop.

    send ──room──► future                              the client loop sends, as for threads; its futures can be awaited
      └──no room──► wait for something to be given back ──► send

What must stay true: nothing here blocks the event loop. What asks the cluster, or ends a producer, does so on a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from raylog.api.bulk_send import BulkFuture
from raylog.api.interceptors import ProducerRecord
from raylog.api.kafka_habits import keywords_wanted
from raylog.api.option_help import lists_options
from raylog.api.process_bound import ProcessBound
from raylog.api.producer import Producer
from raylog.api.producer_options import ProducerOptions, ProducerSettings
from raylog.api.record_future import RecordFuture
from raylog.api.records import GroupMetadata, RecordMetadata
from raylog.errors import BufferFull, ProducerClosed, RaylogError, ResultNotReady

if TYPE_CHECKING:
    from typing_extensions import Never, Unpack

    from raylog.api.transaction_offsets import Offsets

_NOT_STARTED: Final = "it was not started (`await producer.start()`, or `async with`)"
_YIELD_EVERY: Final = 256  # records, after which others on the loop have a turn although nothing was waited for


@lists_options(ProducerSettings, ProducerOptions)
class AsyncProducer(ProcessBound):
    """Sends records from coroutines; also in asyncio actors of Ray.

    >>> async with raylog.AsyncProducer(linger_ms=5) as producer:           # doctest: +SKIP
    ...     metadata = await producer.send_and_wait("clicks", b"value", key=b"user-1")
    ...     future = await producer.send("clicks", b"value")     # taken; `await future` for where it is
    ...     await producer.flush()

    Options are those of `raylog.Producer`. Leaving the block delivers what is left.
    """

    def __init__(self, *misplaced: Never, **settings: Unpack[ProducerSettings]) -> None:
        if misplaced:
            raise TypeError(keywords_wanted(type(self).__name__))
        self.options = ProducerOptions.parse(settings)  # says what is wrong with them at once
        self._settings = settings
        self._inner: Producer | None = None
        self._sent = 0

    async def start(self) -> None:
        """Connect. ClusterNotFound, ClusterUnreachable, PeerNotAdmitted."""
        if self._inner is None:
            self._inner = await asyncio.to_thread(Producer, **self._settings)

    async def stop(self, timeout: float | None = None) -> None:
        """Deliver what was taken, and let go of the cluster. What is not delivered in time fails. Twice is once."""
        if self._inner is not None:
            await asyncio.to_thread(self._inner.close, timeout)

    async def __aenter__(self) -> AsyncProducer:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def __repr__(self) -> str:
        if self._inner is None:
            return "<AsyncProducer, not started>"
        return repr(self._inner).replace("Producer", "AsyncProducer", 1)

    # --- sending --------------------------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordFuture:
        """Take one record; returns the future of its delivery, which can be awaited. What `Producer.send` raises."""
        self._sent += 1
        if self._sent % _YIELD_EVERY == 0:
            await asyncio.sleep(0)
        if type(value) is bytes and headers is None and partition is None and timestamp_ms is None:
            at_once = self._producer().send_at_once(topic, value, key)
            if at_once is not None:
                return at_once
        producer = await self._ready(topic)
        until = time.monotonic() + self.options.max_block_ms / 1000
        prepared = producer.prepare(ProducerRecord(topic, value, key, headers, partition, timestamp_ms), until)
        while (sent := producer.offer(prepared)) is None:
            await self._room(producer, prepared.size, until)
        return sent

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """Send one record, and wait until it is delivered. Raises why it failed."""
        return await (await self.send(topic, value, key, headers, partition, timestamp_ms))

    async def send_many(
        self,
        topic: str,
        values: Sequence[Any],
        keys: Sequence[Any] | None = None,
        timestamps: Sequence[int] | int | None = None,
        headers: Sequence[Any] | None = None,
        partition: int | None = None,
    ) -> BulkFuture:
        """Take many records at once, as columns, on a thread. `await` the future for where they are."""
        producer = self._producer()
        return await asyncio.to_thread(producer.send_many, topic, values, keys, timestamps, headers, partition)

    async def send_arrow(self, topic: str, table: Any, partition: int | None = None) -> BulkFuture:
        """Take the rows of an Arrow table, on a thread."""
        return await asyncio.to_thread(self._producer().send_arrow, topic, table, partition)

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until all that was taken before is delivered or has failed. ResultNotReady after `timeout` seconds."""
        waiting = [_told(batch.listen) for batch in self._producer().begin_flush() if batch.outcome is None]
        if waiting and (await asyncio.wait(waiting, timeout=timeout))[1]:
            raise ResultNotReady("records that were taken are not delivered", round(1000 * (timeout or 0)))

    # --- transactions -----------------------------------------------------------------------------------------------

    async def init_transactions(self, timeout: float | None = None) -> None:
        """As `Producer.init_transactions`."""
        await asyncio.to_thread(self._producer().init_transactions, timeout)

    async def begin_transaction(self) -> None:
        """As `Producer.begin_transaction`."""
        await asyncio.to_thread(self._producer().begin_transaction)

    async def send_offsets_to_transaction(
        self,
        offsets: Offsets,
        group_metadata: GroupMetadata,
        timeout: float | None = None,
    ) -> None:
        """As `Producer.send_offsets_to_transaction`."""
        await asyncio.to_thread(self._producer().send_offsets_to_transaction, offsets, group_metadata, timeout)

    async def commit_transaction(self, timeout: float | None = None) -> None:
        """As `Producer.commit_transaction`."""
        await asyncio.to_thread(self._producer().commit_transaction, timeout)

    async def abort_transaction(self, timeout: float | None = None) -> None:
        """As `Producer.abort_transaction`."""
        await asyncio.to_thread(self._producer().abort_transaction, timeout)

    @asynccontextmanager
    async def transaction(self, timeout: float | None = None) -> AsyncIterator[None]:
        """One transaction: `async with`. It is committed at the end of the block, or aborted if the block raises."""
        await self.begin_transaction()
        try:
            yield
        except BaseException:
            await self._abort_if_open(timeout)
            raise
        try:
            await self.commit_transaction(timeout)
        except RaylogError as error:
            if error.abortable:
                await self._abort_if_open(timeout)
            raise

    async def _abort_if_open(self, timeout: float | None) -> None:
        await asyncio.to_thread(self._producer().abort_if_open, timeout)

    # --- the rest -----------------------------------------------------------------------------------------------------

    async def partitions_for(self, topic: str) -> set[int]:
        """The numbers of the topic's partitions. UnknownTopic, ClusterUnreachable."""
        return await asyncio.to_thread(self._producer().partitions_for, topic)

    def metrics(self) -> dict[str, float]:
        """What this producer has done, under the names of Kafka's producer metrics."""
        return self._producer().metrics()

    # --- how ------------------------------------------------------------------------------------------------------

    def _producer(self) -> Producer:
        if self._inner is None:
            raise ProducerClosed(_NOT_STARTED)
        return self._inner

    async def _ready(self, topic: str) -> Producer:
        producer = self._producer()
        if not producer.knows(topic):
            await asyncio.to_thread(producer.partitions_for, topic)
        return producer

    async def _room(self, producer: Producer, size: int, until: float) -> None:
        left = until - time.monotonic()
        if left <= 0:
            raise BufferFull(size, self.options.buffer_memory, self.options.max_block_ms)
        with producer.room_wanted(size) as listen:
            await asyncio.wait([_told(listen)], timeout=left)


def _told(listen: Callable[[Callable[[], object]], None]) -> asyncio.Future[None]:
    """Done, on this loop, when the listener is called, on whichever thread."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def finish() -> None:
        if not future.done():
            future.set_result(None)

    def tell() -> None:
        with contextlib.suppress(RuntimeError):  # that loop is closed, and nobody waits on it
            loop.call_soon_threadsafe(finish)

    listen(tell)
    return future
