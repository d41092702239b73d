"""The consumer for plain threads: a façade over `ConsumerCore`, which says what must stay true."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Generator, Iterable, Iterator
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Any

from raylog.actors.protocol.replication_messages import EARLIEST, LATEST, NO_EPOCH
from raylog.api.connection.option_help import lists_options
from raylog.api.connection.process_bound import ProcessBound
from raylog.api.connection.records import ConsumerRecord, OffsetAndMetadata, TopicPartition, as_partition
from raylog.api.consumer.consumer_commits import ConsumerCommits
from raylog.api.consumer.consumer_core import ConsumerCore, as_topic_name, check_topics
from raylog.api.consumer.consumer_queries import ConsumerQueries
from raylog.api.consumer.group.rebalance_listener import ListensToRebalances, check_listener
from raylog.api.consumer.rules.column_batches import ColumnBatch
from raylog.api.consumer.rules.consumer_options import ConsumerOptions, ConsumerSettings
from raylog.api.consumer.rules.positions import UNKNOWN
from raylog.errors import ConflictingSubscription, GroupRequired, RequestTimedOut

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Unpack


@lists_options(ConsumerSettings, ConsumerOptions)
class Consumer(ConsumerCommits, ConsumerQueries, ProcessBound):
    """Reads records of topics, or of single partitions.

    >>> with raylog.Consumer("clicks", auto_offset_reset="earliest") as consumer:
    ...     for record in consumer:
    ...         print(record.topic, record.partition, record.offset, record.key, record.value)

    Without a group it reads all partitions of the topics it is given, also those that are added later. Or it is told:

    >>> consumer = raylog.Consumer(value_deserializer=json.loads)
    >>> consumer.assign([TopicPartition("clicks", 0)])
    >>> consumer.seek(TopicPartition("clicks", 0), 42)
    >>> consumer.poll(timeout_ms=100, max_records=500)       # {TopicPartition: [ConsumerRecord, ...]}

    With a `group_id` the consumers of that name share the partitions, and go on where the group has been:

    >>> with raylog.Consumer("clicks", group_id="billing") as consumer:
    ...     for record in consumer:
    ...         handle(record)                                     # committed every 5 s, once the next one is asked for
    >>> consumer = raylog.Consumer("clicks", group_id="billing", enable_auto_commit=False)    # or by `commit`

    For many records at once there are columns: `poll_batches` and `poll_arrow`. Options and their defaults are
    kafka-python's; `ConsumerOptions` lists them. `cluster` names the cluster, or is what `raylog.start` or
    `raylog.connect` returned; there is no need to say it where there is one.

    A consumer is used by one thread at a time; `wakeup` and `close` may come from any.
    """

    def __init__(self, *topics: str, **settings: Unpack[ConsumerSettings]) -> None:
        check_topics(topics, type(self).__name__)
        self._core = ConsumerCore(ConsumerOptions.parse(settings))
        self._iterator: Iterator[ConsumerRecord] | None = None
        self._iterating = 0  # the thread that the iterator was made for
        try:
            if topics:
                self.subscribe(topics)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._core.close(None, commit=error is None)

    def __repr__(self) -> str:
        return self._core.describe(type(self).__name__)

    # --- what is read ---------------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Iterable[str] = (),
        pattern: str | None = None,
        listener: ListensToRebalances | None = None,
    ) -> None:
        """Read these `topics`, in place of those before. UnknownTopic, ClusterUnreachable, InvalidSubscription.

        Without a group it reads all their partitions. With one it reads its share: the members of the group divide the
        partitions, and each begins where the group has committed last. `pattern`, in RE2's syntax, means all topics
        whose whole name matches, also those that come later. `listener`, a `RebalanceListener`, is called when
        partitions are assigned and revoked.

        >>> consumer.subscribe(["clicks", "views"])
        """
        self._core.check_open()
        if isinstance(topics, str):
            raise TypeError(f"subscribe takes a list of topics: subscribe([{topics!r}]).")
        check_listener(listener)
        names = list(dict.fromkeys(topics))
        if not names and not pattern:
            raise ConflictingSubscription("no topic was named")
        if self._core.group is not None:
            self._core.group.subscribe(map(as_topic_name, names), pattern or "", listener)
            return
        if pattern is not None or listener is not None:
            raise GroupRequired("subscribe(pattern=…)" if listener is None else "subscribe(listener=…)")
        views = [self._core.find_topic(name) for name in names]
        self._core.subscriptions.subscribe(views)

    def unsubscribe(self) -> None:
        """Stop reading everything, and leave the group."""
        self._core.check_open()
        if self._core.group is not None:
            self._core.group.unsubscribe(tell_listener=self._core.is_group_followed)
        else:
            self._core.subscriptions.unsubscribe()

    def subscription(self) -> set[str] | None:
        """Return the topics that `subscribe` was given; None: none."""
        named = self._core.subscriptions.subscription if self._core.group is None else self._core.group.topics
        return set(named) or None

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these `partitions`. Those that are read already keep their positions.

        The others begin where the group has committed last, or, without a group, where `auto_offset_reset` says.

        >>> consumer.assign([TopicPartition("clicks", 0), TopicPartition("clicks", 1)])
        """
        self._core.check_open()
        wanted = list(map(as_partition, partitions))
        if self._core.group is not None:
            self._core.group.assign(wanted)
        else:
            self._core.subscriptions.assign(wanted)

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions that are read at present."""
        self._core.receive()
        return set(self._core.subscriptions.positions)

    # --- records --------------------------------------------------------------------------------------------------

    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return the next records, at most `max_records` (max_poll_records by default), by partition.

        It waits at most `timeout_ms` for the first one; without any it returns an empty dictionary. Partitions take
        turns, and each one's records come in order. ConsumerInUse: another thread polls.

        >>> for partition, records in consumer.poll(timeout_ms=100).items():
        ...     handle(partition, records)
        """
        most = self._core.options.max_poll_records if max_records is None else max_records
        if type(most) is not int or most < 1:
            raise ValueError(f"max_records is a whole number from 1 on, and not {most!r}.")
        collector = self._core.subscriptions.collector
        return self._core.poll_until(timeout_ms / 1000, lambda: collector.poll(most)) or {}

    def poll_batches(self, timeout_ms: float = 0, max_bytes: int | None = None) -> list[ColumnBatch]:
        """Return the next batches as columns: about `max_bytes` (max_partition_fetch_bytes by default), at least one.

        It waits at most `timeout_ms` for the first one; see `poll`.

        >>> for batch in consumer.poll_batches(timeout_ms=100):
        ...     total += len(batch)
        ...     write(batch.keys, batch.values, batch.timestamps)
        """
        most = self._core.options.max_partition_fetch_bytes if max_bytes is None else max_bytes
        if type(most) is not int or most < 1:
            raise ValueError(f"max_bytes is a whole number from 1 on, and not {most!r}.")
        collector = self._core.subscriptions.collector
        return self._core.poll_until(timeout_ms / 1000, lambda: collector.poll_batches(most)) or []

    def poll_arrow(
        self, timeout_ms: float = 0, max_bytes: int | None = None, *, include_headers: bool = False
    ) -> pa.Table:
        """Return the next batches as one Arrow table: topic, partition, offset, timestamp, key, value. Needs pyarrow.

        `timeout_ms` and `max_bytes` are those of `poll_batches`. With `include_headers` there is a column of headers.

        >>> consumer.poll_arrow(timeout_ms=1000).to_pandas()
        """
        from raylog.api.consumer.rules.arrow_poll import to_table

        return to_table(self.poll_batches(timeout_ms, max_bytes), include_headers=include_headers)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Iterate over the records, for ever, or until none has come for `consumer_timeout_ms`."""
        me = threading.get_ident()
        if self._iterator is None or self._iterating != me:  # two threads in one iterator are Python's to refuse
            self._core.check_open()
            self._iterating = me
            self._iterator = chain.from_iterable(_pieces(weakref.ref(self)))
        return self._iterator

    def __next__(self) -> ConsumerRecord:
        return next(iter(self))

    # --- positions ------------------------------------------------------------------------------------------------

    def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int:
        """Return the offset of the next record that `poll` returns from `partition`. NotAssigned, NoOffsetReset.

        RequestTimedOut: it is not known within `timeout_ms` (request_timeout_ms by default).
        """
        partition = as_partition(partition)
        collector = self._core.subscriptions.collector

        def known() -> tuple[int] | None:
            collector.check(partition)
            offset = collector.position(partition)
            return None if offset == UNKNOWN else (offset,)

        seconds = self._core.timeout if timeout_ms is None else timeout_ms / 1000
        found = self._core.poll_until(seconds, known)
        if found is None:
            raise RequestTimedOut(f"The leader of {partition}", round(seconds * 1000))
        return found[0]

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Continue `partition` at this `offset` with the next poll. NotAssigned.

        >>> consumer.seek(TopicPartition("clicks", 0), 42)
        """
        self._core.check_open()
        if isinstance(offset, OffsetAndMetadata):
            self._core.subscriptions.seek(as_partition(partition), offset.offset, offset.leader_epoch)
        else:
            self._core.subscriptions.seek(as_partition(partition), offset, NO_EPOCH)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continue these `partitions`, or all if none is named, at their first record. NotAssigned."""
        self._core.check_open()
        self._core.subscriptions.seek_to(list(map(as_partition, partitions)), EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continue these `partitions`, or all if none is named, after their last record. NotAssigned."""
        self._core.check_open()
        self._core.subscriptions.seek_to(list(map(as_partition, partitions)), LATEST)

    def pause(self, *partitions: TopicPartition) -> None:
        """Return nothing of these `partitions` until they are resumed. What is fetched already is kept. NotAssigned."""
        self._core.check_open()
        self._core.subscriptions.pause(map(as_partition, partitions))

    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of these `partitions` again, after `pause`. NotAssigned."""
        self._core.check_open()
        self._core.subscriptions.resume(map(as_partition, partitions))

    def paused(self) -> set[TopicPartition]:
        """Return the partitions that are paused."""
        return self._core.subscriptions.positions.paused()

    def metrics(self) -> dict[str, Any]:
        """Return counts since the consumer was made, and how many records it is behind the end of each partition."""
        self._core.receive()
        lags = {}
        collector = self._core.subscriptions.collector
        for partition in self._core.subscriptions.positions:
            marks, position = self._core.fetcher.marks.get(partition), collector.position(partition)
            if marks is not None and position != UNKNOWN:
                end = marks.last_stable_offset if self._core.options.reads_committed else marks.high_watermark
                lags[partition] = max(0, end - position)
        return {
            "records_consumed": collector.handed_out,
            "bytes_fetched": self._core.fetcher.fetched_bytes,
            "chunks_fetched": self._core.fetcher.fetched_chunks,
            "records_lag": lags,
            "records_lag_max": max(lags.values(), default=0),
        }

    # --- ending ---------------------------------------------------------------------------------------------------

    def wakeup(self) -> None:
        """End the call that waits in this consumer, or the next one, with WakeupError. From any thread."""
        self._core.wakeup()

    def close(self, timeout_ms: float | None = None) -> None:
        """Stop fetching, commit if auto-commit is on, and leave the group, within `timeout_ms` (5 s by default).

        A call that waits ends with ConsumerClosed. From any thread; a second call does nothing. A `with` block that
        ends by an error does not commit: the program may not be done with its records.
        """
        self._core.close(timeout_ms, commit=True)


def _pieces(consumer_ref: weakref.ref[Consumer]) -> Generator[Iterator[ConsumerRecord], None, None]:
    """Yield the records of a consumer. Holds no reference to it in between, so that a dropped consumer ends at once."""
    try:
        while (consumer := consumer_ref()) is not None:
            records = consumer._core.next_piece(consumer._core.options.consumer_timeout_ms / 1000)
            del consumer
            if records is None:
                return
            yield records
    finally:
        consumer = consumer_ref()
        if consumer is not None:
            consumer._iterator = None


def core_of(consumer: Consumer) -> ConsumerCore:
    """Return what a consumer is made of, for `AsyncConsumer` and `ParallelConsumer`."""
    return consumer._core
