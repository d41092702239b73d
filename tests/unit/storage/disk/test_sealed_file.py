"""A sealed file is believed whole or not at all: what a crash or a rotten bit leaves is not believed."""

from collections.abc import Iterator
from random import Random

import pytest

from raylog.errors import DiskFailed, DiskFull
from raylog.storage.disk.disk import Disk
from raylog.storage.disk.sealed_file import SealBroken, map_sealed, write_sealed
from raylog.storage.format.record_batch import Bytes
from tests.simulator.world.faulty_disk import FaultyDisk, crash_points

DIRECTORY = "/data"
PATH = "/data/00000000000000000000.index"
TAG = b"TEST"
VERSION = 2
HEADER_BYTES = 28
OLD_COVERS, NEW_COVERS = 1_000, 5_000
OLD_BODY = bytes(range(1, 256)) * 3
NEW_BODY = bytes(reversed(range(1, 256))) * 10
SEEDS = 25

BOTH_ORDERS = pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "unordered"])


def new_disk(*, ordered: bool = True) -> FaultyDisk:
    disk = FaultyDisk(ordered_names=ordered)
    disk.make_directory(DIRECTORY)
    disk.sync_everything()
    return disk


def write_old(disk: Disk) -> None:
    write_sealed(disk, PATH, TAG, VERSION, OLD_COVERS, OLD_BODY)


def write_new(disk: Disk) -> None:
    write_sealed(disk, PATH, TAG, VERSION, NEW_COVERS, NEW_BODY)


def read(disk: Disk, covers: int | None) -> bytes | None:
    """The body, or None where the file is not believed."""
    try:
        return bytes(map_sealed(disk, PATH, TAG, VERSION, covers))
    except SealBroken:
        return None


def power_cuts(disk: FaultyDisk) -> Iterator[FaultyDisk]:
    for seed in range(SEEDS):
        crashed = disk.clone()
        crashed.crash_machine(Random(seed))
        yield crashed


# --- reading back ---


@pytest.mark.parametrize("body", [b"", b"x", OLD_BODY, bytearray(NEW_BODY), memoryview(NEW_BODY)[3:]])
def test_what_is_written_is_mapped(body: Bytes) -> None:
    disk = new_disk()
    write_new(disk)
    write_sealed(disk, PATH, TAG, VERSION, OLD_COVERS, body)
    for covers in (OLD_COVERS, None):
        mapped = map_sealed(disk, PATH, TAG, VERSION, covers)
        assert mapped == body
        assert mapped.readonly
    assert disk.files() == {PATH: HEADER_BYTES + len(body)}


def test_a_missing_file_is_not_believed() -> None:
    with pytest.raises(SealBroken, match="missing"):
        map_sealed(new_disk(), PATH, TAG, VERSION, OLD_COVERS)


def test_a_file_that_describes_something_else_is_not_believed() -> None:
    disk = new_disk()
    write_old(disk)
    with pytest.raises(SealBroken, match="describes 1000, not 5000"):
        map_sealed(disk, PATH, TAG, VERSION, NEW_COVERS)
    with pytest.raises(SealBroken):
        map_sealed(disk, PATH, b"ELSE", VERSION, OLD_COVERS)


def test_an_older_version_is_read_and_a_newer_one_made_again() -> None:
    disk = new_disk()
    write_old(disk)
    assert map_sealed(disk, PATH, TAG, VERSION + 1, OLD_COVERS) == OLD_BODY
    for covers in (OLD_COVERS, NEW_COVERS, None):
        with pytest.raises(SealBroken, match="has format version 2, but this one knows 1"):
            map_sealed(disk, PATH, TAG, VERSION - 1, covers)


# --- damage ---


@pytest.mark.parametrize("known_version", [VERSION, VERSION - 1, 2**16 - 1])
def test_every_flipped_bit_is_noticed(known_version: int) -> None:
    """Also one that makes the version look newer: that is damage to be repaired, not a file to be kept."""
    disk = new_disk()
    write_old(disk)
    for bit in range(disk.files()[PATH] * 8):
        disk.flip_bit(PATH, bit)
        with pytest.raises(SealBroken):
            map_sealed(disk, PATH, TAG, known_version)
        disk.flip_bit(PATH, bit)
    assert read(disk, OLD_COVERS) == OLD_BODY


def test_every_missing_or_added_end_is_noticed() -> None:
    disk = new_disk()
    write_old(disk)
    whole = disk.read_file(PATH)
    others = [whole[:length] for length in range(len(whole))]
    others += [whole + b"\0", whole + whole, b"\0" * len(whole), b"\xff" * len(whole)]
    for other in others:
        disk.write_file(PATH, other)
        assert read(disk, None) is None


# --- a write that is stopped ---


@BOTH_ORDERS
@pytest.mark.parametrize("synced", [True, False], ids=["over a synced one", "over an unsynced one"])
def test_killed_at_any_operation_it_is_old_or_new_or_not_believed(synced: bool, ordered: bool) -> None:
    start = new_disk(ordered=ordered)
    write_old(start)
    if synced:
        start.sync_everything()
    seen = set()
    for point in crash_points(start, write_new):
        for disk in (point.disk, *power_cuts(point.disk)):
            seen.add(read(disk, None))
            assert read(disk, OLD_COVERS) in (OLD_BODY, None), point
            assert read(disk, NEW_COVERS) in (NEW_BODY, None), point
            write_new(disk)
            assert read(disk, NEW_COVERS) == NEW_BODY, "its owner can make it again"
    assert seen == {OLD_BODY, NEW_BODY, None}


def test_after_a_power_cut_it_is_there_or_not_believed() -> None:
    disk = new_disk()
    write_new(disk)
    assert {read(crashed, NEW_COVERS) for crashed in power_cuts(disk)} == {NEW_BODY, None}


def test_on_a_full_disk_what_was_begun_is_not_believed() -> None:
    disk = new_disk()
    write_old(disk)
    size = HEADER_BYTES + len(NEW_BODY)
    for room in (0, 1, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 1, size - 1):
        disk.capacity = room
        with pytest.raises(DiskFull):
            write_new(disk)
        assert read(disk, None) is None
    disk.capacity = size
    write_new(disk)
    assert read(disk, NEW_COVERS) == NEW_BODY


def test_an_error_of_the_disk_is_not_taken_for_a_broken_seal() -> None:
    disk = new_disk()
    write_old(disk)
    disk.fail_next("map_file")
    with pytest.raises(DiskFailed):
        map_sealed(disk, PATH, TAG, VERSION, OLD_COVERS)
    disk.fail_next("write_at", partial=100)
    with pytest.raises(DiskFailed):
        write_new(disk)
    assert read(disk, None) is None
