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
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from raylog.api.connection.option_help import lists_options
from raylog.api.connection.process_bound import ProcessBound
from raylog.api.connection.records import (
    ConsumerRecord,
    GroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)
from raylog.api.consumer.consumer import Consumer
from raylog.api.consumer.consumer_commits import Offset
from raylog.api.consumer.consumer_queries import check_topics
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
        self._options = ConsumerOptions.parse(settings)  # says what is wrong with them at once
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
        consumer.tell_of_arrivals(tell)
        consumer.follow_group_elsewhere()
        self._inner = consumer
        try:
            if self._topics:
                await self.subscribe(self._topics)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop fetching. A call that waits ends with ConsumerClosed. Twice is once."""
        if self._inner is not None:
            await asyncio.to_thread(self._inner.close)

    async def _leave(self, error: BaseException | None) -> None:
        """A block that ends by an error does not commit; see `Consumer.close`."""
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
        """Read these topics, in place of those before; see `Consumer.subscribe`.

        The calls of a `listener` may be coroutine functions. They are awaited on this loop, within a poll.
        """
        consumer = self._consumer()
        check_listener(listener)
        if listener is not None:
            listener = _ListenerOnLoop(listener, asyncio.get_running_loop())
        names = topics if isinstance(topics, str) else list(topics)
        for name in () if isinstance(names, str) else names:
            await asyncio.to_thread(consumer.partitions_for_topic, name)  # from here on it is known without asking
        consumer.subscribe(names, pattern, listener)

    def unsubscribe(self) -> None:
        """Read nothing; leave the group, without a word to its listener."""
        self._consumer().unsubscribe()

    def subscription(self) -> set[str] | None:
        """The topics that were named; None: none were."""
        return self._consumer().subscription()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these. Those it reads already go on where they are."""
        self._consumer().assign(partitions)

    def assignment(self) -> set[TopicPartition]:
        """What is read now."""
        return self._consumer().assignment()

    # --- records --------------------------------------------------------------------------------------------------

    async def poll(
        self, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """The next records; waits so long for the first. aiokafka calls it `getmany`.

        >>> for partition, records in (await consumer.poll(timeout_ms=100)).items():
        ...     await handle(partition, records)
        """
        found = await self._until(timeout_ms / 1000, lambda consumer: consumer.poll(0, max_records))
        return found or {}

    getmany = poll

    async def getone(self) -> ConsumerRecord:
        """The next record, however long it takes."""
        found = await self._until(math.inf, lambda consumer: consumer.poll(0, 1))
        assert found
        return next(iter(found.values()))[0]

    async def poll_batches(self, timeout_ms: float = 0, max_bytes: int | None = None) -> list[ColumnBatch]:
        """The next batches as columns, as `Consumer.poll_batches` gives them."""
        return await self._until(timeout_ms / 1000, lambda consumer: consumer.poll_batches(0, max_bytes)) or []

    async def poll_arrow(
        self, timeout_ms: float = 0, max_bytes: int | None = None, *, include_headers: bool = False
    ) -> pa.Table:
        """The next batches as one Arrow table. Needs pyarrow."""
        from raylog.api.consumer.rules.arrow_poll import to_table

        return to_table(await self.poll_batches(timeout_ms, max_bytes), include_headers=include_headers)

    def __aiter__(self) -> AsyncGenerator[ConsumerRecord, None]:
        """Record after record, for ever, or until none has come for `consumer_timeout_ms`."""
        return self._records()

    async def _records(self) -> AsyncGenerator[ConsumerRecord, None]:
        seconds = self._options.consumer_timeout_ms / 1000
        while (piece := await self._until(seconds, lambda consumer: consumer.next_piece(0))) is not None:
            for record in piece:
                yield record

    # --- positions ------------------------------------------------------------------------------------------------

    async def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int:
        """The offset of the next record to be handed out. NotAssigned, NoOffsetReset, RequestTimedOut."""
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

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Go on at this offset with the next poll. NotAssigned."""
        self._consumer().seek(partition, offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on at the first record there is; without any partition named, in all of them. NotAssigned."""
        self._consumer().seek_to_beginning(*partitions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on behind the last record there is; without any partition named, in all of them. NotAssigned."""
        self._consumer().seek_to_end(*partitions)

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out nothing of these until they are resumed; what is fetched already is kept. NotAssigned."""
        self._consumer().pause(*partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """Let polls return records of these partitions again."""
        self._consumer().resume(*partitions)

    def paused(self) -> set[TopicPartition]:
        """The partitions of which polls return nothing for now."""
        return self._consumer().paused()

    # --- the group ------------------------------------------------------------------------------------------------

    async def commit(
        self, offsets: Mapping[TopicPartition, Offset] | None = None, timeout_ms: float | None = None
    ) -> None:
        """Have the group remember these offsets; without any: how far this consumer is. See `Consumer.commit`."""
        await asyncio.to_thread(self._consumer().commit, offsets, timeout_ms)

    async def committed(
        self, partition: TopicPartition, metadata: bool = False, timeout_ms: float | None = None
    ) -> int | OffsetAndMetadata | None:
        """The offset that the group has committed last, `metadata`: with its note; None: there is none."""
        return await asyncio.to_thread(self._consumer().committed, partition, metadata, timeout_ms)

    def group_metadata(self) -> GroupMetadata:
        """Who this consumer is in its group just now; for commits within a transaction."""
        return self._consumer().group_metadata()

    # --- questions to the cluster ---------------------------------------------------------------------------------

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset of the first record of each. UnknownTopic, UnknownPartition, ClusterUnreachable."""
        return await asyncio.to_thread(self._consumer().beginning_offsets, partitions)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset behind the last record of each that this consumer may see."""
        return await asyncio.to_thread(self._consumer().end_offsets, partitions)

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """For each the first record at this time (milliseconds since 1970) or later; None: there is none."""
        return await asyncio.to_thread(self._consumer().offsets_for_times, timestamps)

    def highwater(self, partition: TopicPartition) -> int | None:
        """The offset behind the last replicated record, as the last fetch told; None: there was no fetch yet."""
        return self._consumer().highwater(partition)

    async def partitions_for_topic(self, topic: str) -> set[int] | None:
        """The numbers of its partitions; None: there is no such topic."""
        return await asyncio.to_thread(self._consumer().partitions_for_topic, topic)

    async def topics(self) -> set[str]:
        """All topics there are. ClusterUnreachable."""
        return await asyncio.to_thread(self._consumer().topics)

    def metrics(self) -> dict[str, Any]:
        """As `Consumer.metrics`."""
        return self._consumer().metrics()

    # --- how ------------------------------------------------------------------------------------------------------

    def _consumer(self) -> Consumer:
        if self._inner is None:
            raise ConsumerClosed(_NOT_STARTED)
        return self._inner

    async def _until(self, seconds: float, get: Callable[[Consumer], _T | None]) -> _T | None:
        """What `get` returns, as soon as that is something, or the time is over."""
        consumer, loop = self._consumer(), asyncio.get_running_loop()
        deadline = loop.time() + seconds
        await asyncio.sleep(
            0
        )  # who only polls lets others run; not later, for what is found must not be lost to a cancel
        while True:
            self._has_arrived.clear()  # before one looks, so that what comes from here on is not missed
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
        """On a thread, for it may commit. One that a cancelled call has begun is waited for by the next."""
        if self._following is None:
            if not consumer.has_group_news():
                return
            self._following = asyncio.ensure_future(asyncio.to_thread(consumer.follow_group))
        await asyncio.wait([self._following])
        following, self._following = self._following, None
        following.result()


class _ListenerOnLoop:
    """Called on the thread that follows the group, while a task of this loop waits for that."""

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
