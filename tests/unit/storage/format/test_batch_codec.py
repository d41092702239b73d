"""Records to batches and back, for both layouts and all codecs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.errors import (
    BatchError,
    CorruptBatch,
    InvalidBatch,
    InvalidTimestamp,
    PayloadTooLarge,
    UnsupportedCodec,
)
from raylog.storage.format.batch_codec import decode_batch, decode_checked, encode_batch, has_null_key, walk_checked
from raylog.storage.format.columns import encode_columns, pack_timestamps
from raylog.storage.format.compression import compress
from raylog.storage.format.record_batch import (
    MAGIC_COLUMNS,
    MAGIC_KAFKA,
    check_batch,
    filler,
    read_header,
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
    records,
    resealed,
    rows,
    sealed,
    written_by_aiokafka,
)

MAGICS = (MAGIC_KAFKA, MAGIC_COLUMNS)


def batch_of(drawn: Sequence[Record], magic: int, codec: int = 0) -> bytearray:
    """A batch of any layout; offsets may have gaps."""
    base = drawn[0].timestamp
    if magic == MAGIC_KAFKA:
        return bytearray(written_by_aiokafka(drawn, codec))
    parts = encode_columns(
        [record.key for record in drawn],
        [record.value for record in drawn],
        pack_timestamps([record.timestamp for record in drawn], base),
        [record.offset for record in drawn],
        [record.headers for record in drawn],
    )
    return seal(
        [compress(codec, b"".join(parts))],
        attributes=codec,
        last_offset_delta=drawn[-1].offset,
        base_timestamp=base,
        max_timestamp=max(record.timestamp for record in drawn),
        record_count=len(drawn),
    )


# --- round trips ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
@given(drawn=records())
@fewer_examples
def test_encoded_records_come_back(codec: int, drawn: list[Record]) -> None:
    batch = encoded(drawn, codec)
    decoded = decode_batch(batch)
    assert rows(decoded) == drawn
    assert len(decoded) == len(drawn)
    header = check_batch(batch)
    assert (header.magic, header.codec) == (MAGIC_COLUMNS, codec)
    assert header.base_timestamp == drawn[0].timestamp
    assert header.max_timestamp == max(record.timestamp for record in drawn)
    assert header.next_offset == header.record_count == len(drawn)


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize("codec", CODECS)
@given(drawn=records(sparse=True), base_offset=st.integers(0, 2**62))
@fewer_examples
def test_sparse_offsets_count_from_the_stamp(
    magic: int, codec: int, drawn: list[Record], base_offset: int
) -> None:
    batch = batch_of(drawn, magic, codec)
    stamp(batch, base_offset, 3)
    assert rows(decode_batch(batch)) == [
        record._replace(offset=base_offset + record.offset) for record in drawn
    ]


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize("is_stamped", [False, True])
@pytest.mark.parametrize("codec", CODECS)
@given(drawn=records(sparse=True), repeats=st.sampled_from([1, 30]))
@fewer_examples
def test_walking_and_decoding_see_the_same(
    codec: int, is_stamped: bool, magic: int, drawn: list[Record], repeats: int
) -> None:
    span = drawn[-1].offset + 1
    many = [each._replace(offset=each.offset + turn * span) for turn in range(repeats) for each in drawn]
    batch = batch_of(many, magic, codec)
    if is_stamped:
        stamp_log_append_time(batch, MODERN)
    walked = walk_checked(check_batch(batch), batch)
    columns = (walked.offsets, walked.timestamps, walked.keys, walked.values, map(tuple, walked.headers))
    assert [Record(*fields) for fields in zip(*columns, strict=True)] == rows(decode_batch(batch))


def test_walking_a_batch_without_records_meets_none() -> None:
    batch = filler(5, 9, 1)
    assert list(walk_checked(check_batch(batch), batch).values) == []


@pytest.mark.parametrize("magic", MAGICS)
@given(drawn=records(sparse=True), now=st.integers(0, 2**62))
@fewer_examples
def test_log_append_time_is_the_time_of_every_record(magic: int, drawn: list[Record], now: int) -> None:
    batch = batch_of(drawn, magic)
    stamp_log_append_time(batch, now)
    assert rows(decode_batch(batch)) == [record._replace(timestamp=now) for record in drawn]


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_is_decoded(magic: int, kind: type[bytes] | type[bytearray] | type[memoryview]) -> None:
    wanted = [Record(0, MODERN, b"k", b"v", (("n", None),)), Record(1, MODERN, None, b"")]
    decoded = decode_batch(kind(bytes(batch_of(wanted, magic))))
    assert rows(decoded) == wanted
    assert {type(item) for item in (*decoded.keys, *decoded.values)} == {bytes, type(None)}


def test_one_timestamp_stands_for_all_records() -> None:
    batch = encode_batch([b"a", b"b"], timestamps=MODERN)
    assert decode_batch(batch).timestamps == [MODERN, MODERN]
    assert batch == encode_batch([b"a", b"b"], timestamps=[MODERN, MODERN])


def test_timestamps_may_go_back() -> None:
    batch = encode_batch([b"a", b"b", b"c"], timestamps=[50, 90, 10])
    assert decode_batch(batch).timestamps == [50, 90, 10]
    assert (read_header(batch).base_timestamp, read_header(batch).max_timestamp) == (50, 90)


@pytest.mark.parametrize("codec", CODECS)
def test_producer_and_flags_are_in_the_header(codec: int) -> None:
    batch = encode_batch(
        [b"a"],
        timestamps=5,
        codec=codec,
        producer_id=7,
        producer_epoch=3,
        base_sequence=11,
        transactional=True,
        control=True,
    )
    header = check_batch(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 11)
    assert header.is_transactional
    assert header.is_control
    assert header.codec == codec
    plain = check_batch(encode_batch([b"a"], timestamps=5, codec=codec))
    assert plain.attributes == codec
    assert not plain.has_producer


@pytest.mark.parametrize("magic", MAGICS)
def test_large_batches_come_back(magic: int) -> None:
    wanted = [
        Record(n, MODERN + n // 10, b"key%05d" % n if n % 9 else None, b"v" * (n % 200)) for n in range(1_500)
    ]
    for codec in CODECS:
        assert rows(decode_batch(batch_of(wanted, magic, codec))) == wanted


def test_a_batch_without_records_decodes_to_none() -> None:
    for batch in (
        filler(10, 20, 1),
        resealed(read_header(written_by_aiokafka([Record(0, 5, b"k", b"v")])), b"", 0),
    ):
        decoded = decode_batch(batch)
        assert len(decoded) == 0
        assert rows(decoded) == []
        assert not has_null_key(decoded.header, batch)


# --- null keys --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize("codec", CODECS)
def test_null_keys_are_found(magic: int, codec: int) -> None:
    keyed = [Record(n, MODERN, b"k" * (n % 3), None) for n in range(300)]
    batch = batch_of(keyed, magic, codec)
    assert not has_null_key(check_batch(batch), batch), "an empty key is a key"
    for position in (0, 150, 299):
        records_ = list(keyed)
        records_[position] = records_[position]._replace(key=None)
        batch = batch_of(records_, magic, codec)
        assert has_null_key(check_batch(batch), batch)


# --- what is refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"values": [], "timestamps": 5}, InvalidBatch),
        ({"values": [b"a"], "timestamps": 5, "keys": []}, InvalidBatch),
        ({"values": [b"a"], "timestamps": 5, "keys": [b"k", b"k"]}, InvalidBatch),
        ({"values": [b"a"], "timestamps": 5, "headers": [None, None]}, InvalidBatch),
        ({"values": [b"a"], "timestamps": 5, "headers": [[("n", 5)]]}, InvalidBatch),
        ({"values": [b"a"], "timestamps": []}, InvalidBatch),
        ({"values": [b"a"], "timestamps": [1, 2]}, InvalidBatch),
        ({"values": [b"a"], "timestamps": 2**63}, InvalidTimestamp),
        ({"values": [b"a"], "timestamps": -(2**63) - 1}, InvalidTimestamp),
        ({"values": [b"a", b"b"], "timestamps": [-(2**62), 2**63 - 1]}, InvalidTimestamp),
        ({"values": [b"a"], "timestamps": 5, "codec": 5}, UnsupportedCodec),
        ({"values": [b"a"], "timestamps": 5, "codec": -1}, UnsupportedCodec),
    ],
)
def test_what_nobody_could_read_is_not_written(arguments: dict[str, Any], error: type[BatchError]) -> None:
    with pytest.raises(error):
        encode_batch(**arguments)


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize("codec", CODECS[1:])
def test_the_unpack_limit_is_kept(magic: int, codec: int) -> None:
    batch = batch_of([Record(0, MODERN, b"k", bytes(100_000))], magic, codec)
    assert decode_batch(batch, unpack_limit=101_000).values == [bytes(100_000)]
    for read in (decode_batch, lambda batch, limit: has_null_key(check_batch(batch), batch, limit)):
        with pytest.raises(PayloadTooLarge):
            read(batch, 100_000)


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize("codec", [0, 3])
def test_every_single_bit_flip_is_refused_or_outside_the_crc(magic: int, codec: int) -> None:
    wanted = [Record(0, MODERN, b"k", b"value", (("n", b"h"),)), Record(2, MODERN + 5, None, b"")]
    batch = batch_of(wanted, magic, codec)
    for bit in range(len(batch) * 8):
        flipped = bytearray(batch)
        flipped[bit // 8] ^= 1 << (bit % 8)
        try:
            decoded = decode_batch(flipped)
        except BatchError:
            continue
        moved = decoded.header.base_offset
        assert bit // 8 in {*range(8), *range(12, 16)}
        assert rows(decoded) == [record._replace(offset=moved + record.offset) for record in wanted]


def test_the_crc_comes_before_the_payload() -> None:
    batch = batch_of([Record(0, MODERN, b"k", b"v")], MAGIC_COLUMNS)
    batch[-1] ^= 1
    with pytest.raises(CorruptBatch):
        decode_batch(batch)
    with pytest.raises(InvalidBatch):
        decode_checked(read_header(batch), batch)


def test_one_layout_is_not_taken_for_the_other() -> None:
    """The CRC does not cover the magic."""
    wanted = [Record(0, MODERN, b"k", b"v")]
    for magic, other in (MAGICS, MAGICS[::-1]):
        batch = batch_of(wanted, magic)
        batch[16] = other
        with pytest.raises(InvalidBatch):
            decode_batch(batch)


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize("codec", CODECS)
@given(payload=st.binary(max_size=120), count=st.integers(1, 3))
@fewer_examples
def test_garbage_under_a_correct_crc_is_refused(magic: int, codec: int, payload: bytes, count: int) -> None:
    packed = compress(codec, payload) if count < 3 else payload
    batch = sealed(packed, count, magic=magic, codec=codec)
    with pytest.raises(BatchError):
        decode_batch(batch)
    with pytest.raises(BatchError):
        has_null_key(read_header(batch), batch)


@given(drawn=records(sparse=True))
def test_the_plain_encoder_of_the_tests_agrees_with_aiokafka(drawn: list[Record]) -> None:
    """Or the tests that use it would prove nothing."""
    first = drawn[0]._replace(timestamp=MODERN)
    drawn = [first, *drawn[1:]]
    assert written_by_aiokafka(drawn)[61:] == kafka_payload(drawn)
