"""The producer that programs use, with its real thread, before a cluster in memory."""

from __future__ import annotations

import asyncio
import json
import pickle
import threading
from collections.abc import Callable
from typing import Any, get_type_hints

import pytest

from raylog.api.connection.client_runtime import client_runtime
from raylog.api.connection.records import RecordMetadata
from raylog.api.producer.buffer.interceptors import ProducerRecord
from raylog.api.producer.buffer.record_future import RecordFuture
from raylog.api.producer.producer import Producer, core_of
from raylog.api.producer.rules.partitioners import partition_of_key
from raylog.api.producer.rules.producer_options import ProducerOptions, ProducerSettings
from raylog.errors import (
    BatchTooLarge,
    BufferFull,
    InternalTopic,
    InvalidConfig,
    InvalidTimestamp,
    NotEnoughReplicas,
    ProducerClosed,
    RecordNotSerialized,
    RecordTooLarge,
    ResultNotReady,
    UnknownConfig,
    UnknownPartition,
    UnknownTopic,
    WaitRefused,
)
from tests.unit.api.producer_cluster import TOPIC, producer_of


@pytest.fixture
def patch(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    return monkeypatch


def test_a_record_is_delivered_and_tells_where(patch: pytest.MonkeyPatch) -> None:
    with producer_of(patch) as (producer, link):
        metadata = producer.send(TOPIC, b"value", b"key", [("name", b"x")], 1, 77).result(10)
        assert metadata == RecordMetadata(
            topic=TOPIC,
            partition=1,
            offset=0,
            timestamp=77,
            timestamp_type=0,
            serialized_key_size=3,
            serialized_value_size=5,
            log_start_offset=0,
        )
        (batch,) = link.batches[1]
        assert (batch.keys, batch.values, batch.headers) == ([b"key"], [b"value"], [[("name", b"x")]])


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_metadata_have_the_sizes_of_key_and_value(patch: pytest.MonkeyPatch, acks: Any) -> None:
    with producer_of(patch, acks=acks, value_serializer=str.encode) as (producer, _link):
        sent = [producer.send(TOPIC, "é" * size, b"k" * size or None, partition=0) for size in range(4)]
        sent.append(producer.send(TOPIC, None, b"", partition=0))
        sizes = [future.result(10)[5:7] for future in sent]
        assert sizes == [(-1, 0), (1, 2), (2, 4), (3, 6), (0, -1)]
        assert sent[0].result().log_start_offset == (-1 if acks == 0 else 0)


def test_interceptors_are_told_the_sizes_of_what_goes_in_bulk(patch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int]] = []

    class Watch:
        def on_acknowledgement(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
            assert metadata is not None
            told.append((metadata.serialized_key_size, metadata.serialized_value_size))

    with producer_of(patch, interceptors=[Watch()]) as (producer, _link):
        producer.send_many(TOPIC, [b"value", b""], keys=[b"key", None], partition=0).result(10)
    assert told == [(3, 5), (-1, 0)]


def test_sizes_of_a_batch_that_went_in_halves(patch: pytest.MonkeyPatch) -> None:
    with producer_of(patch, linger_ms=200) as (producer, link):
        link.errors.append(BatchTooLarge(900, 500))
        sent = [producer.send(TOPIC, bytes(size), partition=0) for size in range(8)]
        assert [future.result(10).serialized_value_size for future in sent] == list(range(8))


def test_a_serializer_that_fails_is_named_with_field_and_topic(patch: pytest.MonkeyPatch) -> None:
    class Upper:
        def serialize(self, topic: str, headers: Any, data: Any) -> bytes:
            raise KeyError(data)

    with producer_of(patch, value_serializer=json.dumps, key_serializer=Upper()) as (producer, _link):
        text = "The value of a record for 'clicks': value_serializer json.dumps returned a str, not bytes"
        with pytest.raises(RecordNotSerialized, match=text):
            producer.send(TOPIC, {"id": 1})
        with pytest.raises(TypeError, match=r"value_serializer json\.dumps raised TypeError on a set: Object"):
            producer.send(TOPIC, {1})
        with pytest.raises(RecordNotSerialized, match=r"The key of .*key_serializer .*Upper raised KeyError on a str"):
            producer.send(TOPIC, None, "alice")
        with pytest.raises(RecordNotSerialized, match=r"value_serializer json\.dumps"):
            producer.send_many(TOPIC, [1, 2])


def test_what_it_is_shown_as(patch: pytest.MonkeyPatch) -> None:
    with producer_of(patch) as (producer, link):
        link.hold()
        for _ in range(120):
            producer.send(TOPIC, b"v")
        core_of(producer).begin_flush()
        assert repr(producer) == "<Producer of 'default', 3 brokers, 120 records buffered>"
        client_runtime().run(link.release())
    assert repr(producer) == "<Producer of 'default', 3 brokers, closed>"


def test_after_its_end_nothing_of_it_stays_with_the_shared_link(patch: pytest.MonkeyPatch) -> None:
    with producer_of(patch) as (producer, link):
        producer.send(TOPIC, b"v").result(10)
        assert link._changed
    assert link._changed == []


def test_many_records_one_by_one(patch: pytest.MonkeyPatch) -> None:
    with producer_of(patch, batch_size=20_000) as (producer, link):
        keys = [b"key-%d" % (number % 50) for number in range(5_000)]
        futures = [producer.send(TOPIC, b"%d" % number, key) for number, key in enumerate(keys)]
        producer.flush(30)
        assert sorted(map(len, link.batches))[0] > 0
        for number, (key, future) in enumerate(zip(keys, futures, strict=True)):
            metadata = future.result(0)
            assert metadata.partition == partition_of_key(key, 3)
            assert link.records(metadata.partition)[metadata.offset] == (key, b"%d" % number)


def test_records_without_a_key_go_round_the_partitions(patch: pytest.MonkeyPatch) -> None:
    with producer_of(patch) as (producer, link):
        for _ in range(20_000):
            producer.send(TOPIC, bytes(100))
        producer.flush(30)
        counts = [len(link.values(partition)) for partition in range(3)]
        assert sum(counts) == 20_000
        assert min(counts) > 2_000


def test_a_tombstone_is_none(patch: pytest.MonkeyPatch) -> None:
    with producer_of(patch, 1) as (producer, link):
        producer.send(TOPIC, None, b"gone").result(10)
        assert link.records(0) == [(b"gone", None)]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"value": "text"}, TypeError),
        ({"value": 5}, TypeError),
        ({"value": b"v", "key": "text"}, TypeError),
        ({"value": b"v", "key": ["list"]}, TypeError),
        ({"value": b"v", "headers": 5}, TypeError),
        ({"value": b"v", "headers": [("name", "text")]}, TypeError),
        ({"value": b"v", "headers": [(b"name", b"x")]}, TypeError),
        ({"value": b"v", "headers": [("name",)]}, TypeError),
        ({"value": b"v", "timestamp_ms": 1.5}, TypeError),
        ({"value": b"v", "timestamp_ms": -1}, ValueError),
        ({"value": b"v", "partition": "0"}, TypeError),
        ({"value": b"v", "partition": 3}, UnknownPartition),
        ({"value": bytes(2**20)}, RecordTooLarge),
    ],
)
def test_what_is_wrong_is_said_at_send(patch: pytest.MonkeyPatch, arguments: dict[str, Any], error: type) -> None:
    with producer_of(patch) as (producer, link):
        producer.send(TOPIC, b"right", b"key").result(10)
        with pytest.raises(error):
            producer.send(TOPIC, **arguments)
        producer.flush(10)
        assert link.all_values() == [b"right"]


