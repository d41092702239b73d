"""A segment's tail torn at every byte: the whole batches before the tear stay, and nothing else does (rule 14)."""

from __future__ import annotations

import random

import pytest

from raylog.errors import LogDamaged
from raylog.storage.directory.partition_directory import PartitionIdentity
from raylog.storage.format.batch_codec import encode_batch
from raylog.storage.format.record_batch import MAGIC_COLUMNS, MAGIC_KAFKA, read_header
from raylog.storage.log.partition_log import PartitionLog
from raylog.storage.log.reader import Isolation
from raylog.storage.log.recovery import OpenedAfter
from raylog.storage.segment import batch_scan
from tests.simulator.world.faulty_disk import FaultyDisk
from tests.unit.storage.batches import Record, written_by_aiokafka

DIRECTORY = "/data/clicks-0"
LOG = f"{DIRECTORY}/{0:020d}.log"
IDENTITY = PartitionIdentity("cluster", "clicks", "clicks-id", 0)
NOW_MS = 1_700_000_000_000


@pytest.fixture(autouse=True)
def _small_scan_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches that are larger than what recovery reads at once, without megabytes of them."""
    monkeypatch.setattr(batch_scan, "SCAN_CHUNK", 300)


def open_log(disk: FaultyDisk) -> PartitionLog:
    return PartitionLog.open(DIRECTORY, IDENTITY, {"index.interval.bytes": 200}, now_ms=NOW_MS, disk=disk)


def write_log(disk: FaultyDisk) -> tuple[PartitionLog, list[bytes]]:
    """A log of batches in both layouts, small and large; returns the batches as they stand there."""
    log = open_log(disk)
    log.begin_epoch(1)
    kafka = [Record(0, NOW_MS, b"k", b"v" * 40), Record(1, NOW_MS + 1, None, b"w")]
    batches = [encode_batch([b"a", b"b"], timestamps=NOW_MS, keys=[b"k1", None]) for _ in range(3)]
    batches.append(encode_batch([b"long" * 130], timestamps=NOW_MS))
    batches.append(bytearray(written_by_aiokafka(kafka)))
    batches.append(encode_batch([b"packed " * 20] * 3, timestamps=NOW_MS, codec=3, producer_id=7, producer_epoch=0,
                                base_sequence=0))  # fmt: skip
    for batch in batches:
        log.append_as_leader(batch, 1, NOW_MS)
    stored = [bytes(batch) for batch in batches]
    assert {read_header(batch).magic for batch in stored} == {MAGIC_COLUMNS, MAGIC_KAFKA}
    return log, stored


def torn_at(start: FaultyDisk, position: int) -> FaultyDisk:
    disk = start.clone()
    file = disk.open(LOG)
    file.truncate(position)
    file.close()
    return disk


def whole_before(batches: list[bytes], position: int) -> list[bytes]:
    whole, end = [], 0
    for batch in batches:
        end += len(batch)
        if end > position:
            break
        whole.append(batch)
    return whole


def contents(log: PartitionLog) -> bytes:
    offset, data = log.log_start_offset, b""
    while offset < log.log_end_offset:
        fetched = log.read(offset, 10_000, Isolation.LOG_END)
        data, offset = data + fetched.data, fetched.next_offset
    return data


@pytest.mark.thorough
@pytest.mark.parametrize("machine_too", [False, True])
def test_every_whole_batch_before_the_tear_is_there_and_appending_goes_on(machine_too: bool) -> None:
    disk = FaultyDisk()
    _, batches = write_log(disk)
    disk.crash_process()
    for position in range(sum(map(len, batches)) + 1):
        torn = torn_at(disk, position)
        if machine_too:
            torn.sync_everything()
            torn.crash_machine(random.Random(position))
        log = open_log(torn)
        assert log.opened_after is (OpenedAfter.MACHINE_CRASH if machine_too else OpenedAfter.PROCESS_CRASH)
        whole = whole_before(batches, position)
        assert contents(log) == b"".join(whole), position
        assert log.log_end_offset == (read_header(whole[-1]).next_offset if whole else 0)
        log.begin_epoch(2)
        appended = log.append_as_leader(encode_batch([b"next"], timestamps=NOW_MS), 2, NOW_MS)
        assert appended.first_offset == log.log_end_offset - 1
        torn.crash_process()
        assert contents(open_log(torn)).startswith(b"".join(whole))


def test_after_a_clean_close_there_is_no_tail_to_cut() -> None:
    disk = FaultyDisk()
    log, batches = write_log(disk)
    log.close()
    for position in range(sum(map(len, batches))):
        torn = torn_at(disk, position)
        with pytest.raises(LogDamaged):
            open_log(torn)
        with pytest.raises(LogDamaged):  # and so it stays
            open_log(torn)


@pytest.mark.parametrize("machine_too", [False, True])
def test_nothing_that_was_synced_is_taken_for_tail(machine_too: bool) -> None:
    disk = FaultyDisk()
    log, batches = write_log(disk)
    log.flush()
    log.checkpoint()
    disk.crash_process()
    for position in range(0, sum(map(len, batches)), 7):
        torn = torn_at(disk, position)
        if machine_too:
            torn.sync_everything()
            torn.crash_machine(random.Random(position))
        with pytest.raises(LogDamaged):
            open_log(torn)


def test_nothing_below_the_high_watermark_is_taken_for_tail_while_the_machine_lives() -> None:
    disk = FaultyDisk()
    log, batches = write_log(disk)
    log.advance_high_watermark(log.log_end_offset)
    log.checkpoint()
    disk.crash_process()
    for position in range(0, sum(map(len, batches)), 7):
        with pytest.raises(LogDamaged):
            open_log(torn_at(disk, position))


def test_a_damaged_length_is_not_a_torn_tail() -> None:
    """It too makes a batch run past the end of the file; but behind a torn tail there is nothing, nor is it whole."""
    disk = FaultyDisk()
    _, batches = write_log(disk)
    disk.crash_process()
    start = 0
    for batch in batches:
        for bit in range(1, 12):  # the high bits of batch_length, without the sign
            damaged = disk.clone()
            damaged.flip_bit(LOG, (start + 8) * 8 + bit)
            with pytest.raises(LogDamaged):
                open_log(damaged)
        start += len(batch)
