"""The columnar payload: what goes in comes out, and what no writer may send is refused without harm."""

from __future__ import annotations

import struct
import tracemalloc
from array import array
from collections.abc import Sequence
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.errors import BatchError, InvalidBatch, InvalidTimestamp
from raylog.storage.format.batch_codec import decode_batch
from raylog.storage.format.columns import (
    ColumnPayload,
    Headers,
    RawColumns,
    encode_columns,
    pack_int32,
    pack_int64,
    pack_timestamps,
)
from tests.unit.storage.batches import MODERN, Record, encoded, fewer_examples, records, rows, sealed

items = st.none() | st.binary(max_size=5) | st.binary(min_size=60, max_size=300)


def payload_of(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None = None,
    offsets: Sequence[int] | None = None,
    headers: Sequence[Headers | None] | None = None,
) -> bytes:
    return b"".join(encode_columns(keys, values, bytes(8 * len(values)), offsets, headers))


def parsed(payload: bytes, count: int, last_offset_delta: int | None = None) -> ColumnPayload:
    return ColumnPayload.parse(payload, count, count - 1 if last_offset_delta is None else last_offset_delta)


def packed(columns: Any) -> bytes:
    payload: bytes = msgpack.packb(columns)
    return payload


def good_columns() -> list[Any]:
    """The seven columns of two records: key b"k" and null, values b"ab" and b""."""
    return [pack_int32([1, -1]), pack_int32([2, 0]), b"k", b"ab", pack_int64([0, 5]), None, None]


# --- round trips ------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(items, items), min_size=1, max_size=90))
def test_keys_and_values_come_back(pairs: list[tuple[bytes | None, bytes | None]]) -> None:
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    payload = parsed(payload_of(values, keys), len(pairs))
    assert payload.keys() == keys
    assert payload.values() == values
    assert RawColumns.take_apart(payload_of(values, keys), len(pairs)).has_null_key() == (None in keys)


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 127, 128, 129, 1_000])
@pytest.mark.parametrize("length", [0, 1, 10, 255, 256, 300])
def test_items_of_one_length_come_back(count: int, length: int) -> None:
    values = [bytes([number % 251]) * length for number in range(count)]
    assert parsed(payload_of(values), count).values() == values
    if count > 1:
        values[count // 2] = b"another length"
        assert parsed(payload_of(values), count).values() == values


@pytest.mark.parametrize("count", [1, 63, 64, 200])
def test_records_without_keys(count: int) -> None:
    payload = parsed(payload_of([b"v"] * count), count)
    assert payload.keys() == [None] * count
    assert RawColumns.take_apart(payload_of([b"v"] * count), count).has_null_key()
    assert payload_of([b"v"] * count, [None] * count) == payload_of([b"v"] * count)


@pytest.mark.parametrize("base", [0, MODERN, 2**62, -(2**62), 2**63 - 1, -(2**63)])
@given(data=st.data())
@fewer_examples
def test_timestamps_come_back(base: int, data: st.DataObject) -> None:
    near = st.integers(max(base - 1000, -(2**63)), min(base + 1000, 2**63 - 1))
    far = st.integers(max(base - 2**63, -(2**63)), min(base + 2**63 - 1, 2**63 - 1))
    stamps = data.draw(st.lists(near, min_size=1) | st.lists(far, min_size=1) | st.just([base] * 9))
    column = pack_timestamps(stamps, base)
    payload = parsed(b"".join(encode_columns(None, [b""] * len(stamps), column)), len(stamps))
    assert payload.timestamps(base) == stamps


@given(offsets=st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=30, unique=True).map(sorted))
def test_sparse_offsets_come_back(offsets: list[int]) -> None:
    payload = parsed(payload_of([b"v"] * len(offsets), offsets=offsets), len(offsets), offsets[-1])
    assert payload.offsets(1_000) == [1_000 + offset for offset in offsets]


def test_dense_offsets_are_a_range() -> None:
    assert parsed(payload_of([b"v"] * 3), 3).offsets(7) == range(7, 10)