def test_unknown_topics_and_wrong_names_of_topics(patch: pytest.MonkeyPatch) -> None:
    with producer_of(patch) as (producer, _):
        with pytest.raises(UnknownTopic):
            producer.send("unknown", b"v")
        with pytest.raises(TypeError):
            producer.send(5, b"v")  # type: ignore[arg-type]
        assert producer.partitions_for(TOPIC) == {0, 1, 2}


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
def test_raylogs_own_topics_are_refused_at_once(patch: pytest.MonkeyPatch, topic: str) -> None:
    pa = pytest.importorskip("pyarrow")

    async def ask_nobody(_name: str, _timeout: float) -> None:
        raise AssertionError("Nobody has to be asked.")

    with producer_of(patch) as (producer, link):
        patch.setattr(link, "find_topic", ask_nobody)
        patch.setattr(link, "topic", lambda _name: link.view)  # and it is known, too
        sends: list[Callable[[], object]] = [
            lambda: producer.send(topic, b"v", b"k"),
            lambda: producer.send(topic, b"v", b"k", partition=0),
            lambda: producer.send_many(topic, [b"v"], keys=[b"k"]),
            lambda: producer.send_arrow(topic, pa.table({"value": pa.array([b"v"], pa.binary())})),
        ]
        for send in sends:
            with pytest.raises(InternalTopic, match=topic):
                send()
        assert link.all_values() == []


