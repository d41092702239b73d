"""The batch header: its fields, its checks, its stamps. What the payload holds is not looked at here."""

from __future__ import annotations

from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from raylog.errors import BatchError, CorruptBatch, InvalidBatch, UnsupportedCodec, UnsupportedMagic
from raylog.storage.format.record_batch import (
    CHAIN_FIELDS,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    MAGIC_COLUMNS,
    MAGIC_KAFKA,
    MAX_OFFSET,
    BatchHeader,
    check_batch,
    check_shape,
    filler,
    read_header,
    seal,
    split_batches,
    stamp,
    stamp_log_append_time,
)
from tests.unit.storage.batches import Record, written_by_aiokafka

FIELDS: dict[str, Any] = {
    "base_offset": 7,
    "leader_epoch": 3,
    "magic": MAGIC_KAFKA,
    "attributes": 0x13,
    "last_offset_delta": 4,
    "base_timestamp": 1_000,
    "max_timestamp": 2_000,
    "producer_id": 9,
    "producer_epoch": 2,
    "base_sequence": 11,
    "record_count": 5,
}


def sample(**changes: Any) -> bytearray:
    return seal([b"payload", b" in parts"], **(FIELDS | changes))


def header_with(**changes: Any) -> BatchHeader:
    return read_header(sample())._replace(**changes)


# --- fields -----------------------------------------------------------------------------------------------


def test_a_sealed_batch_holds_what_it_was_given() -> None:
    batch = sample()
    header = check_batch(batch)
    assert {name: getattr(header, name) for name in FIELDS} == FIELDS
    assert header.size == len(batch) == HEADER_BYTES + len(b"payload in parts")
    assert bytes(batch[HEADER_BYTES:]) == b"payload in parts"
    assert header.crc == crc32c(bytes(batch[CRC_START:]))


def test_the_header_is_that_of_kafka() -> None:
    """Every field stands where the writer of another project puts it."""
    batch = written_by_aiokafka(
        [Record(0, 1_000, b"k", b"v"), Record(6, 1_500, None, None)],
        codec=1,
        transactional=True,
        producer=(77, 5, 900),
    )
    header = check_batch(batch)
    assert header == BatchHeader(
        base_offset=0,
        batch_length=len(batch) - 12,
        leader_epoch=header.leader_epoch,
        magic=2,
        crc=header.crc,
        attributes=0x11,
        last_offset_delta=6,
        base_timestamp=1_000,
        max_timestamp=1_500,
        producer_id=77,
        producer_epoch=5,
        base_sequence=900,
        record_count=2,
    )


def test_what_follows_from_the_fields() -> None:
    header = read_header(sample())
    assert (header.last_offset, header.next_offset, header.last_sequence) == (11, 12, 15)
    assert header.codec == 3
    assert header.is_transactional
    assert header.has_producer
    assert not header.is_control
    assert not header.is_log_append_time
    assert not header.is_filler
    assert header_with(attributes=0x20).is_control
    assert header_with(attributes=0x08).is_log_append_time


def test_sequences_wrap_to_zero() -> None:
    assert header_with(base_sequence=2**31 - 1, last_offset_delta=0).last_sequence == 2**31 - 1
    assert header_with(base_sequence=2**31 - 2, last_offset_delta=4).last_sequence == 2
    assert header_with(base_sequence=-1).last_sequence == -1


def test_the_chain_fields_are_those_of_the_header() -> None:
    header = read_header(sample())
    base_offset, length, epoch, magic, last_delta = CHAIN_FIELDS.unpack_from(sample())
    assert (base_offset, length, epoch) == (header.base_offset, header.batch_length, header.leader_epoch)
    assert (magic, last_delta) == (header.magic, header.last_offset_delta)


def test_a_filler_spans_the_removed_offsets() -> None:
    header = check_batch(filler(100, 250, 7))
    assert (header.base_offset, header.next_offset, header.leader_epoch) == (100, 250, 7)
    assert header.is_filler
    assert header.record_count == 0
    assert header.magic == MAGIC_COLUMNS
    assert not header_with(record_count=0).is_filler, "a batch that remembers a producer is none"


@given(position=st.integers(0, 40))
def test_a_header_is_read_at_any_position(position: int) -> None:
    assert read_header(bytes(position) + bytes(sample()), position) == read_header(sample())