@given(records())
def test_headers_come_back(drawn: list[Record]) -> None:
    headers = [record.headers or None for record in drawn]
    payload = parsed(payload_of([b""] * len(drawn), headers=headers), len(drawn))
    assert [tuple(record) for record in payload.headers()] == [record.headers for record in drawn]
    assert (payload.record_headers is None) == (not any(headers))


def test_records_without_headers_share_one_empty_value() -> None:
    assert parsed(payload_of([b"v"] * 3), 3).headers() == [(), (), ()]


def test_the_payload_is_msgpack_as_the_layout_says() -> None:
    payload = payload_of(
        [b"ab", None, b"c"], [b"k", b"", None], [0, 2, 9], [[("é", b"1"), ("n", None)], None, []]
    )
    key_lengths, value_lengths, keys, values, timestamps, offsets, headers = msgpack.unpackb(payload)
    assert struct.unpack("<3i", key_lengths) == (1, 0, -1)
    assert struct.unpack("<3i", value_lengths) == (2, -1, 1)
    assert (keys, values) == (b"k", b"abc")
    assert struct.unpack("<3q", timestamps) == (0, 0, 0)
    assert struct.unpack("<3i", offsets) == (0, 2, 9)
    assert headers == [["é", b"1", "n", None], None, None]


def test_short_binary_columns_of_other_msgpack_writers_are_read() -> None:
    columns = good_columns()
    assert packed(columns)[1] == 0xC4, "this writer gives short columns one byte of length"
    assert parsed(packed(columns), 2).keys() == [b"k", None]
    columns[3] = bytes(70_000)
    columns[1] = pack_int32([70_000, 0])
    assert parsed(packed(columns), 2).values() == [bytes(70_000), b""]
    columns[3] = bytes(300)
    columns[1] = pack_int32([0, 300])
    assert parsed(packed(columns), 2).values() == [b"", bytes(300)]


# --- what is refused on the way in ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        [[(b"name", b"value")]],
        [[("name", "value")]],
        [[("name", 5)]],
        [[("name", bytearray(b"value"))]],
        [[("\ud800", b"value")]],
    ],
)
def test_headers_that_nobody_could_read_are_not_written(headers: Any) -> None:
    with pytest.raises(InvalidBatch):
        payload_of([b"v"], headers=headers)


def test_buffers_of_larger_items_are_not_written() -> None:
    wide: Any = memoryview(array("i", [1, 2]))
    with pytest.raises(InvalidBatch):
        payload_of([wide])
    with pytest.raises(InvalidBatch):
        payload_of([None, wide])


@pytest.mark.parametrize("value", ["text", 5, 1.5])
def test_values_that_are_not_bytes_are_type_errors(value: Any) -> None:
    for values in ([value], [None, value], [b"", value]):
        with pytest.raises(TypeError):
            payload_of(values)


@pytest.mark.parametrize(
    ("base", "stamps"),
    [
        (2**63, [2**63]),
        (-(2**63) - 1, [-(2**63) - 1]),
        (0, [0, 2**63]),
        (-5, [-5, -(2**63) - 1]),
        (0, [0, 0.5]),
    ],
)
def test_timestamps_that_do_not_fit_are_not_written(base: int, stamps: Any) -> None:
    with pytest.raises(InvalidTimestamp):
        pack_timestamps(stamps, base)


# --- what is refused on the way out -----------------------------------------------------------------------


def damaged(**columns: Any) -> bytes:
    """The good columns with some replaced; the names are those of the layout."""
    names = ["key_lengths", "value_lengths", "keys", "values", "timestamps", "offsets", "headers"]
    return packed([columns.get(name, good) for name, good in zip(names, good_columns(), strict=True)])