def test_buffers_are_copied(patch: pytest.MonkeyPatch) -> None:
    with producer_of(patch, 1) as (producer, link):
        value = bytearray(b"before")
        future = producer.send(TOPIC, value, memoryview(b"key"))
        value[:] = b"after!"
        future.result(10)
        assert link.records(0) == [(b"key", b"before")]


def test_serializers(patch: pytest.MonkeyPatch) -> None:
    class Keys:
        def serialize(self, topic: str, headers: object, data: int) -> bytes:
            return b"%s-%d" % (topic.encode(), data)

    def dump(row: object) -> bytes:
        return json.dumps(row).encode()

    with producer_of(patch, 1, key_serializer=Keys(), value_serializer=dump) as (producer, link):
        producer.send(TOPIC, {"a": 1}, 5)
        producer.send(TOPIC, None, None)
        producer.send_many(TOPIC, [[1], [2]], keys=[1, 2])
        producer.flush(10)
        bulk = [(b"clicks-1", b"[1]"), (b"clicks-2", b"[2]")]
        assert link.records(0) == [(b"clicks-5", b'{"a": 1}'), (None, None), *bulk]


def test_a_serializer_that_makes_no_bytes(patch: pytest.MonkeyPatch) -> None:
    with producer_of(patch, value_serializer=str) as (producer, _), pytest.raises(TypeError, match="value"):
        producer.send(TOPIC, 5)


class Watching:
    def __init__(self) -> None:
        self.told: list[tuple[RecordMetadata | None, Exception | None]] = []
        self.is_closed = False

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record._replace(value=record.value.upper())

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        self.told.append((metadata, error))

    def close(self) -> None:
        self.is_closed = True


class Failing:
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        raise ValueError("mine")


def test_interceptors(patch: pytest.MonkeyPatch) -> None:
    watching = Watching()
    with producer_of(patch, 1, interceptors=[Failing(), watching]) as (producer, link):
        metadata = producer.send(TOPIC, b"one").result(10)
        with pytest.raises(TypeError):
            producer.send(TOPIC, "text")
        many = producer.send_many(TOPIC, [b"two", b"three"])
        assert many.result(10).ranges == ((0, 1, 1), (0, 2, 1))
        producer.flush(10)
        assert link.values(0) == [b"ONE", b"TWO", b"THREE"]
    assert watching.told[0] == (metadata, None)
    assert isinstance(watching.told[1][1], TypeError)
    assert len(watching.told) == 4
    assert watching.is_closed


@pytest.mark.parametrize("name", ["round_robin", "random", "least_loaded", "source_hash"])
def test_partitioners_by_name(patch: pytest.MonkeyPatch, name: str) -> None:
    with producer_of(patch, partitioner=name) as (producer, link):
        for number in range(60):
            producer.send(TOPIC, b"%d" % number, b"same key")
        producer.send_many(TOPIC, [b"many"] * 30)
        producer.flush(10)
        used = [len(values) for values in map(link.values, range(3)) if values]
        assert sum(used) == 90
        assert len(used) == (1 if name == "source_hash" else 3)
        if name == "round_robin":
            assert used == [30, 30, 30]


