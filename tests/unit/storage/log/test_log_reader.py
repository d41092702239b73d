"""What readers get: by isolation, by size, by time, and as a piece of a file (rule 16)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from raylog.errors import LogDamaged, LogOffline, OffsetOutOfRange
from raylog.storage.disk.local_disk import LocalDisk
from raylog.storage.format.batch_codec import encode_batch
from raylog.storage.format.control_records import MarkerType
from raylog.storage.format.record_batch import filler, read_header, split_batches, stamp
from raylog.storage.log.partition_log import PartitionLog
from raylog.storage.log.reader import Isolation, read_slice, take_slice
from tests.simulator.world.faulty_disk import FaultyDisk
from tests.unit.storage.batches import Record, sealed, written_by_aiokafka
from tests.unit.storage.small_log import (
    DIRECTORY,
    EPOCH,
    IDENTITY,
    NOW_MS,
    append,
    contents,
    end_transaction,
    from_producer,
    new_log,
    open_log,
)

ALL = 10**9
LOG_FILE = f"{DIRECTORY}/{0:020d}.log"
_LAST_OFFSET_DELTA = 24  # its place in a batch: second of four bytes


def bases(data: bytes) -> list[int]:
    return [read_header(each).base_offset for each in split_batches(data)]


def log_of(
    count: int, records: int = 1, overrides: dict[str, int | str] | None = None
) -> tuple[PartitionLog, FaultyDisk]:
    log, disk = new_log(overrides)
    for number in range(count):
        append(log, *[b"value %d" % number] * records)
    return log, disk


# --- isolation --------------------------------------------------------------------------------------------------------


def test_each_reader_sees_as_far_as_its_isolation_lets_it() -> None:
    log, _ = log_of(4)
    log.append_as_leader(from_producer(0, transactional=True), EPOCH, NOW_MS)
    append(log, b"replicated")
    append(log, b"not replicated")
    log.advance_high_watermark(6)
    assert bases(log.read(2, ALL, Isolation.LAST_STABLE).data) == [2, 3]
    assert bases(log.read(2, ALL, Isolation.HIGH_WATERMARK).data) == [2, 3, 4, 5]
    assert bases(log.read(2, ALL, Isolation.LOG_END).data) == [2, 3, 4, 5, 6]
    for isolation, end in zip(Isolation, (7, 6, 4), strict=True):
        for offset in range(8):
            piece = log.slice(offset, ALL, isolation)
            assert (piece is None) == (offset >= end)
            assert bool(log.read(offset, ALL, isolation).data) == (offset < end)


def test_an_offset_that_is_not_visible_yet_waits_and_is_not_out_of_range() -> None:
    log, _ = log_of(4)
    log.advance_high_watermark(2)
    for offset in (2, 3, 4):
        fetched = log.read(offset, ALL)
        assert (fetched.data, fetched.next_offset) == (b"", offset)
        assert (fetched.log_start_offset, fetched.high_watermark, fetched.log_end_offset) == (0, 2, 4)
    with pytest.raises(OffsetOutOfRange):
        log.read(5, ALL)


@pytest.mark.parametrize("high_watermark", range(1, 10))
def test_a_batch_that_reaches_over_the_high_watermark_is_not_served(high_watermark: int) -> None:
    """Not even in part: whole batches are served, and some of its records are not replicated."""
    log, _ = log_of(3, records=3)
    log.advance_high_watermark(high_watermark)
    whole = list(range(0, high_watermark // 3 * 3, 3))
    for offset in range(high_watermark):
        fetched = log.read(offset, ALL)
        expected = [base for base in whole if base + 3 > offset]
        assert bases(fetched.data) == expected
        assert fetched.next_offset == (expected[-1] + 3 if expected else offset)
        piece = log.slice(offset, ALL)
        assert (piece is None) == (not expected)
        assert piece is None or piece.length == len(fetched.data)


def test_the_high_watermark_goes_forward_only_and_not_past_the_end() -> None:
    log, _ = log_of(4)
    for offset, expected in [(2, 2), (1, 2), (-5, 2), (3, 3), (ALL, 4), (0, 4)]:
        log.advance_high_watermark(offset)
        assert log.high_watermark == expected


def test_aborted_records_are_named_to_those_who_read_committed() -> None:
    log, _ = new_log({"segment.bytes": 250})
    for producer, kind in [(1, MarkerType.ABORT), (2, MarkerType.COMMIT), (3, MarkerType.ABORT)]:
        for sequence in range(3):
            batch = from_producer(sequence, producer, transactional=True)
            log.append_as_leader(batch, EPOCH, NOW_MS)
        append(log, b"between")
        end_transaction(log, kind, producer)
    log.advance_high_watermark(log.log_end_offset)
    named = {(each.producer_id, each.first_offset, each.last_offset) for each in log.aborted_between(0, 15, NOW_MS)}
    assert named == {(1, 0, 4), (3, 10, 14)}
    assert [each.producer_id for each in log.aborted_between(4, 10, NOW_MS)] == [1]
    assert log.aborted_between(5, 10, NOW_MS) == []
    assert [each.producer_id for each in log.aborted_between(9, 11, NOW_MS)] == [3]


# --- sizes ------------------------------------------------------------------------------------------------------------


def test_a_reader_gets_whole_batches_and_at_least_one() -> None:
    log, _ = log_of(6)
    size = len(contents(log)[0])
    for max_bytes in range(0, 6 * size + 5, 7):
        fetched = log.read(1, max_bytes, Isolation.LOG_END)
        assert len(fetched.data) == min(5, max(1, max_bytes // size)) * size
        assert fetched.next_offset == 1 + len(fetched.data) // size


def test_a_read_stops_at_the_end_of_a_segment_and_goes_on_in_the_next() -> None:
    log, _ = log_of(9, overrides={"segment.bytes": 320})
    seen = []
    offset = 0
    while offset < 9:
        fetched = log.read(offset, ALL, Isolation.LOG_END)
        seen += bases(fetched.data)
        assert bases(fetched.data)[0] in log.segments.bases()
        offset = fetched.next_offset
    assert seen == list(range(9))


def test_any_offset_is_found_whatever_the_index_holds() -> None:
    for interval in (0, 150, 1_000, 100_000):
        log, disk = log_of(40, records=3, overrides={"index.interval.bytes": interval, "segment.bytes": 2_000})
        log.close()
        log = open_log(disk, {"index.interval.bytes": interval, "segment.bytes": 2_000})
        for offset in range(120):
            assert bases(log.read(offset, 1, Isolation.LOG_END).data) == [offset // 3 * 3]


def test_batches_larger_than_the_look_up_window_are_found() -> None:
    log, _ = new_log({"index.interval.bytes": 10**6})
    for number in range(6):
        append(log, b"x" * (7_000 + number * 1_500))
    for offset in range(6):
        assert bases(log.read(offset, 1, Isolation.LOG_END).data) == [offset]


# --- pieces of files --------------------------------------------------------------------------------------------------


def test_a_piece_of_a_file_is_what_is_read_or_the_beginning_of_it() -> None:
    log, disk = log_of(60, records=2, overrides={"segment.bytes": 2_000, "index.interval.bytes": 250})
    for offset in range(0, 120, 5):
        for max_bytes in (1, 300, 1_000, ALL):
            piece = log.slice(offset, max_bytes, Isolation.LOG_END)
            assert piece is not None
            data = disk.read_file(piece.path)[piece.position : piece.position + piece.length]
            fetched = log.read(offset, max_bytes, Isolation.LOG_END).data
            assert fetched.startswith(data)
            assert data == fetched if max_bytes == ALL else data
            assert bases(data)[0] == piece.base_offset <= offset


def test_a_piece_of_a_file_can_be_read_by_somebody_else_on_a_real_disk(tmp_path: Path) -> None:
    path = str(tmp_path / "orders-0")
    log = PartitionLog.open(path, IDENTITY, {"segment.bytes": 600}, now_ms=NOW_MS, disk=LocalDisk())
    log.begin_epoch(EPOCH)
    for number in range(12):
        append(log, b"value %d" % number)
    for offset in range(12):
        piece = log.slice(offset, ALL, Isolation.LOG_END)
        assert piece is not None
        fd = os.open(piece.path, os.O_RDONLY)
        assert os.fstat(fd).st_ino == piece.inode
        assert os.pread(fd, piece.length, piece.position) == log.read(offset, ALL, Isolation.LOG_END).data
        os.close(fd)
    log.close()
    again = PartitionLog.open(path, IDENTITY, {"segment.bytes": 600}, now_ms=NOW_MS, disk=LocalDisk())
    assert again.log_end_offset == 12
    again.close()


# --- times ------------------------------------------------------------------------------------------------------------


def test_the_first_record_of_a_time_or_later_is_found() -> None:
    """Whatever the order of the times, across batches and segments."""
    times = [50, 10, 10, 70, 70, 20, 90, 30, 5, 90, 100, 1]
    log, _ = new_log({"segment.bytes": 330, "index.interval.bytes": 0})
    for at in range(0, len(times), 2):
        batch = encode_batch([b"v", b"w"], timestamps=[NOW_MS + time for time in times[at : at + 2]])
        log.append_as_leader(batch, EPOCH, NOW_MS)
    log.advance_high_watermark(len(times))
    for asked in range(102):
        expected = next(((NOW_MS + time, at) for at, time in enumerate(times) if time >= asked), None)
        assert log.offset_for_timestamp(NOW_MS + asked) == expected


def test_a_record_above_the_high_watermark_is_not_found_by_its_time() -> None:
    log, _ = new_log()
    for wait in (0, 10, 20):
        append(log, now_ms=NOW_MS + wait)
    log.advance_high_watermark(2)
    assert log.offset_for_timestamp(NOW_MS + 10) == (NOW_MS + 10, 1)
    assert log.offset_for_timestamp(NOW_MS + 11) is None


def test_records_below_the_logs_start_are_not_found_by_their_time() -> None:
    log, _ = new_log({"segment.bytes": 300})
    for number in range(6):
        append(log, b"%d" % number, b"same batch", now_ms=NOW_MS + 100 - number)
    log.advance_high_watermark(12)
    log.delete_records(5)
    assert log.offset_for_timestamp(0) == (NOW_MS + 98, 5)
    assert log.offset_for_timestamp(NOW_MS + 98) == (NOW_MS + 98, 5)
    assert log.offset_for_timestamp(NOW_MS + 99) is None


def test_a_batch_whose_newest_record_was_compacted_away_is_passed_over() -> None:
    log, _ = new_log()
    empty = filler(0, 5, EPOCH)
    log.append_as_follower(empty, NOW_MS)
    append(log, now_ms=NOW_MS)
    log.advance_high_watermark(6)
    assert log.offset_for_timestamp(0) == (NOW_MS, 5)


# --- damage -----------------------------------------------------------------------------------------------------------


def damaged_in_the_payload() -> tuple[PartitionLog, FaultyDisk]:
    log, disk = log_of(3)
    log.advance_high_watermark(3)
    size = len(contents(log)[0])
    disk.flip_bit(LOG_FILE, (2 * size - 3) * 8)
    return log, disk


def test_a_look_up_by_time_that_meets_damage_says_so_and_quarantines_the_replica() -> None:
    """It was passed on as a corrupt batch, which one is to send again."""
    log, disk = damaged_in_the_payload()
    assert log.offset_for_timestamp(0) == (NOW_MS, 0)
    log.delete_records(1)
    with pytest.raises(LogDamaged, match="CRC"):
        log.offset_for_timestamp(0)
    with pytest.raises(LogOffline):
        log.read(0, ALL)
    assert disk.exists(f"{DIRECTORY}/quarantine")


def test_whoever_got_bytes_that_make_no_sense_can_have_the_batch_looked_at() -> None:
    log, disk = damaged_in_the_payload()
    assert log.inspect(0).base_offset == 0
    assert log.inspect(2).base_offset == 2
    with pytest.raises(LogDamaged, match="CRC"):
        log.inspect(1)
    log.close()
    with pytest.raises(LogDamaged):
        open_log(disk)


def test_a_payload_that_its_writer_garbled_is_no_damage() -> None:
    """The CRC is right: the bytes are those that were sent. The leader does not look inside, and the log goes on."""
    log, disk = new_log()
    garbled = sealed(b"\xff" * 30, 2)
    log.append_as_leader(garbled, EPOCH, NOW_MS)
    log.advance_high_watermark(2)
    assert log.inspect(1).record_count == 2
    assert log.offset_for_timestamp(0) == (NOW_MS, 0)  # as near as one can tell
    assert log.read(0, ALL).data == garbled
    assert not disk.exists(f"{DIRECTORY}/quarantine")


@pytest.mark.parametrize("field", [0, 7, 8, 11, 12, 15, 16])
def test_a_changed_field_outside_the_crc_breaks_the_chain_and_is_never_served(field: int) -> None:
    log, disk = log_of(3)
    size = len(contents(log)[0])
    first = log.read(0, 1, Isolation.LOG_END).data
    disk.flip_bit(LOG_FILE, (size + field) * 8)
    assert log.read(0, 1, Isolation.LOG_END).data == first
    with pytest.raises(LogDamaged):
        log.read(1, ALL, Isolation.LOG_END)
    assert log.offline_because is not None
    assert disk.exists(f"{DIRECTORY}/quarantine")


# --- both layouts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", range(5))
def test_batches_of_a_kafka_client_go_through_the_log_byte_for_byte(codec: int) -> None:
    log, disk = new_log({"segment.bytes": 700, "index.interval.bytes": 0})
    sent = []
    for number in range(8):
        records = [Record(at, NOW_MS + at, b"k%d" % at, b"v" * 30, (("h", b"x"),)) for at in range(1 + number % 3)]
        batch = bytearray(written_by_aiokafka(records, codec))
        expected = bytearray(batch)
        stamp(expected, log.log_end_offset, EPOCH)
        log.append_as_leader(batch, EPOCH, NOW_MS)
        sent.append(bytes(expected))
    assert contents(log) == sent
    log.roll()
    log.close()
    assert contents(open_log(disk)) == sent
    disk.crash_process()
    assert contents(open_log(disk)) == sent


def test_a_slice_whose_last_batch_says_that_it_ends_elsewhere_is_not_believed() -> None:
    """No CRC is checked here, and a reader who went on from there would be told that the log was truncated."""
    log, disk = log_of(3)
    piece = log.slice(0, ALL, Isolation.LOG_END)
    assert piece is not None
    data = read_slice(disk, piece)
    assert data is not None
    taken = take_slice(log, piece, data)
    assert taken is not None
    assert taken.next_offset == 3
    changed = bytearray(data)
    changed[len(data) // 3 * 2 + _LAST_OFFSET_DELTA] ^= 16
    assert take_slice(log, piece, bytes(changed)) is None
