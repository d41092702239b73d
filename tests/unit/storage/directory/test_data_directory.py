"""A broker's data directory: one identity, one owner, nobody else's files."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from raylog.errors import DirectoryBlank, DirectoryLocked, DirectoryNotOurs, LogDamaged, WrongCluster
from raylog.storage.directory.data_directory import (
    IDENTITY_FILE,
    BrokerIdentity,
    Claim,
    DataDirectory,
    DirectoryIdentity,
)
from raylog.storage.directory.set_aside_names import DAMAGED
from tests.simulator.world.faulty_disk import FaultyDisk, crash_points

OURS = BrokerIdentity("cluster-a", 1)


def test_a_blank_directory_becomes_ours_and_stays_ours() -> None:
    disk = FaultyDisk()
    assert DataDirectory.read_identity("/data", disk) is None
    DataDirectory.open("/data", OURS, disk, claim=Claim("d")).close()
    assert DataDirectory.read_identity("/data", disk) == DirectoryIdentity(OURS, Claim("d"))
    DataDirectory.open("/data", OURS, disk, claim=Claim("d")).close()


def test_a_directory_keeps_what_it_was_claimed_with() -> None:
    disk = FaultyDisk()
    first = Claim("drawn", (0, 1, 2))
    DataDirectory.open("/data", OURS, disk, claim=first).close()
    again = DataDirectory.open("/data", OURS, disk, claim=Claim("drawn anew"))
    assert again.identity == DirectoryIdentity(OURS, first)


def test_a_blank_directory_is_no_place_for_a_broker_that_had_data() -> None:
    disk = FaultyDisk()
    with pytest.raises(DirectoryBlank, match="broker 1 had its data there"):
        DataDirectory.open("/data", OURS, disk)
    assert not disk.exists("/data")
    DataDirectory.open("/data", OURS, disk, claim=Claim("d")).close()
    DataDirectory.open("/data", OURS, disk).close()


@pytest.mark.parametrize("other", [BrokerIdentity("cluster-b", 1), BrokerIdentity("cluster-a", 2)])
def test_another_brokers_directory_is_refused_and_left_alone(other: BrokerIdentity) -> None:
    disk = FaultyDisk()
    DataDirectory.open("/data", other, disk, claim=Claim("d")).close()
    before = disk.files()
    with pytest.raises(WrongCluster):
        DataDirectory.open("/data", OURS, disk, claim=Claim("d"))
    assert disk.files() == before
    DataDirectory.open("/data", other, disk, claim=Claim("d")).close()  # the refusal held no lock


def test_a_directory_with_foreign_files_is_refused_before_anything_is_written() -> None:
    disk = FaultyDisk()
    disk.make_directory("/data")
    disk.write_file("/data/thesis.doc", b"final final")
    before = disk.files()
    with pytest.raises(DirectoryNotOurs, match=r"thesis\.doc"):
        DataDirectory.open("/data", OURS, disk, claim=Claim("d"))
    assert disk.files() == before


def test_two_brokers_cannot_have_one_directory() -> None:
    disk = FaultyDisk()
    first = DataDirectory.open("/data", OURS, disk, claim=Claim("d"))
    with pytest.raises(DirectoryLocked):
        DataDirectory.open("/data", OURS, disk.new_process(), claim=Claim("d"))
    first.close()
    DataDirectory.open("/data", OURS, disk.new_process(), claim=Claim("d")).close()


def test_a_damaged_identity_is_not_taken_for_a_blank_directory() -> None:
    disk = FaultyDisk()
    DataDirectory.open("/data", OURS, disk, claim=Claim("d")).close()
    disk.flip_bit(f"/data/{IDENTITY_FILE}", 100)
    with pytest.raises(LogDamaged):
        DataDirectory.open("/data", OURS, disk, claim=Claim("d"))


def test_a_crash_while_it_is_made_leaves_one_that_can_be_made() -> None:
    for point in crash_points(FaultyDisk(), lambda disk: DataDirectory.open("/data", OURS, disk, claim=Claim("d"))):
        DataDirectory.open("/data", OURS, point.disk, claim=Claim("d")).close()


def test_replicas_are_found_by_name_and_set_aside_under_another() -> None:
    disk = FaultyDisk()
    data = DataDirectory.open("/data", OURS, disk, claim=Claim("d"))
    for name in ("clicks-0", "clicks-11", "with-dash-2", "__consumer_offsets-0"):
        disk.make_directory(f"/data/{name}")
    everything = [("__consumer_offsets", 0), ("clicks", 0), ("clicks", 11), ("with-dash", 2)]
    assert sorted(data.replicas()) == everything


def test_a_replica_that_was_set_aside_is_out_of_the_way_and_still_there(tmp_path: Path) -> None:
    data = DataDirectory.open(str(tmp_path), OURS, claim=Claim("d"))
    replica = Path(data.replica_path("clicks", 0))
    replica.mkdir()
    (replica / "00000000000000000000.log").write_bytes(b"what is left")
    aside = Path(data.set_aside("clicks", 0, DAMAGED, now_ms=1234))
    assert not replica.exists()
    assert (aside / "00000000000000000000.log").read_bytes() == b"what is left"
    assert aside.name == "clicks-0@set-aside-1234-damaged"
    assert data.replicas() == []
    assert data.free_bytes() > 0
    data.close()


@pytest.mark.parametrize("path", ["/data", "/srv/raylog/data"])
def test_a_new_data_directory_survives_a_power_cut(path: str) -> None:
    """The name of the directory itself has to be synced, not only what is in it."""
    identity = BrokerIdentity("cluster-1", 1)
    for seed in range(20):
        disk = FaultyDisk(ordered_names=False)
        DataDirectory.open(path, identity, disk, claim=Claim("d"))
        disk.crash_machine(Random(seed))
        assert DataDirectory.read_identity(path, disk.new_process()) == DirectoryIdentity(identity, Claim("d"))
