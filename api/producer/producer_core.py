"""The core of both producers: the way of a record into the buffer, waiting for room, topics, and the end.

    Producer, AsyncProducer ──► ProducerCore ──► RecordAccumulator ──► Sender (on the client loop)

It is for raylog's own clients; programs use `Producer` and `AsyncProducer`.

What must stay true:
- A record is taken whole, or an error is raised.
- Every wait ends: `max_block_ms` for a record, the given timeout for flush and close, and Ctrl-C ends each.
- `routes` has a topic only while its records may take the fast path of `Producer.send`: the producer is open, has no
  interceptors and no serializers, and a transactional one has an open transaction.

`TopicRoutes` are the view of one topic: its queues, and which of them a key goes to.

    by_key     key → queue, None → the partition of records without a key; what `Producer.send` looks up
    numbers    key → partition, for bulk sends

What must stay true:
- Both are caches: they hold what murmur2 says for this number of partitions, no key that is long, and not too many.
- When the topic gets more partitions, there are new `TopicRoutes`; nothing that the old ones say is added to them.
- A record without a key goes to the partition of the one before it, until so many bytes went there; then to another
  one, each as likely (KIP-794). Bytes are counted, not batches, so that a slow leader does not get more than its
  share.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import Any, Final, NamedTuple, TypeVar

from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.link.rules.topic_cache import TopicView
from raylog.actors.protocol.names import is_internal
from raylog.api.connection.client_access import LinkAddress, link_address, name_of
from raylog.api.connection.client_runtime import client_runtime
from raylog.api.connection.client_threads import SERVING_THREADS
from raylog.api.connection.progress import Progress
from raylog.api.connection.serializers import check_headers, check_timestamp, to_bytes
from raylog.api.producer.buffer.interceptors import Interceptors, ProducerRecord
from raylog.api.producer.buffer.record_accumulator import (
    RECORD_BYTES,
    BufferPool,
    Clocks,
    PartitionQueue,
    RecordAccumulator,
)
from raylog.api.producer.buffer.record_future import RecordFuture, refuse_on_serving_thread, wait_for
from raylog.api.producer.rules.partitioners import Partitioner, make_partitioner, next_sticky, partition_of_key
from raylog.api.producer.rules.producer_batch import ProducerBatch
from raylog.api.producer.rules.producer_options import ProducerOptions
from raylog.api.producer.sending.sender import ProducerMetrics, Sender
from raylog.api.producer.sending.transaction_requests import TransactionRequests
from raylog.config import KIB
from raylog.errors import (
    BufferFull,
    InternalTopic,
    InvalidTransactionState,
    ProducerClosed,
    RecordTooLarge,
    RequestTimedOut,
    ResultNotReady,
    TransactionPending,
    UnknownPartition,
    WaitRefused,
)
from raylog.storage.format.columns import Headers

_CONNECT_SECONDS: Final = 30.0
_CLOSE_SECONDS: Final = 10.0
_GRACE_SECONDS: Final = 1.0  # a call that is out of time reports that itself, within this time
VISIT_BYTES: Final = 16 * KIB
_MOST_ROUTES: Final = 50_000
LONGEST_CACHED_KEY: Final = 64  # a cached key counts as so short in `room` (RECORD_BYTES)
_T = TypeVar("_T")
_cores: weakref.WeakSet[ProducerCore] = weakref.WeakSet()


class TopicRoutes:
    """The queues of one topic. `available` tells the partitions that have a leader now."""

    def __init__(
        self,
        topic: str,
        partitions: int,
        accumulator: RecordAccumulator,
        partitioner: str | Partitioner,
        source: bytes,
        random: Random,
        available: Callable[[], Sequence[int]],
    ) -> None:
        self.topic = topic
        self.partitions = partitions
        self.queues = [accumulator.queue(topic, partition) for partition in range(partitions)]
        self.by_key: dict[bytes | None, PartitionQueue] = {}
        self.numbers: dict[bytes, int] = {}
        self._every = range(partitions)
        self._available = available
        self._random = random
        self._choose = make_partitioner(partitioner, random, lambda each: self.queues[each].unsent_bytes, source)
        self._sticky = next_sticky(-1, partitions, available(), random)
        self._visit_began = 0
        if self.is_cached:
            for queue in self.queues:
                queue.filled = self._portion_taken
            self._visit(self._sticky)

    @property
    def is_cached(self) -> bool:
        """Whether a key always goes to the same partition, so that `routes` may be used."""
        return self._choose is None

    def route(self, key: bytes | None, partition: int | None) -> PartitionQueue:
        """The queue of a record; remembered for the next of this key, where that goes to the same one."""
        if partition is not None:
            return self.queues[self.check(partition)]
        if self._choose is not None:
            return self.queues[self.check(self._choose(key, self._every, self._available()))]
        if key is None:
            return self.queues[self._sticky]
        queue = self.queues[partition_of_key(key, self.partitions)]
        if len(key) <= LONGEST_CACHED_KEY:
            if len(self.by_key) > _MOST_ROUTES:
                self.by_key.clear()
                self.by_key[None] = self.queues[self._sticky]
            self.by_key[key] = queue
        return queue

    def check(self, partition: int) -> int:
        if type(partition) is not int:
            raise TypeError(f"A partition is a whole number, not a {type(partition).__name__}.")
        if not 0 <= partition < self.partitions:
            raise UnknownPartition(self.topic, partition)
        return partition

    # --- records without a key ---

    def next_partition(self, size: int) -> int:
        """Return the partition for so many bytes of records without a key."""
        current = self._sticky
        self._visited(self.queues[current].taken_bytes() + size)
        return current

    def choose(self, key: bytes | None) -> int:
        """Return what the producer's partitioner says. Only where `is_cached` is not."""
        assert self._choose is not None
        return self.check(self._choose(key, self._every, self._available()))

    def _portion_taken(self, queue: PartitionQueue) -> None:
        if queue is self.queues[self._sticky]:
            self._visited(queue.taken_bytes())

    def _visited(self, taken_bytes: int) -> None:
        if taken_bytes - self._visit_began >= VISIT_BYTES:
            self._visit(next_sticky(self._sticky, self.partitions, self._available(), self._random))

    def _visit(self, partition: int) -> None:
        queue = self.queues[partition]
        self._sticky = partition
        self._visit_began = queue.taken_bytes()
        self.by_key[None] = queue


