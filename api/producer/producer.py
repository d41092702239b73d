"""The producer that programs use: records in, futures out.

    send ──fast path──► the open batch             a plain record whose key was met before
      └── the rest ──► interceptors → serializers → checks → topic → accumulator, waiting for metadata and for room
    send_many ──► columns ──► sealed batches (`bulk_send.py`)          on the client loop: `sender.py`

What must stay true:
- `send` takes the record whole or raises. A wrong type is a TypeError of `send`, and not an error of the future.
- The fast path takes nothing that the slow path would treat differently: `ProducerCore.routes` says when it is open.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from raylog.api.connection.kafka_hints import keywords_wanted
from raylog.api.connection.option_help import lists_options
from raylog.api.connection.process_bound import ProcessBound
from raylog.api.connection.progress import Progress
from raylog.api.producer.buffer.interceptors import ProducerRecord
from raylog.api.producer.buffer.record_accumulator import OPEN, RECORD_BYTES
from raylog.api.producer.buffer.record_future import RecordFuture
from raylog.api.producer.bulk_send import BulkFuture, BulkSend, check_columns
from raylog.api.producer.producer_core import ProducerCore
from raylog.api.producer.rules.producer_options import ProducerOptions, ProducerSettings
from raylog.api.producer.transactional_producer import TransactionalProducer

if TYPE_CHECKING:
    from typing_extensions import Never, Unpack


_now = time.time


@lists_options(ProducerSettings, ProducerOptions)
class Producer(TransactionalProducer, ProcessBound):
    """Sends records to topics, from any thread.

        with raylog.Producer(acks="all", compression_type="lz4") as producer:
            future = producer.send("clicks", b"value", key=b"user-1", headers=[("source", b"web")])
            metadata = future.result(timeout=10)            # metadata.partition, .offset, .timestamp
            producer.send_many("clicks", values, keys=keys)  # millions of records a second
        # leaving the block delivers what is left

    Records of a key go to one partition and stay in their order there; by default nothing is lost and nothing is
    written twice, whichever broker fails. Options are keywords with kafka-python's names, and `cluster`: the name of
    the cluster or its handle. `ProducerOptions` describes them. UnknownConfig and
    InvalidConfig for wrong ones; ClusterNotFound, ClusterUnreachable and others where the cluster cannot be reached.
    """

    def __init__(self, *misplaced: Never, **options: Unpack[ProducerSettings]) -> None:
        if misplaced:
            raise TypeError(keywords_wanted(type(self).__name__))
        self.options = ProducerOptions.parse(options)
        self._core = self._make_core()
        self._routes = self._core.routes

    def _make_core(self) -> ProducerCore:
        return ProducerCore(self.options)

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
        """Take one record, to be sent to `topic` in the background. Returns the future of its delivery.

            producer.send("clicks", b"value", key=b"user-1")
            producer.send("clicks", b"value", partition=0, timestamp_ms=1700000000000).add_errback(print)

        `value` None makes it a tombstone, which removes its `key` from a compacted topic. `headers` are pairs of a
        name and bytes. Without a `partition` the key decides. `timestamp_ms`: milliseconds since 1970, now by default.

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
                pass  # a new topic or key, a gate that another thread has closed, an invalid key: handled below
            if topic in self._routes and type(key) is bytes:
                sent = self._core.append_plain(topic, value, key)
                if sent is not None:
                    return sent
        return self._send(ProducerRecord(topic, value, key, headers, partition, timestamp_ms))

    def _send(self, record: ProducerRecord) -> RecordFuture:
        core = self._core
        until = core.until()
        prepared = core.prepare(record, until)
        while True:
            sent = core.append(prepared)
            if sent is not None:
                return sent
            core.wait_for_room(prepared.size, until)

    def send_many(
        self,
        topic: str,
        values: Sequence[Any],
        keys: Sequence[Any] | None = None,
        timestamps: Sequence[int] | int | None = None,
        headers: Sequence[Any] | None = None,
        partition: int | None = None,
    ) -> BulkFuture:
        """Take many records of `topic` at once, as columns: ten times as fast as one by one. One future for all.

            future = producer.send_many("clicks", values, keys=keys)
            future.result(timeout=30).record_count

        `values`, `keys`, `timestamps` (milliseconds since 1970) and `headers` are lists or tuples of one length; a
        single timestamp is that of all records. Records keep their order within a `partition`: the given one, or the
        one that their key decides. Records that find no room within max_block_ms fail with BufferFull, which the future
        raises with their positions. It raises what `send` raises.
        """
        core = self._core
        core.check_taking()
        future = BulkFuture(topic, len(values))
        if core.interceptors:
            self._send_one_by_one(future, values, keys, timestamps, headers, partition=partition)
            return future
        given = check_columns(topic, values, keys, timestamps, headers, self.options, int(time.time() * 1000))
        routes = core.topic_routes(topic, core.until())
        partition = None if partition is None else routes.check(partition)
        with Progress(f"sending to {topic!r}", len(values), "records") as progress:
            bulk = BulkSend(future, routes, core.accumulator, self.options, core.wait_for_room_now, progress.tell)
            bulk.columns(given, partition)
        return future

    def _send_one_by_one(self, future: BulkFuture, *columns: Any, partition: int | None) -> None:
        """Take the rows of columns through `send`: interceptors are called with single records."""
        values, keys, timestamps, headers = columns
        count = len(values)
        stamps = [timestamps] * count if timestamps is None or isinstance(timestamps, int) else timestamps
        rows = zip(values, keys or [None] * count, headers or [None] * count, stamps, strict=True)
        for position, (value, key, pairs, stamp) in enumerate(rows):
            future.add_one(self.send(future.topic, value, key, pairs, partition, stamp), position)

    def send_arrow(self, topic: str, table: Any, partition: int | None = None) -> BulkFuture:
        """Take the rows of `table`, an Arrow table or record batch, for `topic`. One future for all rows.

        Columns are `value` and, if present, `key`, `timestamp` (milliseconds, or an Arrow timestamp) and `headers` as
        `poll_arrow` returns them. Keys and values are binary or text. All rows go to `partition`, if one is given. It
        needs the extra `arrow`, and raises what `send_many` raises.
        """
        from raylog.api.producer.arrow_send import send_table

        core = self._core
        core.check_taking()
        routes = core.topic_routes(topic, core.until())
        future = BulkFuture(topic, table.num_rows)
        partition = None if partition is None else routes.check(partition)
        with Progress(f"sending to {topic!r}", table.num_rows, "records") as progress:
            bulk = BulkSend(future, routes, core.accumulator, self.options, core.wait_for_room_now, progress.tell)
            send_table(bulk, table, partition, int(time.time() * 1000))
        return future

    # --- the rest of a producer -----------------------------------------------------------------------------------

    def partitions_for(self, topic: str) -> set[int]:
        """Return the numbers of the partitions of `topic`. UnknownTopic, ClusterUnreachable."""
        return set(range(len(self._core.find_topic(topic).partitions)))

    def metrics(self) -> dict[str, float]:
        """Return what this producer has done, under the names of Kafka's producer metrics."""
        return self._core.metrics.read()

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all records that were taken are delivered or have failed.

        ResultNotReady: some are not after `timeout` seconds; None waits without a limit.
        """
        core = self._core
        core.wait_for_all(core.begin_flush(), timeout)

    def close(self, timeout: float | None = None) -> None:
        """Take no more records, deliver those that were taken, and disconnect. Abort an open transaction.

        What is not delivered within `timeout` seconds fails, and its future raises why. None waits until everything is
        delivered or has failed, which takes at most delivery_timeout_ms. A second call does nothing.
        """
        self._core.close(timeout)

    def __repr__(self) -> str:
        return self._core.describe(type(self).__name__)

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def core_of(producer: Producer) -> ProducerCore:
    """Return what a producer is made of, for `AsyncProducer`."""
    return producer._core
