"""Converted batches, as two Kafka clients and raylog's own reader read them; and what a client gets of fillers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.api.kafka.rules.batch_conversion import (
    NO_COMPRESSION,
    as_columns,
    as_kafka,
    check_fetched,
    codec_for,
    stored_columns,
    visible_batches,
)
from raylog.errors import CorruptBatch, InvalidBatch
from raylog.storage.format.batch_codec import decode_batch, encode_batch
from raylog.storage.format.batch_filter import emptied, only_records
from raylog.storage.format.control_records import Marker, MarkerType, decode_marker, encode_marker
from raylog.storage.format.record_batch import (
    CODEC_MASK,
    MAGIC_COLUMNS,
    MAGIC_KAFKA,
    BatchHeader,
    Bytes,
    check_batch,
    filler,
    read_header,
    stamp,
    stamp_log_append_time,
)
from tests.unit.storage.batches import (
    CODECS,
    Record,
    encoded,
    fewer_examples,
    kafka_payload,
    read_by_aiokafka,
    read_by_kafka_python,
    records,
    rows,
    sealed,
    written_by_aiokafka,
    written_by_kafka_python,
)


def stamped(batch: Bytes, base_offset: int = 4_000_000_000, epoch: int = 7) -> bytearray:
    found = bytearray(batch)
    stamp(found, base_offset, epoch)
    return found


def unchanged(header: BatchHeader) -> BatchHeader:
    """The fields that conversion leaves as they are."""
    return header._replace(magic=0, batch_length=0, crc=0, attributes=header.attributes & ~CODEC_MASK)


@pytest.mark.parametrize("codec", CODECS)
@given(records())
@fewer_examples
def test_a_converted_batch_is_read_as_the_stored_one(codec: int, drawn: list[Record]) -> None:
    stored = stamped(encoded(drawn, codec))
    converted = as_kafka(stored)
    header = check_batch(converted)
    assert (header.magic, header.codec) == (MAGIC_KAFKA, codec)
    assert unchanged(header) == unchanged(read_header(stored))
    assert rows(decode_batch(converted)) == rows(decode_batch(stored)) == read_by_aiokafka(converted)


@given(records())
@fewer_examples
def test_kafka_python_reads_it_too(drawn: list[Record]) -> None:
    stored = stamped(encoded(drawn))
    assert read_by_kafka_python(as_kafka(stored)) == rows(decode_batch(stored))


@given(records(), st.data())
@fewer_examples
def test_a_compacted_batch_keeps_its_gaps(drawn: list[Record], data: st.DataObject) -> None:
    whole = stamped(encoded(drawn))
    stays = data.draw(st.lists(st.booleans(), min_size=len(drawn), max_size=len(drawn)).filter(any))
    stored = only_records(read_header(whole), whole, decode_batch(whole), stays)
    converted = as_kafka(stored)
    assert unchanged(check_batch(converted)) == unchanged(read_header(stored))
    assert read_by_aiokafka(converted) == rows(decode_batch(stored))


def test_producer_transaction_and_append_time_stay() -> None:
    stored = encode_batch([b"v"], timestamps=5, producer_id=9, producer_epoch=3, base_sequence=77, transactional=True)
    stamp_log_append_time(stored, 99)
    converted = check_batch(as_kafka(stored))
    assert (converted.producer_id, converted.producer_epoch, converted.base_sequence) == (9, 3, 77)
    assert converted.is_transactional
    assert converted.is_log_append_time
    assert decode_batch(as_kafka(stored)).timestamps == [99]


def test_a_marker_stays_a_marker() -> None:
    converted = as_kafka(encode_marker(Marker(MarkerType.COMMIT, 12), 9, 3, 5))
    header = check_batch(converted)
    assert header.is_control
    assert decode_marker(header, converted) == Marker(MarkerType.COMMIT, 12)


def test_damage_is_not_hidden_under_a_new_crc() -> None:
    stored = encode_batch([b"value"], timestamps=5)
    stored[-3] ^= 1
    with pytest.raises(CorruptBatch):
        as_kafka(stored)


@pytest.mark.parametrize(("stored", "version", "sent"), [(4, 9, 3), (4, 10, 4), (2, 4, 2), (0, 4, 0)])
def test_clients_that_cannot_read_zstd_get_lz4(stored: int, version: int, sent: int) -> None:
    assert codec_for(stored, version) == sent
    batch = encode_batch([b"value" * 50], timestamps=5, codec=stored)
    converted = as_kafka(batch, codec_for(stored, version))
    assert check_batch(converted).codec == sent
    assert decode_batch(converted).values == [b"value" * 50]


def test_a_batch_that_compaction_emptied_has_its_producer_still() -> None:
    stored = encode_batch([b"v", b"w"], timestamps=5, codec=3, producer_id=9, producer_epoch=3, base_sequence=77)
    header = check_batch(as_kafka(emptied(read_header(stored))))
    assert (header.record_count, header.last_offset_delta, header.producer_id, header.codec) == (0, 1, 9, 0)


# --- columns of what Kafka's clients write ------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
@given(records())
@fewer_examples
def test_there_and_back_every_byte_is_as_it_was(codec: int, drawn: list[Record]) -> None:
    columns = stamped(encoded(drawn, codec))
    kafka = as_kafka(columns)
    assert as_columns(kafka) == columns
    assert as_kafka(as_columns(kafka)) == kafka


@pytest.mark.parametrize(
    ("writer", "codec"),
    # kafka-python has snappy and zstd only beside packages that nothing else here needs.
    [*((written_by_aiokafka, codec) for codec in CODECS), *((written_by_kafka_python, codec) for codec in (0, 1, 3))],
)
@given(records())
@fewer_examples
def test_what_a_client_wrote_is_read_as_it_was_from_columns(
    writer: Callable[..., bytes], codec: int, drawn: list[Record]
) -> None:
    produced = writer(drawn, codec, transactional=True, producer=(9, 3, 77))
    columns = as_columns(produced)
    header = check_batch(columns)
    assert (header.magic, header.codec) == (MAGIC_COLUMNS, read_header(produced).codec)
    assert unchanged(header) == unchanged(read_header(produced))
    assert rows(decode_batch(columns)) == drawn == read_by_kafka_python(as_kafka(columns, NO_COMPRESSION))
    if header.codec == NO_COMPRESSION:
        assert as_kafka(columns) == produced


@given(records(sparse=True))
@fewer_examples
def test_gaps_that_compaction_left_stay_in_columns(drawn: list[Record]) -> None:
    produced = sealed(kafka_payload(drawn), len(drawn), magic=MAGIC_KAFKA, last_offset_delta=drawn[-1].offset)
    columns = as_columns(produced)
    assert unchanged(check_batch(columns)) == unchanged(read_header(produced))
    assert rows(decode_batch(columns)) == drawn
    assert as_kafka(columns) == produced


def test_append_time_stays_above_the_times_of_the_writer() -> None:
    produced = bytearray(written_by_aiokafka([Record(0, 5, None, b"v"), Record(1, 7, None, b"w")]))
    stamp_log_append_time(produced, 99)
    columns = as_columns(produced)
    assert decode_batch(columns).timestamps == [99, 99]
    assert as_kafka(columns) == produced


def test_markers_and_batches_without_records_keep_their_headers() -> None:
    marker = as_kafka(encode_marker(Marker(MarkerType.ABORT, 12), 9, 3, 5))
    columns = as_columns(marker)
    assert decode_marker(check_batch(columns), columns) == Marker(MarkerType.ABORT, 12)
    empty = as_kafka(emptied(read_header(encode_batch([b"v", b"w"], timestamps=5, producer_id=9, producer_epoch=3,
                                                      base_sequence=77))))  # fmt: skip
    assert unchanged(check_batch(as_columns(empty))) == unchanged(read_header(empty))
    assert as_kafka(as_columns(empty)) == empty


def test_damage_is_not_hidden_in_columns() -> None:
    produced = bytearray(written_by_aiokafka([Record(0, 5, None, b"value")]))
    produced[-3] ^= 1
    with pytest.raises(CorruptBatch):
        as_columns(produced)


@pytest.mark.parametrize("payload", [b"", b"\0", kafka_payload([Record(0, 5, None, b"v")]) * 2])
def test_a_payload_that_is_no_records_is_refused(payload: bytes) -> None:
    with pytest.raises(InvalidBatch):
        stored_columns(sealed(payload, 1, magic=MAGIC_KAFKA), 1_000_000)


def test_a_batch_whose_columns_would_be_too_large_stays_as_it_came() -> None:
    small = written_by_aiokafka([Record(number, 5, None, b"v") for number in range(100)])
    size = len(as_columns(small))
    assert size > len(small)
    assert stored_columns(small, size) == as_columns(small)
    assert stored_columns(small, size - 1) is small
    assert stored_columns(small, len(small) - 1) is small, "its leader refuses it"


def test_a_batch_that_unpacks_to_too_much_or_to_too_many_records_stays_as_it_came() -> None:
    packed = written_by_aiokafka([Record(0, 5, None, bytes(1_000_000))], 4)
    assert stored_columns(packed, 1_000_000 // 16) is packed
    assert stored_columns(packed, 1_000_000) == as_columns(packed)
    many = bytes(sealed(b"", 250_001, magic=MAGIC_KAFKA))
    assert stored_columns(many, 1_000_000) is many


# --- what a client gets -------------------------------------------------------------------------------------------


def columns(base_offset: int) -> bytearray:
    return stamped(encoded([Record(0, 5, b"k", b"columns"), Record(1, 5, b"k", b"columns")]), base_offset)


def kafka(base_offset: int) -> bytearray:
    return stamped(written_by_aiokafka([Record(0, 5, b"k", b"kafka")]), base_offset)


def convert(batch: memoryview, header: BatchHeader) -> Bytes:
    assert read_header(batch) == header
    return as_kafka(batch)


def test_batches_of_kafka_pass_in_runs_as_slices_without_fillers() -> None:
    stored = [kafka(0), kafka(1), columns(2), filler(4, 9, 7), kafka(9), filler(10, 12, 7), kafka(12), kafka(13)]
    data = b"".join(stored)
    found = visible_batches(data, convert)
    assert found.pieces == [stored[0] + stored[1], as_kafka(stored[2]), stored[4], stored[6] + stored[7]]
    assert [isinstance(piece, memoryview) and piece.obj is data for piece in found.pieces] == [True, False, True, True]
    assert (found.next_offset, found.has_records) == (14, True)


def test_fillers_behind_the_last_record_are_left_to_the_next_fetch() -> None:
    found = visible_batches(kafka(3) + filler(4, 9, 7), convert)
    assert (found.pieces, found.next_offset, found.has_records) == ([kafka(3)], 4, True)
    found = visible_batches(filler(0, 3, 7) + columns(3), convert)
    assert (found.pieces, found.next_offset, found.has_records) == ([as_kafka(columns(3))], 5, True)


def test_nothing_but_fillers_is_one_empty_batch_that_ends_where_they_end() -> None:
    found = visible_batches(filler(2, 3, 7) + filler(3, 2_000, 8), convert)
    (piece,) = found.pieces
    header = check_batch(piece)
    assert (header.magic, header.base_offset, header.next_offset, header.leader_epoch) == (MAGIC_KAFKA, 2, 2_000, 8)
    assert (header.record_count, found.next_offset, found.has_records) == (0, 2_000, False)
    assert read_by_aiokafka(piece) == read_by_kafka_python(piece) == []


# --- what is fetched ----------------------------------------------------------------------------------------------


def chain(*bases: int, epochs: tuple[int, ...] = ()) -> bytes:
    """Batches of one record each, at these offsets."""
    found = bytearray()
    for number, base in enumerate(bases):
        made = encode_batch([b"a"], timestamps=1_000)
        stamp(made, base, epochs[number] if epochs else 3)
        found += made
    return bytes(found)


def test_fetched_batches_are_a_chain_that_holds_the_offset() -> None:
    assert [header.base_offset for header, _ in check_fetched(chain(5, 6, 7), 5)] == [5, 6, 7]
    assert len(check_fetched(chain(5, 6, epochs=(3, 4)), 6)) == 2


@pytest.mark.parametrize(
    ("data", "offset"),
    [
        (chain(5, 7), 5),
        (chain(5, 6), 7),
        (chain(5, 6), 4),
        (chain(5, 6, epochs=(4, 3)), 5),
        (chain(5)[:-1], 5),
        (chain(5)[:-1] + bytes([chain(5)[-1] ^ 1]), 5),
    ],
    ids=["gap", "before", "behind", "epochs", "cut", "crc"],
)
def test_fetched_batches_that_are_anything_else_are_damaged(data: bytes, offset: int) -> None:
    with pytest.raises(CorruptBatch):
        check_fetched(data, offset)