BAD_PAYLOADS: dict[str, bytes] = {
    "nothing": b"",
    "not an array": packed({}),
    "six columns": packed(good_columns()[:6]),
    "eight columns": packed([*good_columns(), None]),
    "a column too few behind the header": b"\x97" + packed(good_columns())[1:-1],
    "an array that says six": b"\x96" + packed(good_columns())[1:],
    "an array that says eight": b"\x98" + packed(good_columns())[1:],
    "bytes behind the last column": packed(good_columns()) + b"\0",
    "bytes behind the headers": damaged(headers=[["a", b"b"], None]) + b"\xc0",
    "key lengths that are text": damaged(key_lengths="12345678"),
    "key lengths that are nil": damaged(key_lengths=None),
    "key lengths for one record": damaged(key_lengths=pack_int32([1])),
    "key lengths for three records": damaged(key_lengths=pack_int32([1, -1, -1])),
    "key lengths cut inside a number": damaged(key_lengths=bytes(7)),
    "a length below null": damaged(key_lengths=pack_int32([3, -2])),
    "lengths that cancel out": damaged(value_lengths=pack_int32([2**31 - 1, -(2**31) + 3])),
    "lengths over what is there": damaged(value_lengths=pack_int32([2, 1])),
    "lengths under what is there": damaged(value_lengths=pack_int32([1, 0])),
    "keys that are nil": damaged(keys=None),
    "values that are a list": damaged(values=[]),
    "values that are a number": damaged(values=5),
    "timestamps that are nil": damaged(timestamps=None),
    "timestamps of four bytes": damaged(timestamps=bytes(8)),
    "offsets that repeat": damaged(offsets=pack_int32([1, 1])),
    "offsets that fall": damaged(offsets=pack_int32([1, 0])),
    "an offset below the base": damaged(offsets=pack_int32([-1, 1])),
    "an offset past the batch": damaged(offsets=pack_int32([0, 2])),
    "offsets for one record": damaged(offsets=pack_int32([0])),
    "headers that are text": damaged(headers="ab"),
    "headers that are a map": damaged(headers={"a": "b"}),
    "headers for one record": damaged(headers=[None]),
    "headers for three records": damaged(headers=[None] * 3),
    "a name without a value": damaged(headers=[["a"], None]),
    "a header that is no list": damaged(headers=[{"a": b""}, None]),
    "a name that is binary": damaged(headers=[[b"a", b"b"], None]),
    "a value that is text": damaged(headers=[["a", "b"], None]),
    "a value that is a list": damaged(headers=[["a", []], None]),
    "a value that is a list of one": damaged(headers=[["a", [None]], None]),
    "a value that is a map": damaged(headers=[["a", {"a": 1}], None]),
    "a value that is a moment": damaged(headers=[["a", msgpack.Timestamp(0)], None]),
    "a name that is not UTF-8": damaged(headers=[["a", b"b"], None]).replace(b"\xa1a", b"\xa1\xff"),
    "a byte that means nothing": damaged(headers=[["a", b"b"], None]).replace(b"\xa1a", b"\xc1a"),
}


@pytest.mark.parametrize("name", BAD_PAYLOADS)
def test_bad_payloads_are_refused(name: str) -> None:
    with pytest.raises(InvalidBatch):
        parsed(BAD_PAYLOADS[name], 2)


def test_the_good_columns_are_good() -> None:
    """Or the refusals above would prove nothing."""
    payload = parsed(packed(good_columns()), 2)
    assert (payload.keys(), payload.values()) == ([b"k", None], [b"ab", b""])
    assert parsed(damaged(headers=[["a", b"b"], None]), 2).headers() == [[("a", b"b")], ()]


def test_every_cut_is_refused() -> None:
    payload = payload_of([b"ab", None], [b"k", b""], [0, 3], [[("name", b"value")], None])
    for kept in range(len(payload)):
        with pytest.raises(InvalidBatch):
            parsed(payload[:kept], 2, 3)


def test_no_offset_column_means_dense() -> None:
    with pytest.raises(InvalidBatch):
        parsed(packed(good_columns()), 2, 5)


@pytest.mark.parametrize(
    ("base", "delta"), [(2**63 - 1, 1), (-(2**63), -1), (0, -(2**63)), (MODERN, 2**63 - 1)]
)
def test_timestamps_stay_in_64_bits(base: int, delta: int) -> None:
    payload = parsed(damaged(timestamps=pack_int64([0, delta])), 2)
    if -(2**63) <= base + delta < 2**63:
        assert payload.timestamps(base) == [base, base + delta]
    else:
        with pytest.raises(InvalidBatch):
            payload.timestamps(base)


