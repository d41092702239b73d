"""Columns as Kafka's records: what any reader of them finds is what the columns held."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from raylog.storage.format.batch_codec import column_payload, decode_batch
from raylog.storage.format.columns import ColumnPayload, encode_columns, pack_timestamps
from raylog.storage.format.compression import DEFAULT_UNPACK_LIMIT
from raylog.storage.format.kafka_encoding import _kept_heads, encode_records, varint
from raylog.storage.format.record_batch import MAGIC_KAFKA, read_header
from tests.unit.storage.batches import MODERN, Record, encoded, kafka_payload, records, rows, sealed
from tests.unit.storage.batches import varint as plain_varint


def payload_of(batch: bytes) -> ColumnPayload:
    return column_payload(read_header(batch), batch, DEFAULT_UNPACK_LIMIT)


def sparse(drawn: list[Record]) -> ColumnPayload:
    """The columns of records whose offsets have gaps, or not."""
    timestamps = pack_timestamps([each.timestamp for each in drawn], MODERN)
    offsets = [each.offset for each in drawn]
    headers: Any = [each.headers for each in drawn]
    parts = encode_columns([each.key for each in drawn], [each.value for each in drawn], timestamps, offsets, headers)
    return ColumnPayload.parse(b"".join(parts), len(drawn), drawn[-1].offset)


@given(records(sparse=True))
def test_the_bytes_are_those_of_a_plain_encoder(drawn: list[Record]) -> None:
    assert b"".join(encode_records(sparse(drawn))) == kafka_payload(drawn)


_ITEMS: dict[str, Callable[[int], bytes | None]] = {
    "null": lambda n: None,
    "empty": lambda n: b"",
    "even": lambda n: b"%010d" % n,
    "uneven": lambda n: b"x" * (n % 90),
    "some null": lambda n: None if n % 3 else b"x" * (n % 70),
    "long": lambda n: bytes(9000 + n % 5),
    "long and null": lambda n: None if n % 2 else bytes(9000),
}
_MOMENTS: dict[str, Callable[[int], int]] = {
    "one": lambda n: 5,
    "rising": lambda n: 70 * n,
    "any": lambda n: (n * 7919) % 100_003 - 50_000,
}


@pytest.mark.parametrize("key", ["null", "empty", "even", "uneven", "some null", "long"])
@pytest.mark.parametrize("value", _ITEMS)
@pytest.mark.parametrize("moment", _MOMENTS)
@pytest.mark.parametrize("count", [1, 65, 130])
def test_each_way_of_being_even_or_not(key: str, value: str, moment: str, count: int) -> None:
    """Offsets of 64 and more have two bytes."""
    wanted = [Record(n, MODERN + _MOMENTS[moment](n), _ITEMS[key](n), _ITEMS[value](n)) for n in range(count)]
    assert b"".join(encode_records(sparse(wanted))) == kafka_payload(wanted)
    batch = encoded(wanted)
    kafka = b"".join(encode_records(payload_of(batch)))
    base = read_header(batch).base_timestamp
    assert rows(decode_batch(sealed(kafka, count, magic=MAGIC_KAFKA))) == [
        each._replace(timestamp=each.timestamp - base + MODERN) for each in wanted
    ]


def test_offsets_of_three_bytes_and_beyond_what_is_tabled() -> None:
    wanted = [Record(n, MODERN, b"k", b"v") for n in range(9_000)]
    assert b"".join(encode_records(sparse(wanted))) == kafka_payload(wanted)
    assert b"".join(encode_records(payload_of(encoded(wanted)))) == kafka_payload(wanted)


def test_what_is_kept_of_large_batches_is_nothing() -> None:
    """The heads of their records would take as much memory as they do."""
    before = _kept_heads.cache_info().currsize
    wanted = [Record(n, MODERN, b"k", b"v") for n in range(10_001)]
    assert b"".join(encode_records(payload_of(encoded(wanted)))) == kafka_payload(wanted)
    assert _kept_heads.cache_info().currsize == before


def test_headers_of_some_records_only() -> None:
    headers = [(), (("a", None),), (("ключ", b"x" * 9_000), ("", b""))]
    wanted = [Record(n, MODERN, b"k", b"v", headers[n % 3]) for n in range(200)]
    assert b"".join(encode_records(sparse(wanted))) == kafka_payload(wanted)


@given(st.integers(-(2**63), 2**63 - 1))
@example(-(2**63))
def test_varints(number: int) -> None:
    assert varint(number) == plain_varint(number)


def test_the_least_and_the_greatest_moment() -> None:
    least, most = -(2**63), 2**63 - 1
    null = array("i", [-1, -1])
    columns = ColumnPayload(2, null, null, b"", b"", array("q", [least, most]), None, None)
    wanted = [Record(0, least, None, None), Record(1, most, None, None)]
    plain = kafka_payload([each._replace(timestamp=each.timestamp + MODERN) for each in wanted])
    assert b"".join(encode_records(columns)) == plain