def test_a_partitioner_of_ones_own(patch: pytest.MonkeyPatch) -> None:
    def last(key: bytes | None, every: Any, available: Any) -> int:
        assert list(every) == list(available) == [0, 1, 2]
        return 5 if key == b"wrong" else 2

    with producer_of(patch, partitioner=last) as (producer, link):
        producer.send(TOPIC, b"v", b"k").result(10)
        assert link.records(2) == [(b"k", b"v")]
        with pytest.raises(UnknownPartition):
            producer.send(TOPIC, b"v", b"wrong")


def test_more_partitions_are_used_once_they_are_there(patch: pytest.MonkeyPatch) -> None:
    with producer_of(patch, 1) as (producer, link):
        producer.send(TOPIC, b"v", b"key-1").result(10)
        link.grow(8)
        client_runtime().run(link.tell())
        for number in range(50):
            metadata = producer.send(TOPIC, b"v", b"key-%d" % number).result(10)
            assert metadata.partition == partition_of_key(b"key-%d" % number, 8)


def test_callbacks(patch: pytest.MonkeyPatch) -> None:
    with producer_of(patch, 1) as (producer, link):
        link.errors.append(InvalidTimestamp("too old"))
        told: list[object] = []
        failed = producer.send(TOPIC, b"v").add_errback(told.append).add_callback(told.append)
        assert isinstance(failed.exception(10), InvalidTimestamp)
        assert failed.failed()
        with pytest.raises(InvalidTimestamp):
            failed.result()
        good = producer.send(TOPIC, b"v").add_callback(lambda *given, **named: told.append((given, named)), 1, a=2)
        metadata = good.get(10)
        producer.flush(10)
        good.add_done_callback(told.append)
        assert isinstance(told[0], InvalidTimestamp)
        assert told[1:] == [((1, metadata), {"a": 2}), good]
        assert good.succeeded()


def test_a_callback_may_send_but_not_wait(patch: pytest.MonkeyPatch) -> None:
    with producer_of(patch, 1) as (producer, link):
        refused: list[BaseException] = []

        def call(_: RecordFuture) -> None:
            future = producer.send(TOPIC, b"from a callback")
            for wait in (future.result, producer.flush, producer.close, lambda: producer.partitions_for(TOPIC)):
                try:
                    wait()
                except WaitRefused as error:
                    refused.append(error)

        producer.send(TOPIC, b"v").add_done_callback(call)
        producer.flush(10)
        producer.flush(10)
        assert len(refused) == 4
        assert link.values(0) == [b"v", b"from a callback"]


def test_results_are_waited_for_no_longer_than_asked(patch: pytest.MonkeyPatch) -> None:
    with producer_of(patch, 1) as (producer, link):
        link.hold()
        future = producer.send(TOPIC, b"v")
        assert not future.done()
        with pytest.raises(ResultNotReady):
            future.result(0.01)
        with pytest.raises(TimeoutError):
            producer.flush(0.01)
        client_runtime().run(link.release())
        assert future.result(10).offset == 0


def test_a_future_can_be_awaited_from_any_loop(patch: pytest.MonkeyPatch) -> None:
    with producer_of(patch, 1) as (producer, _):

        async def main() -> int:
            one = await producer.send(TOPIC, b"v")
            many = await producer.send_many(TOPIC, [b"v"] * 3)
            return one.offset + many.ranges[0].first_offset

        assert asyncio.run(main()) == 1


def test_a_future_does_not_travel(patch: pytest.MonkeyPatch) -> None:
    with producer_of(patch, 1) as (producer, _):
        future = producer.send(TOPIC, b"v")
        with pytest.raises(TypeError):
            pickle.dumps(future)
        assert future == future  # noqa: PLR0124
        assert future != producer.send(TOPIC, b"v")
        assert "clicks-0" in repr(future)
        future.result(10)


def send_until_full(producer: Producer) -> int:
    for taken in range(1000):
        try:
            producer.send(TOPIC, bytes(1000))
        except BufferFull:
            return taken
    raise AssertionError("It takes ever more.")


