"""Kafka's messages to bytes and back on one core, by our codec and by kafka-python's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import process_time
from typing import Any, NamedTuple

from bench.measuring import Figure, rate_of, rounds_of
from raylog.api.kafka.protocol.codecs import decoder, encoder
from raylog.api.kafka.protocol.message_types import message_type

_KIB, _MIB = 1024, 1024 * 1024
_CALLS_AT_ONCE = 10


class _Case(NamedTuple):
    """One message, with the µs that decoding and encoding are to take."""

    title: str
    theirs: Any
    version: int
    message: Any
    decode_goal: float
    encode_goal: float


def run() -> Iterator[Figure]:
    for case in _cases():
        name = type(case.message).__name__
        encode, decode = encoder(name, case.version), decoder(name, case.version)
        frame = bytearray().join(encode(case.message))
        peer = case.theirs.decode(frame, version=case.version)
        peer._header = None  # which they set nowhere while decoding, and ask for while encoding
        _check_same(peer.encode(version=case.version), frame)
        yield _figure(f"{case.title}, decode", lambda: decode(frame), case.decode_goal)  # noqa: B023 (called at once)
        yield _figure(f"{case.title}, decode by kafka-python", lambda: case.theirs.decode(frame, version=case.version))  # noqa: B023
        yield _figure(f"{case.title}, encode", lambda: encode(case.message), case.encode_goal)  # noqa: B023
        yield _figure(f"{case.title}, encode by kafka-python", lambda: peer.encode(version=case.version))  # noqa: B023


def _check_same(theirs: bytes, ours: bytearray) -> None:
    if theirs != ours:
        raise AssertionError("kafka-python makes other bytes of the same message.")


def _figure(title: str, action: Callable[[], object], goal: float | None = None) -> Figure:
    return Figure(title, rounds_of(lambda: _microseconds(action)), "µs", goal, smaller_is_better=True)


def _microseconds(action: Callable[[], object]) -> float:
    """Return what a call takes of the processor."""
    return 1_000_000 / rate_of(lambda: _repeat(action), _CALLS_AT_ONCE, clock=process_time)()


def _repeat(action: Callable[[], object]) -> None:
    for _ in range(_CALLS_AT_ONCE):
        action()


def _cases() -> Iterator[_Case]:
    from kafka.protocol.consumer import FetchRequest, FetchResponse
    from kafka.protocol.metadata import MetadataResponse
    from kafka.protocol.producer import ProduceRequest, ProduceResponse

    yield _Case("produce, 1 × 16 KiB", ProduceRequest, 9, _produce(1, 16 * _KIB), 1.6, 0.8)
    yield _Case("produce, 10 × 16 KiB", ProduceRequest, 9, _produce(10, 16 * _KIB), 6.3, 3.8)
    yield _Case("produce, 1 × 1 MiB", ProduceRequest, 9, _produce(1, _MIB), 1.5, 0.8)
    yield _Case("produce answer, 10 partitions", ProduceResponse, 9, _produced(10), 4.9, 2)
    yield _Case("fetch, 100 partitions", FetchRequest, 12, _fetch(100), 24, 11)
    yield _Case("fetch answer, 1 × 1 MiB", FetchResponse, 12, _fetched(1, _MIB), 1.7, 0.9)
    yield _Case("fetch answer, 10 × 16 KiB", FetchResponse, 12, _fetched(10, 16 * _KIB), 9.2, 5.1)
    yield _Case("metadata answer, 10 topics × 10", MetadataResponse, 12, _metadata(10, 10), 95, 90)
    yield _Case("metadata answer, 100 topics × 30", MetadataResponse, 12, _metadata(100, 30), 3840, 2490)


def _produce(partitions: int, size: int) -> Any:
    part = message_type("ProduceRequest", "PartitionProduceData")
    topic = message_type("ProduceRequest", "TopicProduceData")
    parts = [part(number, bytes(size)) for number in range(partitions)]
    topics = [topic("clicks", partition_data=parts)]
    return message_type("ProduceRequest")(acks=-1, timeout_ms=30_000, topic_data=topics)


def _produced(partitions: int) -> Any:
    part = message_type("ProduceResponse", "PartitionProduceResponse")
    topic = message_type("ProduceResponse", "TopicProduceResponse")
    parts = [part(number, 0, 12_345 + number) for number in range(partitions)]
    return message_type("ProduceResponse")([topic("clicks", partition_responses=parts)])


def _fetch(partitions: int) -> Any:
    part, topic = message_type("FetchRequest", "FetchPartition"), message_type("FetchRequest", "FetchTopic")
    parts = [part(number, fetch_offset=12_345) for number in range(partitions)]
    return message_type("FetchRequest")(topics=[topic("clicks", partitions=parts)])


def _fetched(partitions: int, size: int) -> Any:
    part = message_type("FetchResponse", "PartitionData")
    topic = message_type("FetchResponse", "FetchableTopicResponse")
    parts = [part(number, high_watermark=12_345, records=bytes(size)) for number in range(partitions)]
    return message_type("FetchResponse")(responses=[topic("clicks", partitions=parts)])


def _metadata(topics: int, partitions: int) -> Any:
    broker = message_type("MetadataResponse", "MetadataResponseBroker")
    topic = message_type("MetadataResponse", "MetadataResponseTopic")
    part = message_type("MetadataResponse", "MetadataResponsePartition")
    parts = [part(0, number, 1, 7, [1, 2, 3], [1, 2, 3]) for number in range(partitions)]
    return message_type("MetadataResponse")(
        brokers=[broker(number, "localhost", 9092 + number) for number in range(3)],
        cluster_id="cluster",
        controller_id=1,
        topics=[topic(0, f"topic-{number}", bytes(range(16)), partitions=parts) for number in range(topics)],
    )
