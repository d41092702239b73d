"""What can be restored of a damaged log: all before the damage, and the damaged log stays as it is (rules 7, 14)."""

from __future__ import annotations

from random import Random

import pytest

from raylog.errors import LogDamaged, SetAsideUnusable
from raylog.storage.directory.data_directory import BrokerIdentity, Claim, DataDirectory
from raylog.storage.directory.doubts import RESTORED
from raylog.storage.directory.partition_directory import PARTITION_FILE, QUARANTINE_FILE, PartitionIdentity
from raylog.storage.directory.set_aside_logs import SetAsideLog, SetAsideLogs
from raylog.storage.directory.set_aside_names import DAMAGED, SET_ASIDE
from raylog.storage.format.record_batch import HEADER_BYTES
from raylog.storage.log.partition_log import PartitionLog
from raylog.storage.segment.segment import LOG_SUFFIX
from tests.simulator.world.faulty_disk import FaultyDisk, crash_points
from tests.unit.storage.small_log import DIRECTORY, NOW_MS, PARENT, append, contents, new_disk

IDENTITY = PartitionIdentity("cluster", "orders", "abcd", 0)
TOPIC_ID = b"\xab\xcd"
SMALL: dict[str, int | str] = {"segment.bytes": 400, "index.interval.bytes": 0}
BATCHES = 20
NAME = f"orders-0{SET_ASIDE}{NOW_MS}-{DAMAGED}"
ASIDE = f"{PARENT}/{NAME}"


def directory_on(disk: FaultyDisk) -> DataDirectory:
    return DataDirectory.open(PARENT, BrokerIdentity("cluster", 1), disk, claim=Claim("d"))


def opened(disk: FaultyDisk) -> PartitionLog:
    return PartitionLog.open(DIRECTORY, IDENTITY, SMALL, now_ms=NOW_MS, disk=disk)


def killed_log(disk: FaultyDisk) -> list[bytes]:
    """A log of two epochs and several segments, whose process was killed; what is in it."""
    directory_on(disk).close()
    log = opened(disk)
    for number in range(BATCHES):
        if number % 10 == 0:
            log.begin_epoch(3 + number)
        append(log, b"value %d" % number)
    before = contents(log)
    disk.crash_process()
    return before


def segments_on(disk: FaultyDisk, directory: str = DIRECTORY) -> list[str]:
    return sorted(path for path in disk.files() if path.startswith(f"{directory}/") and path.endswith(LOG_SUFFIX))


def set_aside_on(disk: FaultyDisk) -> bool:
    """Open the log, and set it aside as its broker does, if it is damaged."""
    try:
        opened(disk).close()
    except LogDamaged:
        directory = directory_on(disk)
        directory.set_aside("orders", 0, DAMAGED, NOW_MS)
        directory.close()
        return True
    return False


def damage(disk: FaultyDisk, path: str, byte: int) -> None:
    disk.flip_bit(path, 8 * byte)
    assert set_aside_on(disk)


def shown(disk: FaultyDisk) -> SetAsideLog:
    directory = directory_on(disk)
    try:
        return next(each for each in SetAsideLogs(directory).find("orders", 0) if each.name == NAME)
    finally:
        directory.close()


def restored(disk: FaultyDisk) -> None:
    directory = directory_on(disk)
    try:
        SetAsideLogs(directory).restore("orders", TOPIC_ID, 0, NAME, NOW_MS + 5)
    finally:
        directory.close()


def bytes_of(disk: FaultyDisk, directory: str) -> dict[str, bytes]:
    return {path: disk.read_file(path) for path in segments_on(disk, directory)}


def test_all_before_the_damage_is_restored_and_the_damaged_log_stays() -> None:
    disk = new_disk()
    before = killed_log(disk)
    growing = segments_on(disk)[-1]
    first = int(growing.rpartition("/")[2].removesuffix(LOG_SUFFIX))
    damage(disk, growing, disk.files()[growing] - 3)
    damaged = bytes_of(disk, ASIDE)
    found = shown(disk)
    assert (found.log_end_offset, found.unusable) == (BATCHES - 1, "")
    assert found.last_epoch == 13
    restored(disk)
    log = opened(disk)
    assert contents(log) == before[:-1]
    assert (log.log_end_offset, log.unproven) == (BATCHES - 1, RESTORED)
    log.truncate_to(first, NOW_MS)
    log.begin_epoch(99)
    for _ in range(8):
        append(log, b"of the next leader")
    assert bytes_of(disk, ASIDE) == damaged
    assert shown(disk) == found


def test_where_its_first_batch_is_damaged_the_segments_before_are_restored() -> None:
    disk = new_disk()
    before = killed_log(disk)
    growing = segments_on(disk)[-1]
    first = int(growing.rpartition("/")[2].removesuffix(LOG_SUFFIX))
    damage(disk, growing, HEADER_BYTES + 1)
    assert (shown(disk).log_end_offset, shown(disk).last_epoch) == (first, 13)
    restored(disk)
    log = opened(disk)
    assert contents(log) == before[:first]


def test_a_log_without_a_sound_batch_is_not_restored() -> None:
    disk = new_disk()
    directory_on(disk).close()
    log = opened(disk)
    log.begin_epoch(3)
    for _ in range(2):
        append(log, b"value")
    disk.crash_process()
    damage(disk, segments_on(disk)[0], HEADER_BYTES + 1)
    assert "nothing before the damage" in shown(disk).unusable
    with pytest.raises(SetAsideUnusable, match="nothing before the damage"):
        restored(disk)


@pytest.mark.parametrize("file", [PARTITION_FILE, QUARANTINE_FILE])
def test_a_log_whose_own_files_are_damaged_is_not_restored(file: str) -> None:
    disk = new_disk()
    killed_log(disk)
    damage(disk, segments_on(disk)[-1], HEADER_BYTES + 1)
    disk.write_file(f"{ASIDE}/{file}", b"no checkpoint")
    with pytest.raises(SetAsideUnusable):
        restored(disk)


def test_a_crash_while_a_sound_part_is_restored_loses_nothing() -> None:
    start = new_disk()
    before = killed_log(start)
    damage(start, segments_on(start)[-1], start.files()[segments_on(start)[-1]] - 3)
    start.sync_everything()
    damaged = bytes_of(start, ASIDE)
    random = Random(5)
    for point in crash_points(start, restored):
        disk = point.disk
        if point.operation % 2:
            disk.crash_machine(random)
        assert bytes_of(disk, ASIDE) == damaged
        if not disk.exists(DIRECTORY):
            restored(disk)
        assert contents(opened(disk)) == before[:-1]


@pytest.mark.parametrize("seed", range(150))
def test_whatever_bit_flips_what_is_restored_is_what_was_shown(seed: int) -> None:
    """A prefix of what was there, up to the end that was shown. Or nothing can be restored, with the reason."""
    random = Random(seed)
    disk = new_disk()
    before = killed_log(disk)
    path = random.choice(segments_on(disk))
    disk.flip_bit(path, random.randrange(8 * disk.files()[path]))
    if random.random() < 0.3:
        disk.crash_machine(random)
    if not set_aside_on(disk):
        return
    found = shown(disk)
    if found.unusable:
        with pytest.raises(SetAsideUnusable):
            restored(disk)
        return
    restored(disk)
    log = opened(disk)
    assert log.log_end_offset == found.log_end_offset
    assert contents(log) == before[: found.log_end_offset]
    assert log.unproven == RESTORED