def lists_in_lists(depth: int, declared: int) -> bytes:
    return (b"\xdd" + struct.pack(">I", declared)) * depth


NESTED = lists_in_lists(1_000, 5_000)


@pytest.mark.parametrize(
    "payload",
    [
        b"\x97" + NESTED,
        packed(good_columns())[:-1] + NESTED,
        packed(good_columns())[:-1] + b"\x92" + NESTED,
        packed(good_columns())[:-1] + b"\x92\x92\xa1a" + NESTED,
        packed(good_columns())[:-1] + b"\x92\x92" + NESTED,
        packed(good_columns())[:-1] + b"\x92\xdd\xff\xff\xff\xff" + b"\xc0" * 1_000,
        packed(good_columns())[:-1] + b"\x92\x92\xa1a\xc6\xff\xff\xff\xff" + b"\0" * 1_000,
        packed(good_columns())[:-1] + b"\xdd\xff\xff\xff\xff" + b"\xc0" * 1_000,
        b"\x97\xc6\xff\xff\xff\xff" + bytes(1_000),
    ],
)
def test_declared_counts_allocate_nothing(payload: bytes) -> None:
    """A thousand lists inside each other, of 5,000 items each, would be 40 MB, from 5 KB of payload."""
    tracemalloc.start()
    try:
        with pytest.raises(InvalidBatch):
            parsed(payload, 2)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * len(payload) + 64 * 1024


# --- hostile payloads under a correct CRC -----------------------------------------------------------------

_anything = st.recursive(
    st.none() | st.integers(-(2**63), 2**64 - 1) | st.binary(max_size=20) | st.text(max_size=5) | st.floats(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


def decoded_or_refused(batch: bytearray, count: int) -> None:
    try:
        batch_records = decode_batch(batch, unpack_limit=1 << 20)
    except BatchError:
        return
    assert len(rows(batch_records)) == count


@given(columns=st.lists(_anything, min_size=6, max_size=8) | _anything, count=st.integers(1, 4))
def test_any_msgpack_is_decoded_or_refused(columns: Any, count: int) -> None:
    decoded_or_refused(sealed(packed(columns), count), count)


@given(
    key_lengths=st.lists(st.integers(-2, 9), min_size=3, max_size=3),
    value_lengths=st.lists(st.integers(-1, 9) | st.integers(-(2**31), 2**31 - 1), min_size=3, max_size=3),
    stamps=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=3, max_size=3),
    offsets=st.none() | st.lists(st.integers(-1, 6), min_size=3, max_size=3),
    headers=_anything
    | st.lists(st.none() | st.lists(st.text(max_size=2) | st.binary(max_size=2)), min_size=3),
)
def test_columns_that_do_not_fit_are_decoded_or_refused(
    key_lengths: list[int],
    value_lengths: list[int],
    stamps: list[int],
    offsets: list[int] | None,
    headers: Any,
) -> None:
    columns = [
        pack_int32(key_lengths),
        pack_int32(value_lengths),
        bytes(sum(length for length in key_lengths if length > 0)),
        bytes(min(1_000, sum(length for length in value_lengths if length > 0))),
        pack_int64(stamps),
        None if offsets is None else pack_int32(offsets),
        headers,
    ]
    decoded_or_refused(sealed(packed(columns), 3, last_offset_delta=2 if offsets is None else 5), 3)


@given(drawn=records(), data=st.data())
def test_a_mutated_payload_is_decoded_or_refused(drawn: list[Record], data: st.DataObject) -> None:
    payload = bytearray(encoded(drawn)[61:])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(payload) - 1))
        if data.draw(st.booleans()):
            payload[at] = data.draw(st.integers(0, 255))
        else:
            payload[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=6))
        payload = payload or bytearray(b"\0")
    decoded_or_refused(sealed(bytes(payload), len(drawn)), len(drawn))
