"""Kafka's records: what another project's compiled writer makes is read, what nobody may send is refused."""

from __future__ import annotations

import tracemalloc

import pytest
from aiokafka.record import default_records, memory_records
from hypothesis import given
from hypothesis import strategies as st

from raylog.errors import InvalidBatch
from raylog.storage.format.batch_codec import decode_batch, unpacked
from raylog.storage.format.compression import compress
from raylog.storage.format.kafka_records import KafkaRecord, join_retained, parse_records
from raylog.storage.format.record_batch import MAGIC_KAFKA, check_batch, read_header
from tests.unit.storage.batches import (
    CODECS,
    MODERN,
    Record,
    fewer_examples,
    kafka_bytes,
    kafka_payload,
    kafka_record,
    read_by_aiokafka,
    records,
    resealed,
    rows,
    sealed,
    varint,
    written_by_aiokafka,
)


def parsed(payload: bytes, count: int, last_offset_delta: int | None = None) -> list[KafkaRecord]:
    batch = sealed(payload, count, magic=MAGIC_KAFKA, last_offset_delta=last_offset_delta)
    return parse_records(payload, check_batch(batch))


def as_records(parsed: list[KafkaRecord]) -> list[Record]:
    return [
        Record(one.offset_delta, MODERN + one.timestamp_delta, one.key, one.value, tuple(one.headers))
        for one in parsed
    ]


# --- beside another project's code ------------------------------------------------------------------------


def test_the_other_side_is_the_compiled_one() -> None:
    """The twin in Python is not what users run."""
    for part in (default_records.DefaultRecordBatchBuilder, memory_records.MemoryRecords):
        assert part.__module__.startswith("aiokafka.record._crecords.")


@pytest.mark.parametrize("codec", CODECS)
@given(
    drawn=records(sparse=True), transactional=st.booleans(), producer=st.none() | st.integers(0, 2**63 - 1)
)
@fewer_examples
def test_batches_of_aiokafka_are_read_as_it_reads_them(
    codec: int, drawn: list[Record], transactional: bool, producer: int | None
) -> None:
    identity = (-1, -1, -1) if producer is None else (producer, 7, 2**31 - 5)
    batch = written_by_aiokafka(drawn, codec, transactional=transactional, producer=identity)
    decoded = decode_batch(batch)
    assert rows(decoded) == read_by_aiokafka(batch) == drawn
    header = decoded.header
    theirs = memory_records.MemoryRecords(batch).next_batch()
    assert header.is_transactional == theirs.is_transactional == transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == identity
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == identity
    assert (header.next_offset, header.max_timestamp) == (theirs.next_offset, theirs.max_timestamp)
    assert header.codec == theirs.compression_type


