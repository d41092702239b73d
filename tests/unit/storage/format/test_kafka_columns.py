"""Kafka's records by both fast parsers: what the slow one makes of them, or its refusal."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import astuple
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raylog.errors import InvalidBatch
from raylog.storage.format import kafka_columns as module
from raylog.storage.format.batch_codec import DecodedBatch, decode_checked, read_checked, unpacked, walk_checked
from raylog.storage.format.compression import DEFAULT_UNPACK_LIMIT
from raylog.storage.format.kafka_columns import compiled_parser
from raylog.storage.format.kafka_records import parse_records
from raylog.storage.format.record_batch import (
    MAGIC_KAFKA,
    BatchHeader,
    Bytes,
    check_batch,
    seal,
    stamp,
    stamp_log_append_time,
)
from tests.unit.storage.batches import (
    CODECS,
    MODERN,
    Record,
    encoded,
    fewer_examples,
    kafka_payload,
    kafka_record,
    records,
    sealed,
    varint,
    written_by_aiokafka,
)


def by_records(batch: Bytes) -> DecodedBatch:
    """The columns by the parser that says what is wrong."""
    header = check_batch(batch)
    if header.magic != MAGIC_KAFKA or header.record_count == 0:
        return decode_checked(header, batch)
    parsed = parse_records(unpacked(header, batch, DEFAULT_UNPACK_LIMIT), header)
    timestamps = [header.base_timestamp + each.timestamp_delta for each in parsed]
    return DecodedBatch(
        header,
        [each.key for each in parsed],
        [each.value for each in parsed],
        [header.max_timestamp] * len(parsed) if header.is_log_append_time else timestamps,
        [header.base_offset + each.offset_delta for each in parsed],
        [each.headers for each in parsed],
    )


def in_python(batch: Bytes) -> DecodedBatch:
    return decode_checked(check_batch(batch), batch)


def compiled(batch: Bytes) -> DecodedBatch:
    return read_checked(check_batch(batch), batch)


@pytest.fixture
def fallen_back(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What Python was asked to parse."""
    asked: list[Any] = []
    plain = module.plain_columns

    def ask(payload: Bytes, header: BatchHeader) -> module.KafkaColumns:
        asked.append(header)
        return plain(payload, header)

    monkeypatch.setattr(module, "plain_columns", ask)
    return asked


def test_the_parser_is_the_compiled_one() -> None:
    found = compiled_parser()
    assert found is not None
    assert found.__module__.startswith("aiokafka.record._crecords.")


@pytest.mark.parametrize("codec", CODECS)
@given(drawn=records(sparse=True))
@fewer_examples
def test_it_reads_what_python_reads(codec: int, drawn: list[Record]) -> None:
    batch = bytearray(written_by_aiokafka(drawn, codec))
    stamp(batch, 4_000_000_000, 7)
    assert astuple(compiled(batch)) == astuple(in_python(batch)) == astuple(by_records(batch))
    stamp_log_append_time(batch, 99)
    assert compiled(memoryview(batch)).timestamps == [99] * len(drawn)


def test_records_as_clients_write_them_need_no_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "parse_records", lambda *_: pytest.fail("parsed again"))
    wanted = [Record(n, MODERN + 9 * n, b"k" * (n % 99), b"v" * (60 * n)) for n in range(300)]
    assert in_python(written_by_aiokafka(wanted)).values == [each.value for each in wanted]


def test_more_records_than_a_group_and_python_is_not_asked(fallen_back: list[Any]) -> None:
    headers = [(), (("a", None),)]
    wanted = [Record(2 * n, MODERN - n, b"k%d" % n, b"v" * (n % 300), headers[n % 300 == 299]) for n in range(1_000)]
    batch = written_by_aiokafka(wanted, 3)
    assert compiled(batch).offsets == [2 * n for n in range(1_000)]
    assert [list(map(tuple, compiled(batch).headers))[n] for n in (0, 299)] == headers
    assert fallen_back == []
    assert astuple(compiled(batch)) == astuple(by_records(batch))
    walked = walk_checked(check_batch(batch), batch)
    assert list(walked.values) == [each.value for each in wanted]


def test_columns_and_empty_batches_are_nothing_for_it() -> None:
    columns = encoded([Record(0, MODERN, b"k", b"v")])
    assert compiled(columns) == by_records(columns)
    empty = sealed(b"", 0, magic=MAGIC_KAFKA, last_offset_delta=3)
    assert compiled(empty).values == []