class PreparedRecord(NamedTuple):
    """A record that was checked and serialized, with the queue that it goes to."""

    queue: PartitionQueue
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int | None
    size: int


class ProducerCore:
    """The state and the steps of one producer. All methods may be called from any thread, unless they say otherwise.

    Its methods raise what `Producer`'s methods say.
    """

    def __init__(
        self, options: ProducerOptions, make_requests: Callable[[Sender], TransactionRequests] = TransactionRequests
    ) -> None:
        self.options = options
        self.routes: dict[str, dict[bytes | None, PartitionQueue]] = {}  # by topic and key: the fast path's queues
        self._topic_routes: dict[str, TopicRoutes] = {}
        self._making_routes = threading.Lock()
        self._random = Random()
        self.interceptors = Interceptors(options.interceptors)
        self._closed: str | None = None
        self._closing = threading.Lock()
        self._pool = BufferPool(options.buffer_memory)
        self.metrics = ProducerMetrics(self._pool)
        self._runtime = client_runtime()
        self._loop = self._runtime.loop
        clocks = Clocks(time.time, time.monotonic, time.sleep)
        seconds = options.delivery_timeout_ms / 1000
        self.accumulator = RecordAccumulator(self._pool, options.batch_size, seconds, clocks, self._wake)
        address = link_address(options.cluster, _CONNECT_SECONDS)
        self._link, self._sender = self._runtime.run(self._open(address), _CONNECT_SECONDS)
        self._transaction = self._sender.transaction
        self.requests = None if self._transaction is None else make_requests(self._sender)
        if self._transaction is not None:
            self._transaction.on_refusal = self._forget_routes
        # Whether records may take the fast path, where at most two portions of the buffer go without a look at sizes.
        serializers = options.key_serializer or options.value_serializer
        is_roomy = options.max_request_size >= 2 * self.accumulator.portion + LONGEST_CACHED_KEY
        self._is_plain = not self.interceptors and serializers is None and is_roomy
        self._stay = self._runtime.at_exit(self._close_at_exit)
        _cores.add(self)

    def describe(self, kind: str) -> str:
        """Return what `repr` of a producer of this class shows."""
        brokers = f", {self._link.broker_count} brokers" if self._link.broker_count else ""
        state = "closed" if self._closed is not None else f"{self.accumulator.held_records()} records buffered"
        return f"<{kind} of {name_of(self.options.cluster)!r}{brokers}, {state}>"

    # --- one record -----------------------------------------------------------------------------------------------

    def append_plain(self, topic: str, value: bytes, key: bytes | None) -> RecordFuture | None:
        """Take a record of a topic in `routes`, without waiting. None: it has to be prepared, or there is no room."""
        if len(value) + len(key or b"") > self.accumulator.portion:
            return None
        routes = self._topic_routes[topic]
        return self.accumulator.append(routes.by_key.get(key) or routes.route(key, None), key, value)

    def prepare(self, record: ProducerRecord, until: float) -> PreparedRecord:
        """Check and serialize a record, and choose its partition. Waits only for the metadata of an unknown topic."""
        self.check_taking()
        record = self.interceptors.on_send(record)
        try:
            return self._prepare(record, until)
        except Exception as error:
            self.interceptors.refused(error)
            raise

    def _prepare(self, record: ProducerRecord, until: float) -> PreparedRecord:
        topic, options = record.topic, self.options
        headers = check_headers(record.headers)
        value = to_bytes("value", topic, headers, record.value, options.value_serializer)
        key = to_bytes("key", topic, headers, record.key, options.key_serializer)
        check_timestamp(record.timestamp_ms)
        size = (len(value) if value else 0) + (len(key) if key else 0) + RECORD_BYTES + _size_of(headers)
        if size > options.max_request_size:
            raise RecordTooLarge(topic, size, options.max_request_size)
        queue = self.topic_routes(topic, until).route(key, record.partition)
        return PreparedRecord(queue, key, value, headers, record.timestamp_ms, size)

    def append(self, prepared: PreparedRecord) -> RecordFuture | None:
        """Take a prepared record, without waiting. None: there is no room now."""
        self.check_taking()
        queue, key, value, headers, timestamp_ms, _ = prepared
        sent = self.accumulator.append(queue, key, value, headers, timestamp_ms)
        if sent is not None and self.interceptors:
            self.interceptors.watch(sent)
        return sent

    # --- state ----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise ProducerClosed, or that this process was forked from the producer's."""
        self._runtime.check("producer")
        if self._closed is not None:
            raise ProducerClosed(self._closed)
        if self._sender.is_closed:
            raise ProducerClosed("it met an error that nobody expected, which is in the log")

    def check_taking(self) -> None:
        """Raise why no record may be sent now, if so."""
        self.check()
        if self._transaction is not None and not self._transaction.is_taking:
            raise self._transaction.refusal()

    # --- waiting --------------------------------------------------------------------------------------------------

    def until(self) -> float:
        """Return when `max_block_ms` from now is over, on the monotonic clock."""
        return time.monotonic() + self.options.max_block_ms / 1000

    def wait_for_room(self, size: int, until: float) -> None:
        """Block until the buffer has room for `size` bytes. BufferFull when `until` is over."""
        pool = self._pool
        if threading.get_ident() in SERVING_THREADS:
            raise BufferFull(size, pool.limit, 0)  # a callback may send, but it must not wait
        self._wake()
        if not pool.wait(size, until):
            raise BufferFull(size, pool.limit, self.options.max_block_ms)
        self.check_taking()

    def wait_for_room_now(self, size: int) -> None:
        """Block for at most `max_block_ms`, as `wait_for_room`."""
        self.wait_for_room(size, self.until())

    @contextmanager
    def room_wanted(self, size: int) -> Iterator[Callable[[Callable[[], object]], None]]:
        """Announce a wait for room that does not block: yields a function, which takes the listener to be called."""
        with self._pool.wanted():
            self._wake()

            def listen(listener: Callable[[], object]) -> None:
                self._pool.when_returned(listener)
                if self._pool.free >= size:
                    listener()

            yield listen

    def begin_flush(self) -> list[ProducerBatch]:
        """Have all records that were taken sent without lingering. Returns their batches."""
        self._runtime.check("producer")
        return self.accumulator.flush()

    def wait_for_all(self, batches: Sequence[ProducerBatch], timeout: float | None) -> None:
        """Block until all these are delivered or have failed. ResultNotReady."""
        refuse_on_serving_thread()
        until = None if timeout is None else time.monotonic() + timeout
        done = 0
        with Progress("delivering", sum(batch.count for batch in batches), "records") as progress:
            for batch in batches:
                if batch.outcome is None:
                    wait_for(batch, None if until is None else until - time.monotonic(), progress.tell)
                done += batch.count
                progress.tell(done)

    def _wake(self) -> None:
        self._loop.call_soon_threadsafe(self._sender.drain)

    # --- topics ---------------------------------------------------------------------------------------------------

    def knows(self, topic: str) -> bool:
        """Whether `prepare` needs no request: the topic's metadata is known, or nobody may send to it."""
        return topic in self._topic_routes or self._link.topic(topic) is not None or _is_refused(topic)

    def find_topic(self, topic: str) -> TopicView:
        """Block until the topic's metadata is known. UnknownTopic, ClusterUnreachable."""
        self.check()
        refuse_on_serving_thread()
        timeout = self.options.max_block_ms / 1000
        return self._runtime.run(self._link.find_topic(topic, timeout), timeout + 1)

    def topic_routes(self, topic: str, until: float) -> TopicRoutes:
        """Return the queues of a topic. Waits for its metadata if nobody has asked for it yet."""
        routes = self._topic_routes.get(topic)
        if routes is not None:
            return routes
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
        with self._making_routes:
            return self._topic_routes.get(topic) or self._make_topic_routes(view)

    def _make_topic_routes(self, view: TopicView) -> TopicRoutes:
        topic = view.name
        source = f"{self.options.client_id}@{socket.gethostname()}".encode()
        routes = TopicRoutes(
            topic,
            len(view.partitions),
            self.accumulator,
            self.options.partitioner,
            source,
            self._random,
            partial(_led, self._link, topic),
        )
        self._topic_routes[topic] = routes
        if self._transaction is None or self._transaction.is_taking:
            self._lay_route(routes)
        return routes

    def _lay_route(self, routes: TopicRoutes) -> None:
        if routes.is_cached and self._is_plain and self._closed is None:
            self.routes[routes.topic] = routes.by_key

    def lay_routes(self) -> None:
        """Let records of all known topics take the fast path: a transaction has begun."""
        with self._making_routes:
            for routes in self._topic_routes.values():
                self._lay_route(routes)

    def _forget_routes(self) -> None:
        self.routes.clear()

    def _topics_changed(self) -> None:
        """Replace the queues of each topic that has more partitions than before. Called on the client loop."""
        for topic, routes in list(self._topic_routes.items()):
            view = self._link.topic(topic)
            if view is not None and len(view.partitions) != routes.partitions:
                with self._making_routes:
                    self._make_topic_routes(view)

    # --- transactions ---------------------------------------------------------------------------------------------

    def transactional(self) -> TransactionRequests:
        """Return the requests of this producer's transactions. InvalidTransactionState: it has no transactional_id."""
        self.check()
        if self.requests is None:
            raise InvalidTransactionState("This producer has no transactional_id.")
        return self.requests

    def call(self, name: str, call: Callable[[float], Coroutine[Any, Any, _T]], timeout: float | None) -> _T:
        """Run a transactional request on the client loop. TransactionPending also if the loop itself is late."""
        refuse_on_serving_thread()
        seconds = self.options.max_block_ms / 1000 if timeout is None else timeout
        try:
            return self._runtime.run(call(seconds), seconds + _GRACE_SECONDS)
        except RequestTimedOut as error:
            transactional_id = self.options.transactional_id or ""
            reason = error.describe().rstrip(".")
            raise TransactionPending(transactional_id, name, round(1000 * seconds), reason) from error

    # --- the beginning and the end --------------------------------------------------------------------------------

    async def _open(self, address: LinkAddress) -> tuple[ClusterLink, Sender]:
        SERVING_THREADS.add(threading.get_ident())
        link = await self._runtime.acquire_link(address)
        self._unfollow = link.on_change(self._topics_changed)
        return link, Sender(link, self.accumulator, self.options, self.metrics)

    def close(self, timeout: float | None) -> None:
        """Take nothing more, abort an open transaction, deliver the rest, release the link. See `Producer.close`."""
        self._runtime.check("producer")
        refuse_on_serving_thread()
        with self._closing:
            if self._closed is not None:
                return
            self._closed = "it was closed"
        self._forget_routes()
        try:
            if self.requests is not None:
                seconds = _CLOSE_SECONDS if timeout is None else min(timeout, _CLOSE_SECONDS)
                self._runtime.run(self.requests.give_up(seconds), seconds + 1)
            self.wait_for_all(self.accumulator.flush(), timeout)
        except ResultNotReady:
            pass  # what is left fails, and its futures say so
        finally:
            self._runtime.run(self._release(), _CLOSE_SECONDS)
            self._stay()
            self.interceptors.close()

    async def _release(self) -> None:
        self._unfollow()
        await self._sender.close()
        await self._runtime.release_link(self._link)

    async def _close_at_exit(self) -> None:
        """Deliver everything when the process ends; what cannot be delivered fails when its own time is over."""
        self._closed = "its process is ending"
        self._forget_routes()
        if self.requests is not None:
            await self.requests.give_up(_CLOSE_SECONDS)
        told = asyncio.Event()
        for batch in self.accumulator.flush():
            told.clear()
            batch.listen(told.set)
            await told.wait()
        await self._release()


def _led(link: ClusterLink, topic: str) -> list[int]:
    view = link.topic(topic)
    return [] if view is None else [each.partition for each in view.partitions if each.endpoints]


def _is_refused(topic: object) -> bool:
    """Whether `prepare` refuses this topic without asking a broker: it is no name, or one of raylog's own."""
    return not isinstance(topic, str) or is_internal(topic)


def _size_of(headers: Headers) -> int:
    return sum(len(name) + (len(value) if value else 0) for name, value in headers)


def _forget_all_routes() -> None:
    """Close the fast path in the child of a fork: the slow path refuses its records."""
    for core in list(_cores):
        core.routes.clear()


os.register_at_fork(after_in_child=_forget_all_routes)
