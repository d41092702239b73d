"""A flipped bit is found where a reader met it, and what is not damaged stays readable."""

from __future__ import annotations

from random import Random

import pytest

from raylog.errors import BatchError, LogDamaged, OffsetOutOfRange, RaylogError
from raylog.storage.format.record_batch import HEADER_BYTES, check_batch, split_batches
from raylog.storage.log.partition_log import PartitionLog
from raylog.storage.log.reader import Isolation
from raylog.storage.segment.damaged_ranges import DamagedRange, DamagedRanges, inspect_spot, range_of
from tests.simulator.world.faulty_disk import FaultyDisk
from tests.unit.storage.small_log import append, new_log

BATCHES = 40
SETTINGS = {"segment.bytes": 2_000, "index.interval.bytes": 300}


def filled_log() -> tuple[PartitionLog, FaultyDisk]:
    """Of several segments, three records a batch. It leaves to its owner what damage means."""
    log, disk = new_log(SETTINGS)
    for number in range(BATCHES):
        append(log, *[b"value %d" % number] * 3)
    log.advance_high_watermark(log.log_end_offset)
    log.when_damaged = lambda _: None
    assert len(log.segments) > 3
    return log, disk


def inspected(log: PartitionLog, disk: FaultyDisk, offset: int) -> DamagedRange | None:
    broken = inspect_spot(disk, log.spot_of(offset))
    return None if broken is None else range_of(log.segments.containing(broken.place.base_offset), broken)


def first_damage(log: PartitionLog, disk: FaultyDisk) -> DamagedRange | None:
    """What stops a reader from the beginning: a wrong CRC that it sees, or a broken chain that the log sees."""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        try:
            read = log.read(offset, 700, Isolation.LOG_END)
            for batch in split_batches(read.data):
                offset = check_batch(batch).next_offset
        except BatchError:
            found = inspected(log, disk, offset)
            assert found is not None
            return found
        except LogDamaged as damage:
            return met_by_the_log(log, disk, damage)
    return None


def met_by_the_log(log: PartitionLog, disk: FaultyDisk, met: LogDamaged) -> DamagedRange:
    base = int(met.path.rpartition("/")[2][:20])
    near, whole = log.spot_from(base, met.position), log.spot_from(base, 0)
    broken = inspect_spot(disk, near) or inspect_spot(disk, whole)  # a wrong length shows later on only
    assert broken is not None
    return range_of(log.segments.containing(broken.place.base_offset), broken)


def batch_at(log: PartitionLog, offset: int) -> tuple[str, int, int]:
    """(path, position, size) of the batch that holds it."""
    segment = log.segments.containing(offset)
    place = segment.locate(offset)
    return segment.path(".log"), place.position, segment.place_after(place).position - place.position


def test_what_is_sound_is_found_sound() -> None:
    log, disk = filled_log()
    assert [inspected(log, disk, offset) for offset in range(log.log_end_offset)] == [None] * 3 * BATCHES
    with pytest.raises(OffsetOutOfRange):
        log.spot_of(log.log_end_offset)


def test_a_bit_of_the_payload_costs_its_batch_alone() -> None:
    log, disk = filled_log()
    path, position, size = batch_at(log, 30)
    disk.flip_bit(path, 8 * (position + size - 1))
    assert inspected(log, disk, 29) is None
    found = inspected(log, disk, 31)
    assert found is not None
    assert found[:4] == (30, 33, path, position)
    assert found.reason


@pytest.mark.parametrize("seed", range(150))
def test_any_bit_is_found_where_a_reader_met_it_and_all_else_can_be_read(seed: int) -> None:
    random = Random(seed)
    log, disk = filled_log()
    path, position, size = batch_at(log, random.randrange(log.log_end_offset))
    part = random.choice((HEADER_BYTES, size))
    disk.flip_bit(path, 8 * position + random.randrange(8 * part))
    found = first_damage(log, disk)
    held: set[int] = set()
    if found is not None:
        assert log.damaged.add(found)
        assert not log.damaged.add(found)
        held = set(range(found.first_offset, found.next_offset))
    assert readable_offsets(log) == set(range(log.log_end_offset)) - held
    assert log.offline_because is None


def readable_offsets(log: PartitionLog) -> set[int]:
    """Asked for one by one, and with more than a reader asks for at once."""
    seen: set[int] = set()
    for offset in range(log.log_end_offset):
        try:
            read = log.read(offset, 100_000, Isolation.HIGH_WATERMARK)
        except LogDamaged:
            continue
        for batch in split_batches(read.data):
            header = check_batch(batch)
            seen.update(range(header.base_offset, header.next_offset))
    return seen


def test_a_slice_of_a_file_ends_before_what_is_damaged() -> None:
    log, disk = filled_log()
    path, position, size = batch_at(log, 6)
    disk.flip_bit(path, 8 * (position + size - 1))
    found = inspected(log, disk, 6)
    assert found is not None
    log.damaged.add(found)
    piece = log.slice(0, 100_000)
    assert piece is not None
    assert piece.next_offset == 6
    with pytest.raises(LogDamaged, match=r"00\.log is damaged at byte"):
        log.slice(7, 100_000)


def test_damage_is_looked_for_where_its_position_is_known() -> None:
    log, disk = filled_log()
    path, position, size = batch_at(log, 30)
    disk.flip_bit(path, 8 * (position + size - 1))
    base = log.segments.containing(30).base_offset
    broken = inspect_spot(disk, log.spot_from(base, position + 20))
    assert broken is not None
    assert broken.place == (position, 30)


def test_damage_is_found_where_the_index_is_gone_too() -> None:
    log, disk = filled_log()
    path, position, _ = batch_at(log, 6)
    disk.flip_bit(path, 8 * (position + 11))
    for suffix in (".index", ".timeindex"):
        disk.remove(path.replace(".log", suffix))
    log.segments[0].drop_indexes()
    with pytest.raises(LogDamaged):
        log.read(0, 100)
    broken = inspect_spot(disk, log.spot_from(0, 0))
    assert broken is not None
    assert range_of(log.segments[0], broken)[:2] == (6, log.segments[0].next_offset)
    assert log.offline_because is None


def test_another_file_of_that_name_proves_nothing() -> None:
    log, disk = filled_log()
    spot = log.spot_of(0)
    disk.rename(spot.path, spot.path + ".gone")
    assert inspect_spot(disk, spot) is None
    disk.write_file(spot.path, b"another one")
    assert inspect_spot(disk, spot) is None


def test_ranges_that_were_deleted_are_forgotten() -> None:
    ranges = DamagedRanges()
    ranges.add(DamagedRange(10, 20, "a.log", 0, "rot"))
    assert ranges.readable_end(5, 100) == 10
    assert ranges.readable_end(20, 100) == 100
    ranges.forget_below(19)
    assert ranges.holding(19) is not None
    ranges.forget_below(20)
    assert not ranges


def test_without_an_owner_damage_takes_the_log_offline() -> None:
    log, disk = filled_log()
    log.when_damaged = log.go_offline
    path, position, _ = batch_at(log, 30)
    disk.flip_bit(path, 8 * position)
    with pytest.raises(RaylogError):
        log.inspect(30)
    assert isinstance(log.offline_because, LogDamaged)
