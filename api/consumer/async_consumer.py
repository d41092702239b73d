"""The consumer for asyncio: the one for threads, asked without waiting, on the event loop of whoever uses it.

    poll ──nothing has come──► wait for an event of this loop ──arrivals set it, from the client loop──► poll again

What must stay true:
- Nothing here blocks the event loop. What has to ask the cluster does so on a thread.
- Positions are those of the consumer inside, so a cancelled call loses no record.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncGenerator, Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Final, TypeVar

from raylog.api.connection.async_calls import at_once, on_thread
from raylog.api.connection.option_help import lists_options
from raylog.api.connection.process_bound import ProcessBound
from raylog.api.connection.records import ConsumerRecord, TopicPartition
from raylog.api.consumer.consumer import Consumer, core_of
from raylog.api.consumer.consumer_core import check_topics
from raylog.api.consumer.group.rebalance_listener import ListensToRebalances, check_listener
from raylog.api.consumer.rules.column_batches import ColumnBatch
from raylog.api.consumer.rules.consumer_options import ConsumerOptions, ConsumerSettings
from raylog.errors import ConsumerClosed, RequestTimedOut

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Unpack


_NOT_STARTED: Final = "it was not started (`await consumer.start()`, or `async with`)"
_T = TypeVar("_T")


@lists_options(ConsumerSettings, ConsumerOptions)
class AsyncConsumer(ProcessBound):
    """Reads records of topics, or of single partitions, in coroutines; also in asyncio actors of Ray.

    >>> async with raylog.AsyncConsumer("clicks", auto_offset_reset="earliest") as consumer:
    ...     async for record in consumer:
    ...         print(record.partition, record.offset, record.value)

    Options are those of `raylog.Consumer`. One task at a time uses it; `stop` may come from another.
    """

    def __init__(self, *topics: str, **settings: Unpack[ConsumerSettings]) -> None:
        check_topics(topics, type(self).__name__)
        self._options = ConsumerOptions.parse(settings)  # raises at once if one of them is wrong
        self._topics = topics
        self._settings = settings
        self._inner: Consumer | None = None
        self._has_arrived = asyncio.Event()
        self._following: asyncio.Future[None] | None = None

    async def start(self) -> None:
        """Connect, and begin to fetch. UnknownTopic, ClusterNotFound, ClusterUnreachable, PeerNotAdmitted."""
        if self._inner is not None:
            return
        loop = asyncio.get_running_loop()

        def tell() -> None:
            with contextlib.suppress(RuntimeError):  # that loop is closed, and nobody waits on it
                loop.call_soon_threadsafe(self._has_arrived.set)

        consumer = await asyncio.to_thread(Consumer, **self._settings)
        core = core_of(consumer)
        core.on_arrival(tell)
        core.is_group_followed = False  # `_follow_group` does it
        self._inner = consumer
        try:
            if self._topics:
                await self.subscribe(self._topics)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop fetching: `Consumer.close`. A call that waits ends with ConsumerClosed. A second call does nothing."""
        if self._inner is not None:
            await asyncio.to_thread(self._inner.close)

    async def _leave(self, error: BaseException | None) -> None:
        """Stop; do not commit if the block ended by an error."""
        if self._inner is not None:
            kind = None if error is None else type(error)
            await asyncio.to_thread(self._inner.__exit__, kind, error, None)

    async def __aenter__(self) -> AsyncConsumer:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._leave(error)

    def __repr__(self) -> str:
        if self._inner is None:
            return "<AsyncConsumer, not started>"
        return repr(self._inner).replace("Consumer", "AsyncConsumer", 1)

    # --- what is read ---------------------------------------------------------------------------------------------

    async def subscribe(
        self, topics: Iterable[str] = (), pattern: str | None = None, listener: ListensToRebalances | None = None
    ) -> None:
        """Read these `topics`, or those that match `pattern`, in place of those before; see `Consumer.subscribe`.

        The methods of a `listener` may be coroutine functions. They are awaited on this loop, within a poll.
        """
        consumer = self._started()
        check_listener(listener)
        if listener is not None:
            listener = _ListenerOnLoop(listener, asyncio.get_running_loop())
        names = topics if isinstance(topics, str) else list(topics)
        for name in () if isinstance(names, str) else names:
            await asyncio.to_thread(consumer.partitions_for_topic, name)  # from here on its metadata is known
        consumer.subscribe(names, pattern, listener)

    unsubscribe = at_once(Consumer.unsubscribe)  # does not call the listener
    subscription = at_once(Consumer.subscription)
    assign = at_once(Consumer.assign)
    assignment = at_once(Consumer.assignment)

    # --- records --------------------------------------------------------------------------------------------------

    async def poll(
        self, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return the next records; `timeout_ms` and `max_records` as in `Consumer.poll`. aiokafka calls it `getmany`.

        >>> for partition, records in (await consumer.poll(timeout_ms=100)).items():
        ...     await handle(partition, records)
        """
        found = await self._until(timeout_ms / 1000, lambda consumer: consumer.poll(0, max_records))
        return found or {}

    getmany = poll

    async def getone(self) -> ConsumerRecord:
        """Return the next record, however long it takes."""
        found = await self._until(math.inf, lambda consumer: consumer.poll(0, 1))
        assert found
        return next(iter(found.values()))[0]

    async def poll_batches(self, timeout_ms: float = 0, max_bytes: int | None = None) -> list[ColumnBatch]:
        """Return the next batches as columns; `timeout_ms` and `max_bytes` as in `Consumer.poll_batches`."""
        return await self._until(timeout_ms / 1000, lambda consumer: consumer.poll_batches(0, max_bytes)) or []

    async def poll_arrow(
        self, timeout_ms: float = 0, max_bytes: int | None = None, *, include_headers: bool = False
    ) -> pa.Table:
        """Return the next batches as one Arrow table. Needs pyarrow.

        `timeout_ms`, `max_bytes` and `include_headers` are those of `Consumer.poll_arrow`.
        """
        from raylog.api.consumer.rules.arrow_poll import to_table

        return to_table(await self.poll_batches(timeout_ms, max_bytes), include_headers=include_headers)

    def __aiter__(self) -> AsyncGenerator[ConsumerRecord, None]:
        """Iterate over the records, for ever, or until none has come for `consumer_timeout_ms`."""
        return self._records()

    async def _records(self) -> AsyncGenerator[ConsumerRecord, None]:
        seconds = self._options.consumer_timeout_ms / 1000
        while (piece := await self._until(seconds, lambda consumer: core_of(consumer).next_piece(0))) is not None:
            for record in piece:
                yield record

    # --- positions ------------------------------------------------------------------------------------------------

    async def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int:
        """Return the offset of the next record of `partition`; `timeout_ms` and errors as in `Consumer.position`."""
        seconds = (self._options.request_timeout_ms if timeout_ms is None else timeout_ms) / 1000

        def known(consumer: Consumer) -> tuple[int] | None:
            try:
                return (consumer.position(partition, timeout_ms=0),)
            except RequestTimedOut:
                return None

        found = await self._until(seconds, known)
        if found is None:
            raise RequestTimedOut(f"The leader of {partition}", round(seconds * 1000))
        return found[0]

    seek = at_once(Consumer.seek)
    seek_to_beginning = at_once(Consumer.seek_to_beginning)
    seek_to_end = at_once(Consumer.seek_to_end)
    pause = at_once(Consumer.pause)
    resume = at_once(Consumer.resume)
    paused = at_once(Consumer.paused)

    # --- the group, and questions to the cluster ------------------------------------------------------------------

    commit = on_thread(Consumer.commit)
    committed = on_thread(Consumer.committed)
    group_metadata = at_once(Consumer.group_metadata)
    beginning_offsets = on_thread(Consumer.beginning_offsets)
    end_offsets = on_thread(Consumer.end_offsets)
    offsets_for_times = on_thread(Consumer.offsets_for_times)
    partitions_for_topic = on_thread(Consumer.partitions_for_topic)
    topics = on_thread(Consumer.topics)
    highwater = at_once(Consumer.highwater)
    metrics = at_once(Consumer.metrics)

    # --- how ------------------------------------------------------------------------------------------------------

    def _started(self) -> Consumer:
        if self._inner is None:
            raise ConsumerClosed(_NOT_STARTED)
        return self._inner

    async def _until(self, seconds: float, get: Callable[[Consumer], _T | None]) -> _T | None:
        """Return what `get` returns, as soon as that is something; None after so many seconds."""
        consumer, loop = self._started(), asyncio.get_running_loop()
        deadline = loop.time() + seconds
        # A coroutine that only polls lets others run. Not later: a cancellation there would lose what was found.
        await asyncio.sleep(0)
        while True:
            self._has_arrived.clear()  # before the look, so that nothing that comes from here on is missed
            await self._follow_group(consumer)
            found = get(consumer)
            if found:
                return found
            left = deadline - loop.time()
            if left <= 0:
                return None
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._has_arrived.wait(), None if math.isinf(left) else left)

    async def _follow_group(self, consumer: Consumer) -> None:
        """Follow the group on a thread, since that may commit. If the call is cancelled, the next call waits for it."""
        if self._following is None:
            if not core_of(consumer).has_group_news():
                return
            self._following = asyncio.ensure_future(asyncio.to_thread(core_of(consumer).follow_group))
        await asyncio.wait([self._following])
        following, self._following = self._following, None
        following.result()


class _ListenerOnLoop:
    """Calls a listener on the program's loop, from the thread that follows the group."""

    def __init__(self, listener: object, loop: asyncio.AbstractEventLoop) -> None:
        self._listener = listener
        self._loop = loop

    def on_partitions_assigned(self, partitions: set[TopicPartition], /) -> None:
        self._call("on_partitions_assigned", partitions)

    def on_partitions_revoked(self, partitions: set[TopicPartition], /) -> None:
        self._call("on_partitions_revoked", partitions)

    def on_partitions_lost(self, partitions: set[TopicPartition], /) -> None:
        name = "on_partitions_lost"
        self._call(name if hasattr(self._listener, name) else "on_partitions_revoked", partitions)

    def _call(self, name: str, partitions: set[TopicPartition]) -> None:
        method = getattr(self._listener, name, None)
        if method is None:
            return

        async def call() -> None:
            result = method(partitions)
            if asyncio.iscoroutine(result):
                await result

        asyncio.run_coroutine_threadsafe(call(), self._loop).result()
