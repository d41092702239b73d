"""Arrow columns hold the same records as lists do, and are trusted no more."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.errors import BatchError, CorruptBatch, InvalidBatch
from raylog.storage.format.arrow_columns import SCHEMA, SCHEMA_WITH_HEADERS, batch_to_arrow
from raylog.storage.format.batch_codec import decode_batch, encode_batch
from raylog.storage.format.batch_filter import only_records
from raylog.storage.format.columns import pack_int32, pack_int64
from raylog.storage.format.record_batch import Bytes, filler, seal, stamp, stamp_log_append_time
from tests.unit.storage.batches import CODECS, Record, encoded, records, written_by_aiokafka


def rows(batch: Bytes) -> list[dict[str, object]]:
    table = batch_to_arrow(batch, include_headers=True)
    table.validate(full=True)
    return list(table.to_pylist())


def expected_rows(batch: Bytes) -> list[dict[str, object]]:
    decoded = decode_batch(batch)
    columns = (decoded.offsets, decoded.timestamps, decoded.keys, decoded.values, decoded.headers)
    return [
        {
            "offset": offset,
            "timestamp": timestamp,
            "key": key,
            "value": value,
            "headers": [{"key": name, "value": content} for name, content in headers],
        }
        for offset, timestamp, key, value, headers in zip(*columns, strict=True)
    ]


@given(records(), st.sampled_from(CODECS), st.integers(0, 2**60))
def test_a_columnar_batch_gives_the_records_that_lists_give(
    written: Sequence[Record], codec: int, base_offset: int
) -> None:
    batch = bytearray(encoded(written, codec))
    stamp(batch, base_offset, 3)
    assert rows(batch) == expected_rows(batch)


@given(records(), st.data())
def test_a_compacted_batch_keeps_its_offsets(written: Sequence[Record], data: st.DataObject) -> None:
    batch = encoded(written)
    stays = data.draw(st.lists(st.booleans(), min_size=len(written), max_size=len(written)).filter(any))
    decoded = decode_batch(batch)
    part = only_records(decoded.header, batch, decoded, stays)
    assert rows(part) == expected_rows(part)


@given(records())
def test_kafkas_own_layout_gives_the_same_columns(written: Sequence[Record]) -> None:
    batch = written_by_aiokafka(written)
    assert rows(batch) == expected_rows(batch)


def test_the_brokers_time_stands_for_every_record() -> None:
    batch = encode_batch([b"a", b"b"], timestamps=[1, 2])
    stamp_log_append_time(batch, 99)
    assert batch_to_arrow(batch).column("timestamp").to_pylist() == [99, 99]


def test_a_filler_has_no_rows_but_the_schema() -> None:
    assert batch_to_arrow(filler(10, 20, 1)).num_rows == 0
    assert batch_to_arrow(filler(10, 20, 1)).schema == SCHEMA
    assert batch_to_arrow(filler(10, 20, 1), include_headers=True).schema == SCHEMA_WITH_HEADERS


def test_the_bytes_of_a_column_are_not_copied() -> None:
    batch = encode_batch([b"x" * 1000] * 100, timestamps=0)
    values = batch_to_arrow(batch).column("value").buffers()[2]
    whole = pa.py_buffer(batch)
    assert whole.address <= values.address < whole.address + whole.size


def test_a_flipped_bit_is_found_before_anything_is_made_of_it() -> None:
    batch = encode_batch([b"a"], timestamps=0)
    batch[-3] ^= 1
    with pytest.raises(CorruptBatch):
        batch_to_arrow(batch)


def hostile(
    key_lengths: bytes, value_lengths: bytes, values: bytes, times: bytes, offsets: bytes | None = None
) -> bytearray:
    """A batch of two records with a right CRC and these columns."""

    def column(data: bytes | None) -> bytes:
        return b"\xc0" if data is None else b"\xc6" + len(data).to_bytes(4, "big") + data

    payload = b"\x97" + b"".join(map(column, (key_lengths, value_lengths, b"", values, times, offsets))) + b"\xc0"
    return seal([payload], last_offset_delta=1, base_timestamp=2**62, max_timestamp=2**62, record_count=2)


NO_KEYS = pack_int32([-1, -1])
TIMES = pack_int64([0, 0])


@pytest.mark.parametrize(
    "batch",
    [
        hostile(NO_KEYS, pack_int32([-2, 3]), b"abc", TIMES),
        hostile(NO_KEYS, pack_int32([1, 1]), b"abc", TIMES),
        hostile(NO_KEYS, pack_int32([2**31 - 1, 2**31 - 1]), b"abc", TIMES),
        hostile(NO_KEYS, pack_int32([3]), b"abc", TIMES),
        hostile(NO_KEYS, pack_int32([3, 0]), b"abc", pack_int64([0])),
        hostile(NO_KEYS, pack_int32([3, 0]), b"abc", pack_int64([0, 2**63 - 1])),
        hostile(NO_KEYS, pack_int32([3, 0]), b"abc", TIMES, pack_int32([1, 0])),
        hostile(NO_KEYS, pack_int32([3, 0]), b"abc", TIMES, pack_int32([0, 2])),
        hostile(NO_KEYS, pack_int32([3, 0]), b"abc", TIMES, pack_int32([-1, 0])),
        hostile(b"", pack_int32([3, 0]), b"abc", TIMES),
    ],
)
def test_columns_that_do_not_fit_each_other_are_refused(batch: bytearray) -> None:
    with pytest.raises(InvalidBatch):
        decode_batch(batch)
    with pytest.raises(InvalidBatch):
        batch_to_arrow(batch)


@given(st.binary(max_size=80), st.integers(1, 5))
def test_no_payload_gives_anything_but_rows_or_a_typed_error(payload: bytes, count: int) -> None:
    batch = seal(
        [b"\x97" + payload], last_offset_delta=count - 1, base_timestamp=0, max_timestamp=0, record_count=count
    )
    try:
        expected = expected_rows(batch)
    except BatchError:
        with pytest.raises(BatchError):
            batch_to_arrow(batch)
    else:
        assert rows(batch) == expected