@pytest.mark.parametrize("codec", CODECS)
def test_a_large_batch_of_aiokafka(codec: int) -> None:
    wanted = [Record(n, MODERN + n // 7, b"key%d" % n, b"v" * (n % 400)) for n in range(2_000)]
    assert rows(decode_batch(written_by_aiokafka(wanted, codec))) == wanted


@pytest.mark.parametrize("codec", CODECS)
@given(drawn=records(), data=st.data())
@fewer_examples
def test_aiokafka_reads_what_was_retained(codec: int, drawn: list[Record], data: st.DataObject) -> None:
    batch = written_by_aiokafka(drawn, codec)
    header = read_header(batch)
    stays = data.draw(st.lists(st.booleans(), min_size=len(drawn), max_size=len(drawn)))
    kept = [
        one
        for one, stay in zip(parse_records(unpacked(header, batch, 2**20), header), stays, strict=True)
        if stay
    ]
    compacted = resealed(header, compress(codec, join_retained(kept)), len(kept))
    wanted = [record for record, stay in zip(drawn, stays, strict=True) if stay]
    assert rows(decode_batch(compacted)) == wanted
    if kept:  # the other reader stumbles over a compressed payload without records
        assert read_by_aiokafka(compacted) == wanted


# --- beside the format's description ----------------------------------------------------------------------


@given(records(sparse=True))
def test_parsed_records_are_those_encoded(drawn: list[Record]) -> None:
    payload = kafka_payload(drawn)
    result = parsed(payload, len(drawn), drawn[-1].offset)
    assert as_records(result) == drawn
    assert [bytes(one.raw) for one in result] == [kafka_record(record) for record in drawn]
    assert join_retained(result) == payload


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_is_parsed(kind: type[bytes] | type[bytearray] | type[memoryview]) -> None:
    payload = kafka_payload([Record(0, MODERN, b"k", b"v")])
    header = read_header(sealed(payload, 1, magic=MAGIC_KAFKA))
    (record,) = parse_records(kind(payload), header)
    assert (type(record.key), type(record.value), type(record.raw)) == (bytes, bytes, bytes)


@pytest.mark.parametrize("delta", [0, 63, 64, 8191, 8192, 2**20 - 1, 2**20, 2**31 - 1])
def test_offset_deltas_of_every_width(delta: int) -> None:
    for delta_here in {delta, max(delta - 1, 0)}:
        (record,) = parsed(kafka_record(Record(delta_here, MODERN, None, None)), 1, delta)
        assert record.offset_delta == delta_here


@pytest.mark.parametrize("bits", [6, 7, 13, 14, 20, 27, 31, 32, 34, 41, 48, 55, 62])
def test_timestamp_deltas_of_every_width(bits: int) -> None:
    for delta in (2**bits - 1, -(2**bits), 2**bits):
        (record,) = parsed(kafka_record(Record(0, MODERN + delta, None, None)), 1)
        assert record.timestamp_delta == delta


@pytest.mark.parametrize("size", [0, 1, 63, 64, 8191, 8192, 70_000])
def test_fields_of_every_size(size: int) -> None:
    wanted = Record(0, MODERN, b"k" * size, b"v" * size, (("n" * size, b"h" * size), ("", None)))
    assert as_records(parsed(kafka_record(wanted), 1)) == [wanted]


def test_the_attributes_of_a_record_mean_nothing() -> None:
    record = bytearray(kafka_record(Record(0, MODERN, b"k", b"v")))
    record[1] = 0xFF
    assert parsed(bytes(record), 1)[0].key == b"k"


def test_varints_longer_than_needed_are_read() -> None:
    body = b"\0" + b"\x80\x80\0" + b"\x80\0" + b"\x82\0k" + b"\x82\x80\0v" + b"\x80\0"
    assert as_records(parsed(varint(len(body)) + body, 1)) == [Record(0, MODERN, b"k", b"v")]


# --- what is refused --------------------------------------------------------------------------------------


def framed(body: bytes) -> bytes:
    return varint(len(body)) + body


HEAD = b"\0\0\0"  # attributes, timestamp delta, offset delta
GOOD = kafka_record(Record(0, MODERN, b"key", b"value", (("name", b"x"),)))
BODY = GOOD[1:]

BAD_RECORDS: dict[str, bytes] = {
    "nothing": b"",
    "a length of nothing": varint(0),
    "a negative length": varint(-5) + BODY,
    "a length too short": varint(len(BODY) - 1) + BODY,
    "a length too long": varint(len(BODY) + 1) + BODY,
    "a length far too long": varint(2**31 - 1) + BODY,
    "a length too long, with bytes to fill it": varint(len(BODY) + 1) + BODY + b"\0",
    "bytes behind the record": GOOD + b"\0",
    "two records where one is counted": GOOD + kafka_record(Record(1, MODERN, None, None)),
    "a length of six bytes": b"\x80\x80\x80\x80\x80\0" + BODY,
    "a length over 32 bits": b"\x80\x80\x80\x80\x10" + BODY,
    "a length that never ends": b"\xff" * 100,
    "a timestamp of eleven bytes": framed(b"\0" + b"\x80" * 10 + b"\0" + BODY[2:]),
    "a timestamp over 64 bits": framed(b"\0" + b"\x80" * 9 + b"\x02" + BODY[2:]),
    "an offset over 32 bits": framed(b"\0\0" + b"\x80\x80\x80\x80\x10" + BODY[3:]),
    "a negative offset": framed(b"\0\0" + varint(-1) + BODY[3:]),
    "an offset past the batch": framed(b"\0\0" + varint(10) + BODY[3:]),
    "a key of length -2": framed(HEAD + varint(-2) + kafka_bytes(b"v") + b"\0"),
    "a value of length -2": framed(HEAD + kafka_bytes(b"k") + varint(-2) + b"\0"),
    "a key over the end": framed(HEAD + varint(100) + b"key"),
    "a value over the end": framed(HEAD + kafka_bytes(b"k") + varint(100) + b"value"),
    "an absurd key length": framed(HEAD + varint(2**31 - 1) + b"key"),
    "a value that ends the record": framed(HEAD + kafka_bytes(b"k") + kafka_bytes(b"v")),
    "a negative count of headers": framed(HEAD + b"\x01\x01" + varint(-1)),
    "an absurd count of headers": framed(HEAD + b"\x01\x01" + varint(2**31 - 1)),
    "a header without a name": framed(HEAD + b"\x01\x01" + varint(1) + b"\x01" + kafka_bytes(b"x")),
    "a header without a value": framed(HEAD + b"\x01\x01" + varint(1) + kafka_bytes(b"name")),
    "a header value of length -2": framed(HEAD + b"\x01\x01" + varint(1) + kafka_bytes(b"n") + varint(-2)),
    "a header value over the end": framed(
        HEAD + b"\x01\x01" + varint(1) + kafka_bytes(b"n") + varint(9) + b"x"
    ),
    "a header value over the end of all": varint(20) + HEAD + b"\x01\x01\x02\x02n" + varint(11) + b"x",
    "a header name that is not UTF-8": framed(
        HEAD + b"\x01\x01" + varint(1) + kafka_bytes(b"\xff") + b"\x01"
    ),
}


@pytest.mark.parametrize("name", BAD_RECORDS)
def test_bad_records_are_refused(name: str) -> None:
    with pytest.raises(InvalidBatch):
        parsed(BAD_RECORDS[name], 1)


@pytest.mark.parametrize("name", BAD_RECORDS)
def test_bad_records_are_refused_behind_good_ones(name: str) -> None:
    """There a slice past the record does not meet the end of the payload."""
    first, last = (
        kafka_record(Record(0, MODERN, None, b"v")),
        kafka_record(Record(9, MODERN, None, bytes(300))),
    )
    with pytest.raises(InvalidBatch):
        parsed(first + BAD_RECORDS[name] + last, 3, 9)


@pytest.mark.parametrize("name", [name for name in BAD_RECORDS if " over 32 " in name or " over 64 " in name])
def test_numbers_keep_to_their_bits(name: str) -> None:
    with pytest.raises(InvalidBatch, match="does not fit"):
        parsed(BAD_RECORDS[name], 1)


@pytest.mark.parametrize("offsets", [[0, 0], [1, 0], [0, 1, 1], [0, 2], [-1, 0]])
def test_offsets_that_do_not_rise_within_the_batch_are_refused(offsets: list[int]) -> None:
    payload = kafka_payload([Record(offset, MODERN, None, None) for offset in offsets])
    with pytest.raises(InvalidBatch):
        parsed(payload, len(offsets))


@pytest.mark.parametrize("count", [1, 2, 4, 2**31 - 1])
def test_a_wrong_record_count_is_refused(count: int) -> None:
    payload = kafka_payload([Record(offset, MODERN, None, b"v") for offset in range(3)])
    with pytest.raises(InvalidBatch):
        parsed(payload, count, max(count - 1, 2))


def test_timestamps_stay_in_64_bits() -> None:
    for delta in (2**63 - MODERN, 2**63 - 1):
        with pytest.raises(InvalidBatch):
            parsed(kafka_record(Record(0, MODERN + delta, None, None)), 1)
    (record,) = parsed(kafka_record(Record(0, 2**63 - 1, None, None)), 1)
    assert MODERN + record.timestamp_delta == 2**63 - 1


def test_every_cut_is_refused() -> None:
    payload = kafka_payload(
        [Record(0, MODERN, b"key", b"value", (("n", b"v"),)), Record(1, MODERN + 9_999, None, b"v" * 100)]
    )
    assert len(parsed(payload, 2)) == 2
    for kept in range(len(payload)):
        with pytest.raises(InvalidBatch):
            parsed(payload[:kept], 2)


@pytest.mark.parametrize(
    "payload",
    [
        kafka_record(Record(0, MODERN, None, None)),
        framed(HEAD + b"\x01\x01" + varint(2**31 - 1)),
        varint(2**31 - 1) + HEAD + varint(2**31 - 1),
    ],
)
def test_declared_counts_allocate_nothing(payload: bytes) -> None:
    header = read_header(sealed(payload, 2**31 - 1, magic=MAGIC_KAFKA))
    tracemalloc.start()
    try:
        with pytest.raises(InvalidBatch):
            parse_records(payload, header)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 * 1024


@given(drawn=records(sparse=True), data=st.data())
def test_a_mutated_payload_is_parsed_as_a_whole_or_refused(drawn: list[Record], data: st.DataObject) -> None:
    payload = bytearray(kafka_payload(drawn))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(payload) - 1))
        payload[at] = data.draw(st.integers(0, 255) | st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
    try:
        result = parsed(bytes(payload), len(drawn), drawn[-1].offset)
    except InvalidBatch:
        return
    assert len(result) == len(drawn)
    assert join_retained(result) == bytes(payload)