def test_without_a_compiled_parser_python_reads(monkeypatch: pytest.MonkeyPatch, fallen_back: list[Any]) -> None:
    monkeypatch.setattr(module, "compiled_parser", lambda: None)
    assert compiled(written_by_aiokafka([Record(0, MODERN, b"k", b"v")])).values == [b"v"]
    assert len(fallen_back) == 1


_WANTED = [Record(n, MODERN + n, b"key", b"value" * n, (("h", b"x"),) * (n % 2)) for n in range(4)]


@given(st.integers(0, len(kafka_payload(_WANTED)) - 1), st.binary(min_size=1, max_size=4), st.booleans())
@settings(max_examples=600)
def test_a_bent_payload_is_read_as_python_reads_it_or_refused(place: int, wrong: bytes, cut: bool) -> None:
    payload = kafka_payload(_WANTED)
    bent = payload[:place] if cut else payload[:place] + wrong + payload[place + len(wrong) :]
    batch = sealed(bent, len(_WANTED), magic=MAGIC_KAFKA)
    try:
        expected = by_records(batch)
    except InvalidBatch as error:
        with pytest.raises(InvalidBatch, match=re.escape(str(error))):
            in_python(batch)
        with suppress(InvalidBatch):
            compiled(batch)
    else:
        assert astuple(compiled(batch)) == astuple(in_python(batch)) == astuple(expected)


def test_a_record_has_no_negative_length() -> None:
    """The bit of the sign is all that tells it from the right one."""
    payload = bytearray(kafka_record(_WANTED[0]))
    payload[0] |= 1
    for read in (compiled, in_python):
        with pytest.raises(InvalidBatch):
            read(sealed(payload, 1, magic=MAGIC_KAFKA))


_HUGE = (2**31 - 1, 2**31, 2**62, 2**63 - 1, 2**63 - 40, -2, -(2**31), -(2**63))


@pytest.mark.parametrize("length", _HUGE)
@pytest.mark.parametrize("field", ["record", "key", "value", "headers", "header name", "header value"])
def test_lengths_that_cannot_be_are_refused_or_are_a_null(length: int, field: str) -> None:
    numbers = {"key": 1, "value": 1, "headers": 1, "header name": 1, "header value": 1, field: length}
    header = varint(numbers["header name"]) + b"h" + varint(numbers["header value"]) + b"x"
    content = varint(numbers["key"]) + b"k" + varint(numbers["value"]) + b"v" + varint(numbers["headers"]) + header
    body = b"\0\0\0" + content
    payload = varint(numbers.get("record", len(body))) + body
    for read in (compiled, in_python):
        with pytest.raises(InvalidBatch):
            read(sealed(payload, 1, magic=MAGIC_KAFKA))


@pytest.mark.parametrize(
    ("offsets", "last_offset_delta"), [([0, 0], 1), ([1, 0], 1), ([0, 3], 2), ([-1, 0], 1), ([0, 1, 1], 5)]
)
def test_offsets_that_do_not_rise_within_the_batch_are_refused(offsets: list[int], last_offset_delta: int) -> None:
    payload = b"".join(kafka_record(Record(offset, MODERN, b"k", b"v")) for offset in offsets)
    batch = sealed(payload, len(offsets), magic=MAGIC_KAFKA, last_offset_delta=last_offset_delta)
    for read in (compiled, in_python):
        with pytest.raises(InvalidBatch):
            read(batch)


@pytest.mark.parametrize("base", [2**63 - 1, 2**61, 0, -(2**61)])
@pytest.mark.parametrize("delta", [2**63 - 1, 2**62, 1, -(2**63)])
def test_timestamps_that_do_not_fit_are_refused_and_others_are_not(base: int, delta: int) -> None:
    payload = kafka_record(Record(0, delta, b"k", b"v"), base_timestamp=0)
    batch = seal(
        [payload], magic=MAGIC_KAFKA, last_offset_delta=0, base_timestamp=base, max_timestamp=base, record_count=1
    )
    if -(2**63) <= base + delta < 2**63:
        assert compiled(batch).timestamps == in_python(batch).timestamps == [base + delta]
    else:
        for read in (compiled, in_python):
            with pytest.raises(InvalidBatch):
                read(batch)
