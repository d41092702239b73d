"""The producer for asyncio: the one for threads, of which only what never waits is called on the event loop.

    send ──room──► future                              the client loop sends, as for threads; its futures can be awaited
      └──no room──► wait until the buffer gets some back ──► send

What must stay true: nothing here blocks the event loop. What asks the cluster, or ends a producer, does so on a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from raylog.api.connection.async_calls import at_once, on_thread
from raylog.api.connection.kafka_hints import keywords_wanted
from raylog.api.connection.option_help import lists_options
from raylog.api.connection.process_bound import ProcessBound
from raylog.api.connection.records import RecordMetadata
from raylog.api.producer.buffer.interceptors import ProducerRecord
from raylog.api.producer.buffer.record_future import RecordFuture
from raylog.api.producer.producer import Producer, core_of
from raylog.api.producer.producer_core import ProducerCore
from raylog.api.producer.rules.producer_options import ProducerOptions, ProducerSettings
from raylog.errors import BufferFull, ProducerClosed, RaylogError, ResultNotReady

if TYPE_CHECKING:
    from typing_extensions import Never, Unpack

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
        self.options = ProducerOptions.parse(settings)  # raises at once if one of them is wrong
        self._settings = settings
        self._inner: Producer | None = None
        self._sent = 0

    async def start(self) -> None:
        """Connect. ClusterNotFound, ClusterUnreachable, PeerNotAdmitted."""
        if self._inner is None:
            self._inner = await asyncio.to_thread(Producer, **self._settings)

    async def stop(self, timeout: float | None = None) -> None:
        """Deliver what was taken, and disconnect: `Producer.close` with this `timeout`. A second call does nothing."""
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
        """Take one record; returns the future of its delivery, which can be awaited.

        `topic`, `value`, `key`, `headers`, `partition`, `timestamp_ms` and the errors are those of `Producer.send`.
        """
        self._sent += 1
        if self._sent % _YIELD_EVERY == 0:
            await asyncio.sleep(0)
        core = self._core()
        if (
            type(value) is bytes
            and (key is None or type(key) is bytes)
            and headers is None
            and partition is None
            and timestamp_ms is None
            and topic in core.routes
        ):
            taken = core.append_plain(topic, value, key)
            if taken is not None:
                return taken
        if not core.knows(topic):
            await asyncio.to_thread(core.find_topic, topic)
        until = time.monotonic() + self.options.max_block_ms / 1000
        prepared = core.prepare(ProducerRecord(topic, value, key, headers, partition, timestamp_ms), until)
        while (sent := core.append(prepared)) is None:
            await self._wait_for_room(core, prepared.size, until)
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
        """Send one record, and wait until it is delivered. Raises why it failed.

        `topic`, `value`, `key`, `headers`, `partition` and `timestamp_ms` are those of `Producer.send`.
        """
        return await (await self.send(topic, value, key, headers, partition, timestamp_ms))

    send_many = on_thread(Producer.send_many)
    send_arrow = on_thread(Producer.send_arrow)

    async def flush(self, timeout: float | None = None) -> None:
        """Do what `Producer.flush` does, while other coroutines go on. ResultNotReady after `timeout` seconds."""
        waiting = [_told(batch.listen) for batch in self._core().begin_flush() if batch.outcome is None]
        if waiting and (await asyncio.wait(waiting, timeout=timeout))[1]:
            raise ResultNotReady("records that were taken are not delivered", round(1000 * (timeout or 0)))

    # --- transactions -----------------------------------------------------------------------------------------------

    init_transactions = on_thread(Producer.init_transactions)
    begin_transaction = on_thread(Producer.begin_transaction)
    send_offsets_to_transaction = on_thread(Producer.send_offsets_to_transaction)
    commit_transaction = on_thread(Producer.commit_transaction)
    abort_transaction = on_thread(Producer.abort_transaction)

    @asynccontextmanager
    async def transaction(self, timeout: float | None = None) -> AsyncIterator[None]:
        """Run the block as one transaction, with `async with`; `timeout` and the rest as `Producer.transaction`."""
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
        if self._core().transactional().transaction.can_abort:
            await self.abort_transaction(timeout)

    # --- the rest -----------------------------------------------------------------------------------------------------

    partitions_for = on_thread(Producer.partitions_for)
    metrics = at_once(Producer.metrics)

    def _started(self) -> Producer:
        if self._inner is None:
            raise ProducerClosed(_NOT_STARTED)
        return self._inner

    def _core(self) -> ProducerCore:
        return core_of(self._started())

    async def _wait_for_room(self, core: ProducerCore, size: int, until: float) -> None:
        left = until - time.monotonic()
        if left <= 0:
            raise BufferFull(size, self.options.buffer_memory, self.options.max_block_ms)
        with core.room_wanted(size) as listen:
            await asyncio.wait([_told(listen)], timeout=left)


def _told(listen: Callable[[Callable[[], object]], None]) -> asyncio.Future[None]:
    """Return a future of this loop, which is done when the listener is called, on whichever thread."""
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
