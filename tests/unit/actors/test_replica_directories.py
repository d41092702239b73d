"""A broker's work on its replicas' directories: what is moved, what is removed, and what is left to its owner."""

from __future__ import annotations

import pytest

from raylog.actors.replica_directories import ReplicaDirectories
from raylog.errors import DirectoryLocked
from raylog.storage.data_directory import BrokerIdentity, Claim, DataDirectory
from raylog.storage.partition_directory import QUARANTINE_FILE, PartitionIdentity
from raylog.storage.partition_log import PartitionLog
from tests.simulation.faulty_disk import FaultyDisk

OLD, NEW = b"sixteen bytes id", b"another topic id"
HERE = "/data/clicks-0"


def opened(disk: FaultyDisk, topic_id: bytes = OLD) -> PartitionLog:
    identity = PartitionIdentity("cluster", "clicks", topic_id.hex(), 0)
    return PartitionLog.open(HERE, identity, now_ms=1, disk=disk.new_process())


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
def directories(disk: FaultyDisk) -> ReplicaDirectories:
    return ReplicaDirectories(DataDirectory.open("/data", BrokerIdentity("cluster", 1), disk, claim=Claim("d")))


def names(disk: FaultyDisk) -> list[str]:
    return [name for name in disk.list_directory("/data") if name.startswith("clicks")]


def set_aside(disk: FaultyDisk, directories: ReplicaDirectories, now_ms: int) -> bool:
    opened(disk).close()
    disk.write_file(f"{HERE}/{QUARANTINE_FILE}", b"damaged")
    return directories.make_room("clicks", OLD, 0, now_ms)


def test_the_last_two_of_a_replicas_damaged_directories_are_kept(
    disk: FaultyDisk, directories: ReplicaDirectories
) -> None:
    assert not set_aside(disk, directories, 20)
    assert not set_aside(disk, directories, 30)
    assert set_aside(disk, directories, 10)  # the clock went back
    directories.purge()
    assert names(disk) == ["clicks-0@set-aside-30", "clicks-0@set-aside-31"]


def test_what_was_set_aside_goes_with_its_topic(disk: FaultyDisk, directories: ReplicaDirectories) -> None:
    set_aside(disk, directories, 20)
    opened(disk, NEW).close()
    disk.write_file(f"{HERE}/{QUARANTINE_FILE}", b"damaged")
    directories.make_room("clicks", NEW, 0, 30)
    opened(disk).close()
    assert directories.remove("clicks", OLD, 0, 40)
    directories.purge()
    assert names(disk) == ["clicks-0@set-aside-30"]
    assert not directories.remove("clicks", NEW, 0, 50)
    directories.purge()
    assert names(disk) == []


def test_a_removal_leaves_the_replica_of_the_next_topic_of_that_name_alone(
    disk: FaultyDisk, directories: ReplicaDirectories
) -> None:
    log = opened(disk, NEW)
    assert not directories.remove("clicks", OLD, 0, 5)  # not DirectoryLocked: its process would be killed for that
    directories.purge()
    log.begin_epoch(1)
    log.close()
    assert names(disk) == ["clicks-0"]


def test_no_room_is_made_of_what_a_process_has(disk: FaultyDisk, directories: ReplicaDirectories) -> None:
    log = opened(disk)
    with pytest.raises(DirectoryLocked):
        directories.make_room("clicks", NEW, 0, 5)
    with pytest.raises(DirectoryLocked):
        directories.remove("clicks", OLD, 0, 5)
    log.close()
    assert directories.remove("clicks", OLD, 0, 5)


def test_a_purge_finds_what_another_one_has_just_removed(disk: FaultyDisk, directories: ReplicaDirectories) -> None:
    opened(disk).close()
    directories.remove("clicks", OLD, 0, 5)
    listed = disk.list_directory("/data")
    directories.purge()
    disk.list_directory = lambda path: listed if path == "/data" else FaultyDisk.list_directory(disk, path)  # type: ignore[method-assign]
    directories.purge()
