"""The consumer for plain threads: a facade over its subscriptions and a fetcher on the client's loop.

What must stay true:
- Every call ends: by its result, its time-out, a typed error, `wakeup`, `close`, or Ctrl-C; and none of these loses a
  record that was fetched, or moves a position.
- One thread uses a consumer at a time. Only `wakeup` and `close` may come from others; another one that polls
  meanwhile is refused.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from raylog.actors.protocol.replication_messages import EARLIEST, LATEST, NO_EPOCH
from raylog.api.connection.client_access import name_of
from raylog.api.connection.client_runtime import client_runtime
from raylog.api.connection.option_help import lists_options
from raylog.api.connection.process_bound import ProcessBound
from raylog.api.connection.records import ConsumerRecord, OffsetAndMetadata, TopicPartition, as_partition
from raylog.api.consumer.consumer_commits import ConsumerCommits
from raylog.api.consumer.consumer_connection import (
    CLOSE_SECONDS,
    begin_fetching,
    end_fetching,
    join_group,
    let_go,
    open_link,
)
from raylog.api.consumer.consumer_queries import ConsumerQuestions, as_topic_name, check_topics
from raylog.api.consumer.fetching.fetcher import Fetcher
from raylog.api.consumer.group.rebalance_listener import ListensToRebalances, check_listener
from raylog.api.consumer.group_subscription import GroupDesk
from raylog.api.consumer.rules.column_batches import ColumnBatch
from raylog.api.consumer.rules.consumer_options import ConsumerOptions, ConsumerSettings
from raylog.api.consumer.rules.positions import UNKNOWN
from raylog.api.consumer.subscription_state import ConsumerDesk
from raylog.errors import (
    ConflictingSubscription,
    ConsumerClosed,
    ConsumerInUse,
    GroupRequired,
    RequestTimedOut,
    WakeupError,
)
from raylog.groups.records.settings import check_group_id

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Unpack


_POLLING: Final = 0  # the entry of that
_T = TypeVar("_T")


@lists_options(ConsumerSettings, ConsumerOptions)
class Consumer(ConsumerCommits, ConsumerQuestions, ProcessBound):
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
        self._options = options = ConsumerOptions.parse(settings)
        if options.group_id is not None:
            check_group_id(options.group_id)
        self._is_closed = False
        self._closing_thread: int | None = None  # whose listener may still commit, from within `close`
        self._is_woken = False
        self._polling: dict[int, int] = {}  # the thread that polls
        self._iterator: Iterator[ConsumerRecord] | None = None
        self._iterating = 0  # the thread it was made for
        self._timeout = options.request_timeout_ms / 1000
        self._runtime = runtime = client_runtime()
        self._link = link = open_link(runtime, options.cluster, self._timeout)
        self._fetcher, self._arrivals = fetcher, arrivals = runtime.run(begin_fetching(link, options), self._timeout)

        def tell(order: Callable[[Fetcher], None]) -> None:
            runtime.loop.call_soon_threadsafe(order, fetcher)

        self._desk = ConsumerDesk(options, tell)
        self._group: GroupDesk | None = None
        self._is_group_followed = True  # by every call here; an AsyncConsumer sees to it by itself
        if options.group_id is not None:
            self._group = runtime.run(join_group(runtime, link, options, self._desk, fetcher, arrivals), self._timeout)
        # One that is dropped without `close` must not fetch for ever.
        self._finalizer = weakref.finalize(self, let_go, runtime, fetcher, arrivals, link, self._group)
        self._finalizer.atexit = False
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
        self._close(None, commit=error is None)

    def __repr__(self) -> str:
        named = self._desk.subscription if self._group is None else self._group.topics
        of = [repr(name_of(self._options.cluster)), *(f"topic {topic!r}" for topic in sorted(named))]
        of += [] if self._group is None else [f"group {self._group.group!r}"]
        state = "closed" if self._is_closed else f"{len(self._desk.positions)} partitions"
        return f"<Consumer of {', '.join([*of, state])}>"

    # --- what is read ---------------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Iterable[str] = (),
        pattern: str | None = None,
        listener: ListensToRebalances | None = None,
    ) -> None:
        """Read these topics, in place of those before. UnknownTopic, ClusterUnreachable, InvalidSubscription.

        Without a group it reads all their partitions. With one it reads its share: the members of the group divide the
        partitions, and each begins where the group has committed last. `pattern`, in RE2's syntax, means all topics
        whose whole name matches, also those that come later. `listener`, a `RebalanceListener`, hears which partitions
        come and go.

        >>> consumer.subscribe(["clicks", "views"])
        """
        self._check_open()
        if isinstance(topics, str):
            raise TypeError(f"subscribe takes a list of topics: subscribe([{topics!r}]).")
        check_listener(listener)
        names = list(dict.fromkeys(topics))
        if not names and not pattern:
            raise ConflictingSubscription("no topic was named")
        if self._group is not None:
            self._group.subscribe(map(as_topic_name, names), pattern or "", listener)
            return
        if pattern is not None or listener is not None:
            raise GroupRequired("subscribe(pattern=…)" if listener is None else "subscribe(listener=…)")
        views = [self._find_topic(name) for name in names]
        self._desk.subscribe(views)

    def unsubscribe(self) -> None:
        """Read nothing; leave the group."""
        self._check_open()
        if self._group is not None:
            self._group.unsubscribe(tell_listener=self._is_group_followed)
        else:
            self._desk.unsubscribe()

    def subscription(self) -> set[str] | None:
        """The topics that were named; None: none were."""
        named = self._desk.subscription if self._group is None else self._group.topics
        return set(named) or None

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these. Those it reads already go on where they are, others where the group, if any, left them.

        >>> consumer.assign([TopicPartition("clicks", 0), TopicPartition("clicks", 1)])
        """
        self._check_open()
        wanted = list(map(as_partition, partitions))
        if self._group is not None:
            self._group.assign(wanted)
        else:
            self._desk.assign(wanted)

    def assignment(self) -> set[TopicPartition]:
        """What is read now."""
        self._receive()
        return set(self._desk.positions)

    # --- records --------------------------------------------------------------------------------------------------

    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> dict[TopicPartition, list[ConsumerRecord]]:
        """The next records, at most `max_records` (or the option max_poll_records); waits so long for the first.

        Partitions take turns, and each one's records come in order. No records: an empty dictionary. ConsumerInUse:
        another thread polls.

        >>> for partition, records in consumer.poll(timeout_ms=100).items():
        ...     handle(partition, records)
        """
        most = self._options.max_poll_records if max_records is None else max_records
        if type(most) is not int or most < 1:
            raise ValueError(f"max_records is a whole number from 1 on, and not {most!r}.")
        handout = self._desk.handout
        return self._until(timeout_ms / 1000, lambda: handout.poll(most)) or {}

    def poll_batches(self, timeout_ms: float = 0, max_bytes: int | None = None) -> list[ColumnBatch]:
        """The next batches as columns, about `max_bytes` of them (what one fetch brings), at least one; see `poll`.

        >>> for batch in consumer.poll_batches(timeout_ms=100):
        ...     total += len(batch)
        ...     write(batch.keys, batch.values, batch.timestamps)
        """
        most = self._options.max_partition_fetch_bytes if max_bytes is None else max_bytes
        if type(most) is not int or most < 1:
            raise ValueError(f"max_bytes is a whole number from 1 on, and not {most!r}.")
        handout = self._desk.handout
        return self._until(timeout_ms / 1000, lambda: handout.poll_batches(most)) or []

    def poll_arrow(
        self, timeout_ms: float = 0, max_bytes: int | None = None, *, include_headers: bool = False
    ) -> pa.Table:
        """The next batches as one Arrow table: topic, partition, offset, timestamp, key, value. Needs pyarrow.

        >>> consumer.poll_arrow(timeout_ms=1000).to_pandas()
        """
        from raylog.api.consumer.rules.arrow_poll import to_table

        return to_table(self.poll_batches(timeout_ms, max_bytes), include_headers=include_headers)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Record after record, for ever, or until none has come for `consumer_timeout_ms`."""
        me = threading.get_ident()
        if self._iterator is None or self._iterating != me:  # two threads in one iterator are Python's to refuse
            self._check_open()
            self._iterating = me
            self._iterator = chain.from_iterable(_pieces(weakref.ref(self)))
        return self._iterator

    def __next__(self) -> ConsumerRecord:
        return next(iter(self))

    def next_piece(self, seconds: float) -> Iterator[ConsumerRecord] | None:
        """Some records to iterate over; the position follows. None: none have come in that time."""
        piece = self._until(seconds, self._desk.handout.next_piece)
        return None if piece is None else piece.records

    def tell_of_arrivals(self, listener: Callable[[], object]) -> None:
        """Call it, on any thread, when a call that found nothing is worth repeating."""
        self._arrivals.listener = listener

    # --- positions ------------------------------------------------------------------------------------------------

    def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int:
        """The offset of the next record to be handed out. NotAssigned, NoOffsetReset, RequestTimedOut."""
        partition = as_partition(partition)
        handout = self._desk.handout

        def known() -> tuple[int] | None:
            handout.check(partition)
            offset = handout.position(partition)
            return None if offset == UNKNOWN else (offset,)

        seconds = self._timeout if timeout_ms is None else timeout_ms / 1000
        found = self._until(seconds, known)
        if found is None:
            raise RequestTimedOut(f"The leader of {partition}", round(seconds * 1000))
        return found[0]

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Go on at this offset with the next poll. NotAssigned.

        >>> consumer.seek(TopicPartition("clicks", 0), 42)
        """
        self._check_open()
        if isinstance(offset, OffsetAndMetadata):
            self._desk.seek(as_partition(partition), offset.offset, offset.leader_epoch)
        else:
            self._desk.seek(as_partition(partition), offset, NO_EPOCH)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on at the first record there is; without any partition named, in all of them. NotAssigned."""
        self._check_open()
        self._desk.seek_to(list(map(as_partition, partitions)), EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on behind the last record there is; without any partition named, in all of them. NotAssigned."""
        self._check_open()
        self._desk.seek_to(list(map(as_partition, partitions)), LATEST)

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out nothing of these until they are resumed; what is fetched already is kept. NotAssigned."""
        self._check_open()
        self._desk.pause(map(as_partition, partitions))

    def resume(self, *partitions: TopicPartition) -> None:
        """Let polls return records of these partitions again."""
        self._check_open()
        self._desk.resume(map(as_partition, partitions))

    def paused(self) -> set[TopicPartition]:
        """The partitions of which polls return nothing for now."""
        return self._desk.positions.paused()

    def metrics(self) -> dict[str, Any]:
        """Counts since the consumer was made, and how far behind the end it is, in records."""
        self._receive()
        lags = {}
        for partition in self._desk.positions:
            marks, position = self._fetcher.marks.get(partition), self._desk.handout.position(partition)
            if marks is not None and position != UNKNOWN:
                end = marks.last_stable_offset if self._options.reads_committed else marks.high_watermark
                lags[partition] = max(0, end - position)
        return {
            "records_consumed": self._desk.handout.handed_out,
            "bytes_fetched": self._fetcher.fetched_bytes,
            "chunks_fetched": self._fetcher.fetched_chunks,
            "records_lag": lags,
            "records_lag_max": max(lags.values(), default=0),
        }

    # --- ending ---------------------------------------------------------------------------------------------------

    def wakeup(self) -> None:
        """End the call that waits in this consumer, or the next, with WakeupError. From any thread."""
        self._is_woken = True
        self._interrupt()

    def close(self, timeout_ms: float | None = None) -> None:
        """Stop fetching; commit, where that is done by itself, and leave the group.

        A call that waits ends with ConsumerClosed. From any thread; twice is once. Leaving a `with` block by an error
        does not commit: what the program was at may not be done.
        """
        self._close(timeout_ms, commit=True)

    def _close(self, timeout_ms: float | None, *, commit: bool) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._interrupt()
        if self._finalizer.detach() is None or not self._runtime.is_running:
            return
        seconds = CLOSE_SECONDS if timeout_ms is None else timeout_ms / 1000
        try:
            if self._group is not None:
                self._closing_thread = threading.get_ident()
                self._group.close(seconds, commit=commit)
        finally:
            self._closing_thread = None
            self._runtime.run(end_fetching(self._runtime, self._fetcher, self._arrivals, self._link), seconds)

    def _interrupt(self) -> None:
        self._desk.handout.cut()
        self._arrivals.wake()

    # --- how ------------------------------------------------------------------------------------------------------

    def _until(self, seconds: float, get: Callable[[], _T | None]) -> _T | None:
        """What `get` returns, as soon as that is something, or the time is over. ConsumerInUse."""
        me = threading.get_ident()
        if self._polling.get(_POLLING) == me:  # a listener
            return self._wait_until(seconds, get)
        other = self._polling.setdefault(_POLLING, me)  # one step, so that one of two threads is first
        if other != me:
            raise ConsumerInUse(_thread_name(other), _thread_name(me))
        try:
            return self._wait_until(seconds, get)
        finally:
            self._polling.pop(_POLLING, None)

    def _wait_until(self, seconds: float, get: Callable[[], _T | None]) -> _T | None:
        deadline = time.monotonic() + seconds
        arrivals = self._arrivals
        while True:
            arrivals.expect()
            if self._is_woken:
                self._is_woken = False
                raise WakeupError
            self._receive()
            found = get()
            if found:
                return found
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            arrivals.wait(left)

    def _receive(self) -> None:
        """Take in what has come, unless there is plenty to hand out."""
        self._check_open()
        if self._group is not None and self._is_group_followed:
            self._group.follow()
        handout = self._desk.handout
        while not handout.has_any or handout.held_bytes < self._fetcher.take_bytes:
            item = self._arrivals.first()
            if item is None:
                return
            self._desk.receive((item,))
            self._arrivals.taken()

    def _check_open(self) -> None:
        if self._is_closed and self._closing_thread != threading.get_ident():
            raise ConsumerClosed
        self._runtime.check("consumer")


def _thread_name(ident: int) -> str:
    return next((each.name for each in threading.enumerate() if each.ident == ident), f"thread {ident}")


def _pieces(consumer_ref: weakref.ref[Consumer]) -> Generator[Iterator[ConsumerRecord], None, None]:
    """Holds no consumer between two pieces, so that one that is dropped ends at once."""
    try:
        while (consumer := consumer_ref()) is not None:
            records = consumer.next_piece(consumer._options.consumer_timeout_ms / 1000)
            del consumer
            if records is None:
                return
            yield records
    finally:
        consumer = consumer_ref()
        if consumer is not None:
            consumer._iterator = None