def test_a_full_buffer_makes_send_wait_and_then_fail(patch: pytest.MonkeyPatch) -> None:
    options = {"buffer_memory": 64 * 1024, "batch_size": 8 * 1024, "max_block_ms": 20, "max_request_size": 8192}
    with producer_of(patch, 1, **options) as (producer, link):
        link.hold()
        taken = send_until_full(producer)
        assert 30 < taken <= 64
        many = producer.send_many(TOPIC, [bytes(1000)] * 5)
        assert many.failures()[0].positions == range(5)
        producer.options = ProducerOptions.parse({**options, "max_block_ms": 10_000})
        threading.Timer(0.05, lambda: client_runtime().run(link.release())).start()
        producer.send(TOPIC, b"last").result(10)
        assert len(link.values(0)) == taken + 1


def test_close_delivers_and_then_refuses(patch: pytest.MonkeyPatch) -> None:
    with producer_of(patch, 1, linger_ms=60_000) as (producer, link):
        future = producer.send(TOPIC, b"v")
        producer.close()
        producer.close()
        assert future.result(0).offset == 0
        with pytest.raises(ProducerClosed):
            producer.send(TOPIC, b"v")
        with pytest.raises(ProducerClosed):
            producer.send_many(TOPIC, [b"v"])
        assert link.values(0) == [b"v"]


def test_close_fails_what_is_not_delivered_in_time(patch: pytest.MonkeyPatch) -> None:
    with producer_of(patch, 1) as (producer, link):
        link.hold()
        future = producer.send(TOPIC, b"v")
        producer.close(0.05)
        with pytest.raises(ProducerClosed):
            future.result(0)


def test_a_refusal_is_tried_again(patch: pytest.MonkeyPatch) -> None:
    with producer_of(patch, 1, retry_backoff_ms=1) as (producer, link):
        link.errors += [NotEnoughReplicas(TOPIC, 0, 1, 2)] * 3
        assert producer.send(TOPIC, b"v").result(10).offset == 0
        client_runtime().run(asyncio.sleep(0))  # the loop's turn in which it told of the outcome is over
        metrics = producer.metrics()
        assert metrics["record-retry-total"] == 3
        assert metrics["record-send-total"] == 1
        assert metrics["buffer-available-bytes"] == metrics["buffer-total-bytes"]


def test_an_error_that_nobody_expected_fails_all(patch: pytest.MonkeyPatch) -> None:
    with producer_of(patch, 1) as (producer, link):
        link.errors.append(ZeroDivisionError("a bug"))  # type: ignore[arg-type]
        with pytest.raises(ProducerClosed, match="ZeroDivisionError"):
            producer.send(TOPIC, b"v").result(10)
        with pytest.raises(ProducerClosed):
            producer.send(TOPIC, b"v").result(10)


# --- options ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "suggestion"),
    [("compresion_type", "compression_type"), ("linger.ms", "linger_ms")],
)
def test_unknown_options_suggest_the_one_that_was_meant(option: str, suggestion: str) -> None:
    with pytest.raises(UnknownConfig) as raised:
        ProducerOptions.parse({option: "x"})
    assert raised.value.suggestion == suggestion


@pytest.mark.parametrize(
    "options",
    [
        {"acks": 2},
        {"acks": True},
        {"acks": 0, "enable_idempotence": True},
        {"compression_type": "brotli"},
        {"partitioner": "murmur3"},
        {"linger_ms": 200_000},
        {"max_in_flight": 6},
        {"max_request_size": 2**20, "buffer_memory": 2**17},
        {"interceptors": [object()]},
        {"retry_backoff_ms": 2000},
        {"batch_size": "16384"},
        {"key_serializer": 5},
    ],
)
def test_wrong_values_are_refused_at_once(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig):
        ProducerOptions.parse(options)


def test_type_checkers_know_the_same_options() -> None:
    names = {each.name for each in ProducerOptions.describe()}
    assert set(ProducerSettings.__annotations__) == names
    assert get_type_hints(ProducerOptions) is not None


def test_who_has_stopped_waiting_with_its_loop_is_not_complained_of(
    patch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with producer_of(patch) as (producer, link):
        link.hold()
        future = producer.send(TOPIC, b"v")

        async def give_up() -> None:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(_delivered(future), 0.01)

        asyncio.run(give_up())
        client_runtime().run(link.release())
        assert future.result(10).offset == 0
    assert caplog.records == []


async def _delivered(future: RecordFuture) -> object:
    return await future