# --- checks -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"magic": 0}, UnsupportedMagic),
        ({"magic": 17}, UnsupportedMagic),
        ({"batch_length": 48}, CorruptBatch),
        ({"batch_length": -1}, CorruptBatch),
        ({"attributes": 5}, UnsupportedCodec),
        ({"attributes": 7}, UnsupportedCodec),
        ({"attributes": 0x40}, InvalidBatch),
        ({"attributes": -0x8000}, InvalidBatch),
        ({"base_offset": -1}, InvalidBatch),
        ({"last_offset_delta": -1}, InvalidBatch),
        ({"base_offset": MAX_OFFSET - 3}, InvalidBatch),
        ({"record_count": -1}, InvalidBatch),
        ({"record_count": 6}, InvalidBatch),
        ({"producer_epoch": -1}, InvalidBatch),
        ({"base_sequence": -1}, InvalidBatch),
    ],
)
def test_fields_that_cannot_be_are_refused(changes: dict[str, int], error: type[BatchError]) -> None:
    with pytest.raises(error):
        check_shape(header_with(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"base_offset": MAX_OFFSET - 4},
        {"record_count": 0},
        {"record_count": 5},
        {"magic": MAGIC_COLUMNS},
        {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1},
        {"attributes": 0x3C},
        {"attributes": 0x20, "base_sequence": -1},
    ],
)
def test_fields_at_their_bounds_pass(changes: dict[str, int]) -> None:
    check_shape(header_with(**changes))


def test_every_single_bit_flip_is_refused_or_outside_the_crc() -> None:
    batch = sample()
    before = check_batch(batch)
    stamped = {*range(8), *range(12, 16)}
    for bit in range(len(batch) * 8):
        flipped = bytearray(batch)
        flipped[bit // 8] ^= 1 << (bit % 8)
        try:
            after = check_batch(flipped)
        except BatchError:
            continue
        assert bit // 8 in stamped
        assert after._replace(base_offset=7, leader_epoch=3) == before


@pytest.mark.parametrize("kept", [0, 1, 16, 60, 61, 76])
def test_part_of_a_batch_is_refused(kept: int) -> None:
    with pytest.raises(CorruptBatch):
        check_batch(sample()[:kept])


def test_a_batch_with_bytes_behind_it_is_refused() -> None:
    with pytest.raises(CorruptBatch):
        check_batch(bytes(sample()) + b"\0")


@given(st.binary(max_size=200))
def test_garbage_is_refused(garbage: bytes) -> None:
    with pytest.raises(BatchError):
        check_batch(garbage)


# --- splitting --------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 100), max_size=6))
def test_joined_batches_are_split_where_they_were_joined(sizes: list[int]) -> None:
    batches = [bytes(seal([bytes(size)], **FIELDS)) for size in sizes]
    assert [bytes(batch) for batch in split_batches(b"".join(batches))] == batches


@pytest.mark.parametrize("cut", [1, 20, 61, 76])
def test_half_a_batch_at_the_end_is_refused(cut: int) -> None:
    data = bytes(sample()) * 2
    with pytest.raises(CorruptBatch):
        split_batches(data[: len(data) - cut])


@pytest.mark.parametrize("length", [-(2**31), -12, 0, 48, 2**31 - 1])
def test_absurd_lengths_are_refused_at_once(length: int) -> None:
    batch = sample()
    HEADER.pack_into(batch, 0, *header_with(batch_length=length))
    with pytest.raises(CorruptBatch):
        split_batches(batch)


@given(st.binary(max_size=300))
def test_splitting_garbage_ends(garbage: bytes) -> None:
    try:
        batches = split_batches(garbage)
    except CorruptBatch:
        return
    assert sum(map(len, batches)) == len(garbage)


# --- stamps -----------------------------------------------------------------------------------------------


@given(offset=st.integers(0, MAX_OFFSET - 4), epoch=st.integers(-1, 2**31 - 1))
def test_a_stamp_keeps_the_crc_true(offset: int, epoch: int) -> None:
    batch = sample()
    before = read_header(batch)
    stamp(memoryview(batch), offset, epoch)
    assert check_batch(batch) == before._replace(base_offset=offset, leader_epoch=epoch)


def test_log_append_time_is_summed_again() -> None:
    batch = sample()
    before = read_header(batch)
    stamp_log_append_time(memoryview(batch), 5_555)
    after = check_batch(batch)
    assert after.is_log_append_time
    assert after == before._replace(attributes=before.attributes | 0x08, max_timestamp=5_555, crc=after.crc)
