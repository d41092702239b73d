"""The producer that programs use: records in, futures out.

    send ──fast path──► the open batch             where nothing is special about the record, and its key was met before
      └── the rest ──► interceptors → serializers → checks → lane → accumulator, waiting for metadata and for room
    send_many ──► columns ──► sealed batches (`bulk_send.py`)          on the client loop: `sender.py`

What must stay true:
- `send` takes the record whole or raises; a wrong type is a TypeError here, not later.
- Every wait ends: `max_block_ms` for send, the given time-out for flush and close, and Ctrl-C ends each.
- The fast path takes nothing that the other would treat differently, and nothing outside of a transaction where
  there are some (`producer_transactions.py`).
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from raylog.actors.cluster_link import ClusterLink
from raylog.actors.topic_cache import TopicView
from raylog.actors.topic_names import is_internal
from raylog.api.batch_accumulator import OPEN, RECORD_BYTES, BatchAccumulator, Clocks, PartitionQueue
from raylog.api.buffer_room import BufferRoom
from raylog.api.bulk_send import BulkFuture, BulkSend, check_columns
from raylog.api.client_access import LinkAddress, link_address, name_of
from raylog.api.client_runtime import client_runtime
from raylog.api.interceptors import Interceptors, ProducerRecord
from raylog.api.kafka_habits import keywords_wanted
from raylog.api.option_help import lists_options
from raylog.api.pending_batch import PendingBatch
from raylog.api.process_bound import ProcessBound
from raylog.api.producer_metrics import ProducerMetrics
from raylog.api.producer_options import ProducerOptions, ProducerSettings
from raylog.api.producer_transactions import ProducerTransactions
from raylog.api.record_future import RecordFuture, refuse_on_serving_thread, wait_for
from raylog.api.sender import Sender
from raylog.api.serializers import check_headers, check_timestamp, to_bytes
from raylog.api.serving_threads import SERVING_THREADS
from raylog.api.topic_lane import LONGEST_CACHED_KEY, TopicLane
from raylog.api.transaction_requests import TransactionRequests
from raylog.errors import BufferFull, InternalTopic, ProducerClosed, RecordTooLarge, ResultNotReady, WaitRefused
from raylog.storage.columns import Headers

if TYPE_CHECKING:
    from typing_extensions import Never, Unpack


_CONNECT_SECONDS: Final = 30.0
_CLOSE_SECONDS: Final = 10.0
_now = time.time
_producers: weakref.WeakSet[Producer] = weakref.WeakSet()


class PreparedRecord(NamedTuple):
    """A record that has been looked at."""

    queue: PartitionQueue
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int | None
    size: int


@lists_options(ProducerSettings, ProducerOptions)
class Producer(ProducerTransactions, ProcessBound):
    """Sends records to topics, from any thread.

        with raylog.Producer(acks="all", compression_type="lz4") as producer:
            future = producer.send("clicks", b"value", key=b"user-1", headers=[("source", b"web")])
            metadata = future.result(timeout=10)            # metadata.partition, .offset, .timestamp
            producer.send_many("clicks", values, keys=keys)  # millions of records a second
        # leaving the block delivers what is left

    Records of a key go to one partition and stay in their order there; by default nothing is lost and nothing is
    written twice, whichever broker fails. Options are keywords with kafka-python's names, and `cluster`: the name of
    the cluster or its handle. `raylog.api.producer_options.ProducerOptions` describes them. UnknownConfig and
    InvalidConfig for wrong ones; ClusterNotFound, ClusterUnreachable and others where the cluster cannot be reached.
    """

    def __init__(self, *misplaced: Never, **options: Unpack[ProducerSettings]) -> None:
        if misplaced:
            raise TypeError(keywords_wanted(type(self).__name__))
        self.options = ProducerOptions.parse(options)
        self._routes: dict[str, dict[bytes | None, PartitionQueue]] = {}
        self._lanes: dict[str, TopicLane] = {}
        self._laning = threading.Lock()
        self._random = Random()
        self._interceptors = Interceptors(self.options.interceptors)
        self._closed: str | None = None
        self._closing = threading.Lock()
        self._room = BufferRoom(self.options.buffer_memory)
        self._metrics = ProducerMetrics(self._room)
        self._runtime = client_runtime()
        self._loop = self._runtime.loop
        clocks = Clocks(time.time, time.monotonic, time.sleep)
        seconds = self.options.delivery_timeout_ms / 1000
        self._accumulator = BatchAccumulator(self._room, self.options.batch_size, seconds, clocks, self._wake)
        address = link_address(self.options.cluster, _CONNECT_SECONDS)
        self._link, self._sender = self._runtime.run(self._open(address), _CONNECT_SECONDS)
        self._requests = None
        self._transaction = self._sender.transaction
        if self._transaction is not None:
            self._requests = self._make_requests()
            self._transaction.on_refusal = self._forget_routes
        # Whether records may take the fast path, where at most two portions of the buffer go without a look at sizes.
        serializers = self.options.key_serializer or self.options.value_serializer
        is_roomy = self.options.max_request_size >= 2 * self._accumulator.portion + LONGEST_CACHED_KEY
        self._is_plain = not self._interceptors and serializers is None and is_roomy
        self._stay = self._runtime.at_exit(self._close_at_exit)
        _producers.add(self)

    def _make_requests(self) -> TransactionRequests:
        return TransactionRequests(self._sender)

    # --- sending --------------------------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordFuture:
        """Take one record, to be sent in the background; returns the future of its delivery.

        Without a value it is a tombstone: on a compacted topic it removes the key. `headers` are pairs of a name and
        bytes. The partition follows from the key, unless it is given.

            producer.send("clicks", b"value", key=b"user-1")
            producer.send("clicks", b"value", partition=0, timestamp_ms=1700000000000).add_errback(print)

        TypeError: key or value are not bytes, and there is no serializer. UnknownTopic, UnknownPartition,
        InternalTopic, RecordTooLarge. BufferFull, ClusterUnreachable: not within max_block_ms. ProducerClosed.
        """
        if type(value) is bytes and headers is None and partition is None and timestamp_ms is None:
            try:
                queue = self._routes[topic][key]
                del queue.gate[OPEN]
                try:
                    room = queue.room - len(value) - RECORD_BYTES
                    if room >= 0 and _now() < queue.tick:
                        queue.room = room
                        records = queue.records
                        place = len(records)
                        records.extend((key, value))
                        return RecordFuture((queue.batch, place))
                finally:
                    queue.gate[OPEN] = None
            except (KeyError, TypeError):
                pass  # a new topic or key, another thread is at it, a key that is no key: the others say which
            if topic in self._routes and type(key) is bytes:
                sent = self._send_plain(topic, value, key)
                if sent is not None:
                    return sent
        return self._send(topic, value, key, headers, partition, timestamp_ms)

    def send_at_once(self, topic: str, value: bytes, key: bytes | None) -> RecordFuture | None:
        """A plain record that needs no look at the cluster and no wait. None: `prepare` it, and `offer` it."""
        if topic in self._routes and (key is None or type(key) is bytes):
            return self._send_plain(topic, value, key)
        return None

    def _send_plain(self, topic: str, value: bytes, key: bytes | None) -> RecordFuture | None:
        """A key that was not met before, or a portion of the buffer that is used up. None: look closer, or wait."""
        if len(value) + len(key or b"") > self._accumulator.portion:
            return None
        lane = self._lanes[topic]
        return self._accumulator.append(lane.routes.get(key) or lane.route(key, None), key, value)

    def _send(
        self, topic: str, value: Any, key: Any, headers: Any, partition: int | None, timestamp_ms: int | None
    ) -> RecordFuture:
        until = self._until()
        prepared = self.prepare(ProducerRecord(topic, value, key, headers, partition, timestamp_ms), until)
        while True:
            sent = self.offer(prepared)
            if sent is not None:
                return sent
            self._wait_for_room(prepared.size, until)

    def prepare(self, record: ProducerRecord, until: float) -> PreparedRecord:
        """The first half of `send`: what has to be sent, and in which queue. Waits where the topic is not known yet."""
        self._check_taking()
        record = self._interceptors.on_send(record)
        try:
            return self._prepare(record, until)
        except Exception as error:
            self._interceptors.refused(error)
            raise

    def offer(self, prepared: PreparedRecord) -> RecordFuture | None:
        """The second half: take it. None: there is no room now."""
        self._check_taking()
        queue, key, value, headers, timestamp_ms, _ = prepared
        sent = self._accumulator.append(queue, key, value, headers, timestamp_ms)
        if sent is not None and self._interceptors:
            self._interceptors.watch(sent)
        return sent

    def _prepare(self, record: ProducerRecord, until: float) -> PreparedRecord:
        topic, options = record.topic, self.options
        headers = check_headers(record.headers)
        value = to_bytes("value", topic, headers, record.value, options.value_serializer)
        key = to_bytes("key", topic, headers, record.key, options.key_serializer)
        check_timestamp(record.timestamp_ms)
        size = (len(value) if value else 0) + (len(key) if key else 0) + RECORD_BYTES + _size_of(headers)
        if size > options.max_request_size:
            raise RecordTooLarge(topic, size, options.max_request_size)
        queue = self._lane(topic, until).route(key, record.partition)
        return PreparedRecord(queue, key, value, headers, record.timestamp_ms, size)

    def send_many(
        self,
        topic: str,
        values: Sequence[Any],
        keys: Sequence[Any] | None = None,
        timestamps: Sequence[int] | int | None = None,
        headers: Sequence[Any] | None = None,
        partition: int | None = None,
    ) -> BulkFuture:
        """Take many records at once, as columns: ten times as fast as one by one. One future for the lot.

            future = producer.send_many("clicks", values, keys=keys)
            future.result(timeout=30).record_count

        Columns are lists or tuples of one length; a single timestamp stands for all. Records keep their order within a
        partition. What does not find room within max_block_ms has failed with BufferFull; the future tells which.
        """
        self._check_taking()
        future = BulkFuture(topic, len(values))
        if self._interceptors:
            self._one_by_one(future, values, keys, timestamps, headers, partition=partition)
            return future
        given = check_columns(topic, values, keys, timestamps, headers, self.options, int(time.time() * 1000))
        lane = self._lane(topic, self._until())
        partition = None if partition is None else lane.check(partition)
        BulkSend(future, lane, self._accumulator, self.options, self._wait_now).columns(given, partition)
        return future

    def _one_by_one(self, future: BulkFuture, *columns: Any, partition: int | None) -> None:
        """Interceptors see records, so what is sent in bulk goes one by one where there are some."""
        values, keys, timestamps, headers = columns
        count = len(values)
        stamps = [timestamps] * count if timestamps is None or isinstance(timestamps, int) else timestamps
        rows = zip(values, keys or [None] * count, headers or [None] * count, stamps, strict=True)
        for position, (value, key, pairs, stamp) in enumerate(rows):
            future.add_one(self.send(future.topic, value, key, pairs, partition, stamp), position)

    def send_arrow(self, topic: str, table: Any, partition: int | None = None) -> BulkFuture:
        """Take the rows of an Arrow table or record batch; needs the extra `arrow`. One future for the lot.

        Columns: `value`, and if they are there `key`, `timestamp` (milliseconds, or an Arrow timestamp), `headers` as
        `poll_arrow` returns them. Keys and values are binary or text.
        """
        from raylog.api.arrow_send import send_table

        self._check_taking()
        lane = self._lane(topic, self._until())
        future = BulkFuture(topic, table.num_rows)
        partition = None if partition is None else lane.check(partition)
        bulk = BulkSend(future, lane, self._accumulator, self.options, self._wait_now)
        send_table(bulk, table, partition, int(time.time() * 1000))
        return future

    # --- the rest of a producer -----------------------------------------------------------------------------------

    def partitions_for(self, topic: str) -> set[int]:
        """The numbers of the topic's partitions. UnknownTopic, ClusterUnreachable."""
        self._check()
        refuse_on_serving_thread()
        timeout = self.options.max_block_ms / 1000
        view = self._runtime.run(self._link.find_topic(topic, timeout), timeout + 1)
        return set(range(len(view.partitions)))

    def knows(self, topic: str) -> bool:
        """Whether nothing has to be asked: the topic's partitions are known, or nobody may send to it."""
        return topic in self._lanes or self._link.topic(topic) is not None or _is_refused(topic)

    def metrics(self) -> dict[str, float]:
        """What this producer has done, under the names of Kafka's producer metrics."""
        return self._metrics.read()

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all that was taken before is delivered or has failed. ResultNotReady after `timeout` seconds."""
        self._wait_for_all(self.begin_flush(), timeout)

    def begin_flush(self) -> list[PendingBatch]:
        """Have all that was taken sent without lingering; what that is."""
        self._runtime.check("producer")
        return self._accumulator.flush()

    @contextmanager
    def room_wanted(self, size: int) -> Iterator[Callable[[Callable[[], object]], None]]:
        """For those that must not block: what to give a listener to, who is called when there may be room."""
        with self._room.wanted():
            self._wake()

            def listen(listener: Callable[[], object]) -> None:
                self._room.when_returned(listener)
                if self._room.free >= size:
                    listener()

            yield listen

    def close(self, timeout: float | None = None) -> None:
        """Take no more, deliver what was taken, and let go of the cluster. What is not delivered in time fails.

        A record is never dropped silently: without a time-out this waits at most delivery_timeout_ms. A transaction
        that is open is aborted.
        """
        self._runtime.check("producer")
        refuse_on_serving_thread()
        with self._closing:
            if self._closed is not None:
                return
            self._closed = "it was closed"
        self._routes = {}
        try:
            if self._requests is not None:
                seconds = _CLOSE_SECONDS if timeout is None else min(timeout, _CLOSE_SECONDS)
                self._runtime.run(self._requests.give_up(seconds), seconds + 1)
            self._wait_for_all(self._accumulator.flush(), timeout)
        except ResultNotReady:
            pass  # what is left fails, and so tells whoever asks
        finally:
            self._runtime.run(self._release(), _CLOSE_SECONDS)
            self._stay()
            self._interceptors.close()

    def __repr__(self) -> str:
        brokers = f", {self._link.broker_count} brokers" if self._link.broker_count else ""
        state = "closed" if self._closed is not None else f"{self._accumulator.held_records()} records buffered"
        return f"<{type(self).__name__} of {name_of(self.options.cluster)!r}{brokers}, {state}>"

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- waiting --------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        self._runtime.check("producer")
        if self._closed is not None:
            raise ProducerClosed(self._closed)
        if self._sender.is_closed:
            raise ProducerClosed("it met an error that nobody expected, which is in the log")

    def _check_taking(self) -> None:
        self._check()
        if self._transaction is not None and not self._transaction.is_taking:
            raise self._transaction.refusal()

    def _until(self) -> float:
        return time.monotonic() + self.options.max_block_ms / 1000

    def _wait_for_room(self, size: int, until: float) -> None:
        room = self._room
        if threading.get_ident() in SERVING_THREADS:
            raise BufferFull(size, room.limit, 0)  # a callback may send, but it must not wait
        self._wake()
        if not room.wait(size, until):
            raise BufferFull(size, room.limit, self.options.max_block_ms)
        self._check_taking()

    def _wait_now(self, size: int) -> None:
        self._wait_for_room(size, self._until())

    def _wait_for_all(self, batches: Sequence[PendingBatch], timeout: float | None) -> None:
        refuse_on_serving_thread()
        until = None if timeout is None else time.monotonic() + timeout
        for batch in batches:
            if batch.outcome is None:
                wait_for(batch, None if until is None else until - time.monotonic())

    def _wake(self) -> None:
        self._loop.call_soon_threadsafe(self._sender.drain)

    # --- topics ---------------------------------------------------------------------------------------------------

    def _lane(self, topic: str, until: float) -> TopicLane:
        lane = self._lanes.get(topic)
        if lane is not None:
            return lane
        if not isinstance(topic, str):
            raise TypeError(f"The name of a topic is text, not a {type(topic).__name__}.")
        if is_internal(topic):
            raise InternalTopic(topic)
        view = self._link.topic(topic)
        if view is None:
            if threading.get_ident() in SERVING_THREADS:
                raise WaitRefused
            left = max(0.0, until - time.monotonic())
            view = self._runtime.run(self._link.find_topic(topic, left), left + 1)
        with self._laning:
            return self._lanes.get(topic) or self._make_lane(view)

    def _make_lane(self, view: TopicView) -> TopicLane:
        topic = view.name
        source = f"{self.options.client_id}@{socket.gethostname()}".encode()
        lane = TopicLane(
            topic,
            len(view.partitions),
            self._accumulator,
            self.options.partitioner,
            source,
            self._random,
            partial(_led, self._link, topic),
        )
        self._lanes[topic] = lane
        if self._transaction is None or self._transaction.is_taking:
            self._lay_route(lane)
        return lane

    def _lay_route(self, lane: TopicLane) -> None:
        if lane.is_cached and self._is_plain and self._closed is None:
            self._routes[lane.topic] = lane.routes

    def _lay_routes(self) -> None:
        with self._laning:
            for lane in self._lanes.values():
                self._lay_route(lane)

    def _topics_changed(self) -> None:
        """On the loop: a topic has more partitions than it had."""
        for topic, lane in list(self._lanes.items()):
            view = self._link.topic(topic)
            if view is not None and len(view.partitions) != lane.partitions:
                with self._laning:
                    self._make_lane(view)

    # --- on the loop ----------------------------------------------------------------------------------------------

    async def _open(self, address: LinkAddress) -> tuple[ClusterLink, Sender]:
        SERVING_THREADS.add(threading.get_ident())
        link = await self._runtime.acquire_link(address)
        self._unfollow = link.on_change(self._topics_changed)
        return link, Sender(link, self._accumulator, self.options, self._metrics)

    async def _release(self) -> None:
        self._unfollow()
        await self._sender.close()
        await self._runtime.release_link(self._link)

    async def _close_at_exit(self) -> None:
        """The process ends: deliver all, or let it fail by its own time-out."""
        self._closed = "its process is ending"
        self._routes = {}
        if self._requests is not None:
            await self._requests.give_up(_CLOSE_SECONDS)
        told = asyncio.Event()
        for batch in self._accumulator.flush():
            told.clear()
            batch.listen(told.set)
            await told.wait()
        await self._release()

    def _forget_routes(self) -> None:
        self._routes = {}


def _led(link: ClusterLink, topic: str) -> list[int]:
    view = link.topic(topic)
    return [] if view is None else [each.partition for each in view.partitions if each.endpoints]


def _is_refused(topic: object) -> bool:
    """No name, or one of raylog's own: `prepare` says so without asking anybody."""
    return not isinstance(topic, str) or is_internal(topic)


def _size_of(headers: Headers) -> int:
    return sum(len(name) + (len(value) if value else 0) for name, value in headers)


def _forget_all_routes() -> None:
    """In the child of a fork: what is sent there has to go the way where it is refused."""
    for producer in list(_producers):
        producer._forget_routes()


os.register_at_fork(after_in_child=_forget_all_routes)
