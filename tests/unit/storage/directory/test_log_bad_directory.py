"""A directory that is not ours, or not as it was: it is refused with its own error and left exactly as it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from raylog.errors import (
    DirectoryLocked,
    DirectoryNotOurs,
    LogDamaged,
    RaylogError,
    UnsupportedFormat,
    WrongCluster,
    WrongPartition,
)
from raylog.storage.directory.partition_directory import CHECKPOINT_FILE, CHECKPOINT_VERSION, PartitionIdentity
from raylog.storage.disk.checkpoints import read_checkpoint, write_checkpoint
from raylog.storage.disk.local_disk import LocalDisk
from raylog.storage.log.partition_log import PartitionLog
from raylog.storage.log.recovery import OpenedAfter
from tests.simulator.world.faulty_disk import FaultyDisk, crash_points
from tests.unit.storage.small_log import (
    DIRECTORY,
    IDENTITY,
    NOW_MS,
    append,
    bytes_on_disk,
    contents,
    new_disk,
    new_log,
    open_log,
)

QUARANTINE = f"{DIRECTORY}/quarantine"
CHECKPOINTS = ("partition.json", "log-checkpoint", "leader-epoch-checkpoint", "clean-shutdown")


def closed_log() -> FaultyDisk:
    log, disk = new_log()
    append(log, b"one", b"two")
    log.close()
    return disk


def open_as(disk: FaultyDisk, identity: PartitionIdentity) -> PartitionLog:
    return PartitionLog.open(DIRECTORY, identity, now_ms=NOW_MS, disk=disk)


@pytest.mark.parametrize(
    ("identity", "error"),
    [
        (replace(IDENTITY, cluster_id="another"), WrongCluster),
        (replace(IDENTITY, topic_id="of a later topic"), WrongPartition),
        (replace(IDENTITY, topic="payments"), WrongPartition),
        (replace(IDENTITY, partition=1), WrongPartition),
    ],
)
def test_the_log_of_somebody_else_is_left_alone(identity: PartitionIdentity, error: type[RaylogError]) -> None:
    disk = closed_log()
    before = bytes_on_disk(disk)
    with pytest.raises(error) as raised:
        open_as(disk, identity)
    assert raised.type is error
    assert without_lock(bytes_on_disk(disk)) == without_lock(before)
    assert open_log(disk).opened_after is OpenedAfter.CLEAN_CLOSE


def without_lock(files: dict[str, bytes]) -> dict[str, bytes]:
    return {path: data for path, data in files.items() if not path.endswith("/.lock")}


@pytest.mark.parametrize("name", ["data.txt", "00000000000000000000.log", "clean-shutdown", "partition.json.bak"])
def test_a_directory_with_files_of_others_is_left_alone(name: str) -> None:
    disk = new_disk()
    disk.make_directory(DIRECTORY)
    disk.write_file(f"{DIRECTORY}/{name}", b"precious")
    with pytest.raises(DirectoryNotOurs, match=name):
        open_log(disk)
    assert without_lock(bytes_on_disk(disk)) == {f"{DIRECTORY}/{name}": b"precious"}


def test_a_directory_is_locked_against_a_second_owner_until_the_first_is_gone() -> None:
    log, disk = new_log()
    append(log, b"one")
    other = disk.new_process()
    before = bytes_on_disk(disk)
    for second in (disk, other):
        with pytest.raises(DirectoryLocked, match=f"pid {disk.pid}"):
            open_log(second)
    assert bytes_on_disk(disk) == before
    append(log, b"two")
    log.close()
    assert open_log(other).log_end_offset == 2


def test_a_dead_owner_holds_no_lock() -> None:
    log, disk = new_log()
    append(log, b"one")
    other = disk.new_process()
    disk.crash_process()
    assert open_log(other).log_end_offset == 1


def test_the_lock_holds_between_logs_on_a_real_disk(tmp_path: Path) -> None:
    path = str(tmp_path / "orders-0")
    log = PartitionLog.open(path, IDENTITY, now_ms=NOW_MS, disk=LocalDisk())
    with pytest.raises(DirectoryLocked):
        PartitionLog.open(path, IDENTITY, now_ms=NOW_MS, disk=LocalDisk())
    log.close()
    PartitionLog.open(path, IDENTITY, now_ms=NOW_MS, disk=LocalDisk()).close()


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_file_of_a_newer_version_is_left_for_the_newer_version(name: str) -> None:
    disk = closed_log()
    path = f"{DIRECTORY}/{name}"
    known = CHECKPOINT_VERSION if name == CHECKPOINT_FILE else 1
    write_checkpoint(disk, path, known + 1, read_checkpoint(disk, path, known))
    before = without_lock(bytes_on_disk(disk))
    with pytest.raises(UnsupportedFormat) as raised:
        open_log(disk)
    assert (raised.value.path, raised.value.version, raised.value.known) == (path, known + 1, known)
    assert without_lock(bytes_on_disk(disk)) == before
    assert not disk.exists(QUARANTINE)


@pytest.mark.parametrize("name", ["partition.json", "log-checkpoint"])
@pytest.mark.parametrize("content", [b"", b"{}", b"not json", b'{"body":{},"crc32c":"00000000","version":1}\n'])
def test_what_nothing_can_replace_is_damage(name: str, content: bytes) -> None:
    disk = closed_log()
    disk.write_file(f"{DIRECTORY}/{name}", content)
    for _ in range(2):
        with pytest.raises(LogDamaged):
            open_log(disk)


@pytest.mark.parametrize("name", ["leader-epoch-checkpoint", "clean-shutdown"])
@pytest.mark.parametrize("content", [b"", b"{}", b"not json"])
def test_what_the_batches_can_replace_is_made_again(name: str, content: bytes) -> None:
    disk = closed_log()
    disk.write_file(f"{DIRECTORY}/{name}", content)
    log = open_log(disk)
    assert log.log_end_offset == 2
    assert log.epochs.history == ((3, 0),)
    assert len(contents(log)) == 1


def test_a_missing_log_checkpoint_is_damage() -> None:
    disk = closed_log()
    disk.remove(f"{DIRECTORY}/log-checkpoint")
    with pytest.raises(LogDamaged, match="missing"):
        open_log(disk)
    assert disk.exists(QUARANTINE)


def test_a_quarantined_replica_stays_so_and_is_left_as_it_is() -> None:
    disk = closed_log()
    disk.flip_bit(f"{DIRECTORY}/log-checkpoint", 100)
    with pytest.raises(LogDamaged) as first:
        open_log(disk)
    before = without_lock(bytes_on_disk(disk))
    for _ in range(3):
        with pytest.raises(LogDamaged) as again:
            open_log(disk)
        assert again.value.args == first.value.args
    assert without_lock(bytes_on_disk(disk)) == before


def test_a_quarantine_that_cannot_be_written_down_does_not_hide_the_damage() -> None:
    disk = closed_log()
    disk.flip_bit(f"{DIRECTORY}/log-checkpoint", 100)
    disk.capacity = disk.used_bytes()
    for _ in range(2):
        with pytest.raises(LogDamaged, match="log-checkpoint"):
            open_log(disk)
    assert not disk.exists(QUARANTINE)


def test_the_settings_on_disk_follow_those_the_log_is_opened_with() -> None:
    disk = closed_log()
    open_log(disk, {"segment.bytes": 1_000}).close()
    body = read_checkpoint(disk, f"{DIRECTORY}/partition.json", 1)
    assert body["config"] == {"segment.bytes": 1_000}
    log = open_log(disk, {"segment.bytes": 1_000})
    log.update_config({"retention.ms": 5})
    assert read_checkpoint(disk, f"{DIRECTORY}/partition.json", 1)["config"] == {"retention.ms": 5}


@pytest.mark.parametrize("ordered_names", [False, True])
def test_a_creation_that_dies_anywhere_is_finished_by_the_next(ordered_names: bool) -> None:
    def create(disk: FaultyDisk) -> PartitionLog:
        log = open_log(disk)
        log.begin_epoch(3)
        return log

    deaths = 0
    for point in crash_points(new_disk(ordered_names=ordered_names), create):
        for seed in range(4):
            disk = point.disk.clone()
            if seed:
                disk.crash_machine(Random(seed))
            log = create(disk)
            assert append(log, b"first").first_offset == 0
            log.close()
            assert len(contents(open_log(disk))) == 1
            deaths += 1
    assert deaths > 200
