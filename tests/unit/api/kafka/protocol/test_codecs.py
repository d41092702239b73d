"""Every message in every version, against kafka-python's own codec; and every frame that is not one."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from typing import Any

import pytest

pytest.importorskip("kafka", reason="the extra `kafka` is not installed")

from hypothesis import given, settings
from hypothesis import strategies as st

from raylog.api.kafka.protocol import codecs, wire
from raylog.api.kafka.protocol.api_versions import has_flexible_header
from raylog.api.kafka.protocol.decoder_source import MOST_ITEMS, MOST_QUESTIONS
from raylog.api.kafka.protocol.message_types import message_type
from raylog.api.kafka.protocol.schemas import Field, Struct, schema
from raylog.errors import MalformedRequest
from tests.unit.api.kafka.protocol.kafka_messages import MESSAGES, KafkaPython, fits, kept_in, message_of, values

each_message = pytest.mark.parametrize("name", MESSAGES)


@cache
def kafka_python(name: str) -> KafkaPython:
    return KafkaPython(name)


@each_message
def test_messages_are_those_of_kafka_python_in_every_version(name: str) -> None:
    described = schema(name)

    @settings(max_examples=15)
    @given(values(described.body))
    def compare(found: dict[str, Any]) -> None:
        message = message_of(described.body, found)
        for version in described.versions:
            if not fits(described.body, version, message):
                continue
            encoded = b"".join(codecs.encoder(name, version)(message))
            kept = normal(kept_in(described, version, message))
            assert encoded == kafka_python(name).encode(found, version)
            assert normal(codecs.decoder(name, version)(encoded)) == kept
            theirs, rest = kafka_python(name).decode(encoded, version)
            assert (normal(theirs), rest) == (kept, b"")

    compare()


def normal(value: Any) -> Any:
    """The same with slices of the frame as bytes, a type for each structure, and one kind of empty array."""
    if isinstance(value, memoryview):
        return bytes(value)
    if value == ():
        return []
    if isinstance(value, list):
        return [normal(each) for each in value]
    if isinstance(value, tuple) and value:
        return type(value).__name__, *map(normal, value)
    return value


# --- what is no message -------------------------------------------------------------------------------------------


def full(described: Struct) -> Any:
    """A message with something in each field."""
    found = {field.name: _something(field) for field in described.fields}
    return message_of(described, found)


def _something(field: Field) -> Any:
    if field.struct is not None:
        single: Any = {each.name: _something(each) for each in field.struct.fields}
    else:
        single = {"string": "topic", "bytes": b"12", "records": b"345", "uuid": bytes(range(16)), "bool": True}.get(
            field.kind, 3
        )
    return [single, single] if field.is_array else single


def highest_of_each_form(name: str) -> Iterator[int]:
    """The highest version with plain lengths, and the highest with varints."""
    described = schema(name)
    plain = [version for version in described.versions if version not in described.flexible]
    flexible = [version for version in described.versions if version in described.flexible]
    yield from (versions[-1] for versions in (plain, flexible) if versions)


@each_message
def test_a_frame_cut_anywhere_is_refused_and_so_is_one_that_goes_on(name: str) -> None:
    for version in highest_of_each_form(name):
        decode = codecs.decoder(name, version)
        frame = b"".join(codecs.encoder(name, version)(full(schema(name).body)))
        decode(frame)
        for end in range(len(frame)):
            with pytest.raises(MalformedRequest):
                decode(frame[:end])
        with pytest.raises(MalformedRequest, match="ends before its frame does"):
            decode(frame + (b"\0\0\0\0" if name == "MetadataRequest" else b"\0"))


@pytest.mark.parametrize("may_create", [False, True])
def test_librdkafka_may_ask_for_all_topics(may_create: bool) -> None:
    """It writes four bytes for the count of topics, of which Kafka reads one; the rest comes three bytes late."""
    whether_to_create, rights, tags = bytes([may_create]), b"\0", b"\0"
    asked = codecs.decoder("MetadataRequest", 13)(b"\0\0\0\0" + whether_to_create + rights + tags)
    assert asked == codecs.decoder("MetadataRequest", 13)(b"\0\0\0\0")
    assert asked.topics is None


@each_message
def test_no_bent_byte_does_worse_than_a_refusal(name: str) -> None:
    """A length or a count may be anywhere, so each place gets what a length must not be."""
    bent = [b"\x80", b"\xff", b"\xff\xff", struct.pack(">i", 2**31 - 1), struct.pack(">i", -2), b"\xff\xff\xff\xff\x0f"]
    for version in highest_of_each_form(name):
        decode = codecs.decoder(name, version)
        frame = b"".join(codecs.encoder(name, version)(full(schema(name).body)))
        for place in range(len(frame)):
            for wrong in bent:
                with suppress(MalformedRequest):
                    decode(frame[:place] + wrong + frame[place + len(wrong) :])


@given(st.sampled_from(MESSAGES), st.binary(max_size=60), st.data())
@settings(max_examples=500)
def test_random_bytes_do_no_worse_than_a_refusal(name: str, frame: bytes, data: st.DataObject) -> None:
    decode = codecs.decoder(name, data.draw(st.sampled_from(schema(name).versions)))
    with suppress(MalformedRequest):
        decode(frame)


def test_a_count_is_not_believed_before_there_are_bytes_for_it() -> None:
    decode = codecs.decoder("MetadataRequest", 4)
    with pytest.raises(MalformedRequest, match="bytes are left for 2147483647 items of at least 2"):
        decode(struct.pack(">i", 2**31 - 1) + b"\0\0\0")
    with pytest.raises(MalformedRequest, match=f"more than {MOST_ITEMS} items"):
        decode(struct.pack(">i", MOST_ITEMS + 1) + bytes(2 * MOST_ITEMS + 3))
    assert decode(struct.pack(">i", -1) + b"\1").topics is None


def test_a_message_names_fewer_things_where_each_is_asked_about() -> None:
    decode = codecs.decoder("DescribeGroupsRequest", 0)
    names = struct.pack(">h", 1) + b"g"
    assert len(decode(struct.pack(">i", MOST_QUESTIONS) + MOST_QUESTIONS * names).groups) == MOST_QUESTIONS
    with pytest.raises(MalformedRequest, match=f"more than {MOST_QUESTIONS} items"):
        decode(struct.pack(">i", MOST_QUESTIONS + 1) + (MOST_QUESTIONS + 1) * names)


def test_lengths_are_refused_where_null_has_no_place() -> None:
    for version, frame in ((1, b"\xff\xff\0"), (3, b"\0\0\0")):
        with pytest.raises(MalformedRequest):
            codecs.decoder("FindCoordinatorRequest", version)(frame)


def test_a_varint_is_not_over_32_bits() -> None:
    assert wire.uvarint(b"\xff\xff\xff\x0f", 0, 0xFF) == (2**32 - 1, 4)
    for wrong in (b"\xff\xff\xff\x1f", b"\xff\xff\xff\xff\x01"):
        with pytest.raises(wire.Refused):
            wire.uvarint(wrong, 0, 0xFF)
    for number in (0, 1, 127, 128, 2**14 - 1, 2**14, 2**21 - 1, 2**21, 2**32 - 1):
        packed = wire.packed_uvarint(number)
        assert packed[0] == number or wire.uvarint(packed, 1, packed[0]) == (number, len(packed))


# --- tagged fields ------------------------------------------------------------------------------------------------


def test_unknown_tagged_fields_are_passed_over() -> None:
    heartbeat = b"\2g" + bytes([0, 0, 0, 7]) + b"\2m" + b"\0"
    decode = codecs.decoder("HeartbeatRequest", 4)
    assert decode(heartbeat + b"\0") == decode(heartbeat + b"\2\x05\3abc\x81\x01\0")


@pytest.mark.parametrize(
    "tags",
    [b"\1", b"\1\0", b"\1\0\2a", b"\2\1\1a\1\1a", b"\2\2\1a\1\1a", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x7f"],
)
def test_tagged_fields_that_are_damaged_are_refused(tags: bytes) -> None:
    with pytest.raises(MalformedRequest):
        codecs.decoder("HeartbeatRequest", 4)(b"\2g" + bytes([0, 0, 0, 7]) + b"\2m" + b"\0" + tags)


def test_a_tagged_field_has_the_length_that_it_says() -> None:
    decode = codecs.decoder("FetchRequest", 12)
    fetch = b"".join(codecs.encoder("FetchRequest", 12)(message_type("FetchRequest")(cluster_id="c")))
    assert decode(fetch).cluster_id == "c"
    assert fetch.endswith(b"\1\0\2\2c")
    for wrong in (b"\1\0\1\2c", b"\1\0\3\2c\0"):
        with pytest.raises(MalformedRequest, match="tagged field 0"):
            decode(fetch.removesuffix(b"\1\0\2\2c") + wrong)


# --- records ------------------------------------------------------------------------------------------------------


def test_records_are_slices_of_the_frame_and_long_ones_stay_buffers_of_their_own() -> None:
    piece, other, short = bytearray(b"r" * 5000), bytes(6000), b"short"
    part = message_type("ProduceRequest", "PartitionProduceData")
    topic = message_type("ProduceRequest", "TopicProduceData")
    partitions = [part(0, piece), part(1, [other, short, piece]), part(2, short), part(3, None)]
    message = message_type("ProduceRequest")(topic_data=[topic("clicks", partition_data=partitions)])
    parts = codecs.encoder("ProduceRequest", 9)(message)
    assert [each for each in parts if each is piece] == [piece, piece]
    assert len(parts) == 7
    frame = bytearray().join(parts)
    (found,) = codecs.decoder("ProduceRequest", 9)(frame).topic_data
    assert [None if each.records is None else bytes(each.records) for each in found.partition_data] == [
        piece,
        other + short + piece,
        short,
        None,
    ]
    assert found.partition_data[0].records.obj is frame


# --- frames -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 2, 3, 4])
@pytest.mark.parametrize("client", [None, "", "me"])
def test_headers_go_there_and_back(version: int, client: str | None) -> None:
    request = message_type("ApiVersionsRequest")()
    frame = b"".join(codecs.request_frame("ApiVersions", version, request, correlation_id=9, client_id=client))
    assert struct.unpack_from(">i", frame) == (len(frame) - 4,)
    header = codecs.read_request_header(frame[4:], has_flexible_header)
    assert header[:4] == (18, version, 9, client)
    assert codecs.decoder("ApiVersionsRequest", version)(frame[4:], header.end) == request
    for end in range(header.end):
        with pytest.raises(MalformedRequest):
            codecs.read_request_header(frame[4 : 4 + end], has_flexible_header)


@pytest.mark.parametrize(("name", "version", "size"), [("ApiVersions", 3, 4), ("Heartbeat", 3, 4), ("Heartbeat", 4, 5)])
def test_the_header_of_an_answer_follows_its_version_but_for_api_versions(name: str, version: int, size: int) -> None:
    answer = message_type(f"{name}Response")(error_code=35)
    frame = b"".join(codecs.answer_frame(name, version, answer, correlation_id=77))
    assert struct.unpack_from(">i", frame) == (len(frame) - 4,)
    key = schema(f"{name}Response").api_key
    assert key is not None
    flexible = version in schema(f"{name}Response").flexible
    assert codecs.read_answer_header(frame[4:], key, flexible) == (77, size)
    assert codecs.decoder(f"{name}Response", version)(frame[4:], size).error_code == 35
    for end in range(size):
        with pytest.raises(MalformedRequest):
            codecs.read_answer_header(frame[4 : 4 + end], key, flexible)


@pytest.mark.parametrize("length", [-2, 3, 2**15 - 1])
def test_a_client_id_ends_within_its_frame(length: int) -> None:
    with pytest.raises(MalformedRequest, match="client id"):
        codecs.read_request_header(struct.pack(">hhih", 18, 0, 1, length) + b"me", has_flexible_header)
    with pytest.raises(MalformedRequest):
        codecs.read_request_header(struct.pack(">hhih", 18, 0, 1, 2) + b"\xff\xff", has_flexible_header)
