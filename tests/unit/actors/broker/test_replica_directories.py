"""A broker's work on its replicas' directories: what is moved, what is removed, and what is left to its owner."""

from __future__ import annotations

from random import Random

import pytest

from raylog.actors.broker.replica_directories import ReplicaDirectories
from raylog.errors import DirectoryLocked, SetAsideUnknown
from raylog.storage.directory.data_directory import BrokerIdentity, Claim, DataDirectory
from raylog.storage.directory.doubts import BLANK
from raylog.storage.directory.partition_directory import PARTITION_FILE, QUARANTINE_FILE, PartitionIdentity
from raylog.storage.log.partition_log import PartitionLog
from tests.simulator.world.faulty_disk import FaultyDisk
from tests.unit.storage.small_log import NOW_MS, batch

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


def set_aside(disk: FaultyDisk, directories: ReplicaDirectories, now_ms: int) -> None:
    opened(disk).close()
    disk.write_file(f"{HERE}/{QUARANTINE_FILE}", b"damaged")
    directories.make_room("clicks", OLD, 0, now_ms)


def test_all_of_a_replicas_damaged_directories_are_kept(disk: FaultyDisk, directories: ReplicaDirectories) -> None:
    for now_ms in (20, 30, 10, 15):  # the clock goes back
        set_aside(disk, directories, now_ms)
        directories.purge()
    assert names(disk) == ["clicks-0", *(f"clicks-0@set-aside-{number}-damaged" for number in (20, 30, 31, 32))]


def test_rooms_survive_a_power_cut_once_they_are_synced_and_are_no_replicas_yet(
    disk: FaultyDisk, directories: ReplicaDirectories
) -> None:
    for partition in range(3):
        directories.make_room("clicks", OLD, partition, 20)
    directories.sync_rooms()
    assert directories.find() == []
    disk.crash_machine(Random(1))
    assert names(disk) == ["clicks-0", "clicks-1", "clicks-2"]
    identity = PartitionIdentity("cluster", "clicks", OLD.hex(), 0)
    log = PartitionLog.open(HERE, identity, now_ms=1, disk=disk.new_process(), is_named=True)
    assert log.unproven == BLANK


def test_a_name_that_is_not_there_is_made_durable_whatever_is_said_of_it(disk: FaultyDisk) -> None:
    disk.make_directory("/data")
    identity = PartitionIdentity("cluster", "clicks", OLD.hex(), 0)
    PartitionLog.open(HERE, identity, now_ms=1, disk=disk.new_process(), is_named=True)
    disk.crash_machine(Random(1))
    assert names(disk) == ["clicks-0"]


def test_data_that_does_not_say_whose_it_is_counts_as_damaged(
    disk: FaultyDisk, directories: ReplicaDirectories
) -> None:
    opened(disk).close()
    disk.remove(f"{HERE}/{PARTITION_FILE}")
    directories.make_room("clicks", OLD, 0, 20)
    directories.purge()
    assert names(disk) == ["clicks-0", "clicks-0@set-aside-20-damaged"]


def test_what_was_set_aside_goes_with_its_topic(disk: FaultyDisk, directories: ReplicaDirectories) -> None:
    set_aside(disk, directories, 20)
    opened(disk, NEW).close()
    disk.write_file(f"{HERE}/{QUARANTINE_FILE}", b"damaged")
    directories.make_room("clicks", NEW, 0, 30)
    opened(disk).close()
    assert directories.remove("clicks", OLD, 0, 40, None)
    directories.purge()
    assert names(disk) == ["clicks-0@set-aside-30-damaged"]
    assert not directories.remove("clicks", NEW, 0, 50, None)
    directories.purge()
    assert names(disk) == []


@pytest.mark.parametrize(
    ("unclean_epoch", "left"),
    [(-1, []), (3, []), (4, ["clicks-0@set-aside-40-moved-4"])],
)
def test_a_replica_that_moves_leaves_what_may_be_nowhere_else(
    disk: FaultyDisk, directories: ReplicaDirectories, unclean_epoch: int, left: list[str]
) -> None:
    set_aside(disk, directories, 20)
    log = opened(disk)
    log.begin_epoch(3)
    log.append_as_leader(batch(), 3, now_ms=NOW_MS)
    log.close()
    assert directories.remove("clicks", OLD, 0, 40, unclean_epoch)
    directories.purge()
    assert names(disk) == ["clicks-0@set-aside-20-damaged", *left]


def test_a_person_drops_what_was_set_aside(disk: FaultyDisk, directories: ReplicaDirectories) -> None:
    set_aside(disk, directories, 20)
    set_aside(disk, directories, 30)
    directories.drop_aside("clicks-0@set-aside-20-damaged", 40)
    directories.purge()
    assert names(disk) == ["clicks-0", "clicks-0@set-aside-30-damaged"]
    others = ("clicks-0", "broker.json", "../data/clicks-0@set-aside-30-damaged")
    for wrong in ("clicks-0@set-aside-20-damaged", *others):
        with pytest.raises(SetAsideUnknown):
            directories.drop_aside(wrong, 50)


def test_a_removal_leaves_the_replica_of_the_next_topic_of_that_name_alone(
    disk: FaultyDisk, directories: ReplicaDirectories
) -> None:
    log = opened(disk, NEW)
    # Not DirectoryLocked: its process would be killed for that.
    assert not directories.remove("clicks", OLD, 0, 5, None)
    directories.purge()
    log.begin_epoch(1)
    log.close()
    assert names(disk) == ["clicks-0"]


def test_no_room_is_made_of_what_a_process_has(disk: FaultyDisk, directories: ReplicaDirectories) -> None:
    log = opened(disk)
    with pytest.raises(DirectoryLocked):
        directories.make_room("clicks", NEW, 0, 5)
    with pytest.raises(DirectoryLocked):
        directories.remove("clicks", OLD, 0, 5, None)
    log.close()
    assert directories.remove("clicks", OLD, 0, 5, None)


def test_a_purge_finds_what_another_one_has_just_removed(disk: FaultyDisk, directories: ReplicaDirectories) -> None:
    opened(disk).close()
    directories.remove("clicks", OLD, 0, 5, None)
    listed = disk.list_directory("/data")
    directories.purge()
    disk.list_directory = lambda path: listed if path == "/data" else FaultyDisk.list_directory(disk, path)  # type: ignore[method-assign]
    directories.purge()
