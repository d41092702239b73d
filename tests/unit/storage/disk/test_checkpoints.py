"""Rule 15: whatever stops a write, what is left is the old file or the new one, neither mixed nor missing."""

import json
from collections.abc import Iterator
from random import Random

import pytest

from raylog.errors import DiskError, DiskFailed, DiskFull, DiskReadOnly, LogDamaged, UnsupportedFormat
from raylog.storage.disk.checkpoints import TEMPORARY_SUFFIX, Body, read_checkpoint, write_checkpoint
from raylog.storage.disk.disk import Disk
from raylog.storage.format.record_batch import Bytes
from tests.simulator.world.faulty_disk import FaultyDisk, SimulatedCrash, crash_points

DIRECTORY = "/data"
PATH = "/data/checkpoint"
VERSION = 3
OLD: Body = {"offset": 17, "epochs": [[0, 0], [1, 40]], "name": "old"}
NEW: Body = {"offset": 99, "epochs": [[n, n * 100] for n in range(120)], "name": "new"}
SEEDS = 25

BOTH_ORDERS = pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "unordered"])
BOTH_STARTS = pytest.mark.parametrize("old", [OLD, None], ids=["over an old one", "the first one"])


def new_disk(old: Body | None, *, ordered: bool = True) -> FaultyDisk:
    disk = FaultyDisk(ordered_names=ordered)
    disk.make_directory(DIRECTORY)
    disk.sync_everything()
    if old is not None:
        write_checkpoint(disk, PATH, VERSION, old)
    return disk


def write_new(disk: Disk) -> None:
    write_checkpoint(disk, PATH, VERSION, NEW)


def read(disk: Disk) -> Body | None:
    try:
        return read_checkpoint(disk, PATH, VERSION)
    except FileNotFoundError:
        return None


def power_cuts(disk: FaultyDisk) -> Iterator[FaultyDisk]:
    for seed in range(SEEDS):
        crashed = disk.clone()
        crashed.crash_machine(Random(seed))
        yield crashed


# --- reading back ---


@pytest.mark.parametrize(
    "body",
    [
        {},
        OLD,
        NEW,
        {"": None, "nested": {"b": [True, -1, 0.1, 1e300, "x"], "a": {}}},
        {"text": 'quotes " and \\ and \n and \x00', "über": "日本", "half": "\ud800"},
        {"number": 2**200},
    ],
)
def test_what_is_written_is_read(body: Body) -> None:
    disk = new_disk(OLD)
    write_checkpoint(disk, PATH, VERSION, body)
    assert read_checkpoint(disk, PATH, VERSION) == body
    assert disk.list_directory(DIRECTORY) == ["checkpoint"]


def test_an_operator_can_read_it() -> None:
    line = new_disk({"offset": 17}).read_file(PATH).decode("ascii")
    assert line.endswith("\n")
    assert json.loads(line) == {
        "body": {"offset": 17},
        "crc32c": json.loads(line)["crc32c"],
        "version": VERSION,
    }


def test_a_missing_file_is_missing() -> None:
    with pytest.raises(FileNotFoundError):
        read_checkpoint(new_disk(None), PATH, VERSION)


def test_an_older_version_is_read_and_a_newer_one_refused() -> None:
    disk = new_disk(OLD)
    assert read_checkpoint(disk, PATH, VERSION + 1) == OLD
    with pytest.raises(UnsupportedFormat) as caught:
        read_checkpoint(disk, PATH, VERSION - 1)
    assert (caught.value.path, caught.value.version, caught.value.known) == (PATH, VERSION, VERSION - 1)


# --- damage ---


def test_every_flipped_bit_is_noticed() -> None:
    disk = new_disk(OLD)
    for bit in range(disk.files()[PATH] * 8):
        disk.flip_bit(PATH, bit)
        with pytest.raises(LogDamaged):
            read_checkpoint(disk, PATH, VERSION)
        disk.flip_bit(PATH, bit)
    assert read(disk) == OLD


def test_every_missing_end_is_noticed() -> None:
    disk = new_disk(OLD)
    whole = disk.read_file(PATH)
    for length in range(len(whole)):
        disk.write_file(PATH, whole[:length])
        with pytest.raises(LogDamaged):
            read_checkpoint(disk, PATH, VERSION)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 100,
        b"\xff\xfe\xfd",
        b"null",
        b"[]",
        b"17",
        b'"body"',
        b"{}",
        b"[" * 100_000,
        b"1" * 10_000,
        b'{"body":{},"crc32c":"00000000","version":1}\n',
        b'{"body":[],"crc32c":"00000000","version":1}\n',
        b'{"body":{},"version":true}\n',
        b'{"body":{},"version":null}\n',
        b'{"body":{},"version":1.0}\n',
    ],
    ids=lambda content: repr(content[:30]),
)
def test_what_is_no_checkpoint_is_damage(content: bytes) -> None:
    disk = new_disk(None)
    disk.write_file(PATH, content)
    with pytest.raises(LogDamaged, match="checkpoint"):
        read_checkpoint(disk, PATH, VERSION)


def test_something_added_is_noticed() -> None:
    disk = new_disk(OLD)
    whole = disk.read_file(PATH)
    for content in (whole + b"\n", whole + whole, b" " + whole, whole.replace(b":", b": ", 1)):
        disk.write_file(PATH, content)
        with pytest.raises(LogDamaged):
            read_checkpoint(disk, PATH, VERSION)


# --- a write that is stopped ---


@BOTH_STARTS
@BOTH_ORDERS
def test_killed_at_any_operation_it_is_the_old_or_the_new(old: Body | None, ordered: bool) -> None:
    seen = []
    for point in crash_points(new_disk(old, ordered=ordered), write_new):
        for disk in (point.disk, *power_cuts(point.disk)):
            seen.append(read(disk))
            assert seen[-1] in (old, NEW), point
            write_checkpoint(disk, PATH, VERSION, NEW)
            assert read(disk) == NEW
    assert old in seen
    assert NEW in seen


@BOTH_STARTS
@BOTH_ORDERS
def test_what_has_returned_is_there_after_a_power_cut(old: Body | None, ordered: bool) -> None:
    disk = new_disk(old, ordered=ordered)
    write_new(disk)
    for crashed in power_cuts(disk):
        assert read(crashed) == NEW
        assert crashed.list_directory(DIRECTORY) == ["checkpoint"]


@BOTH_ORDERS
def test_a_temporary_file_left_behind_does_no_harm(ordered: bool) -> None:
    start = new_disk(OLD, ordered=ordered)
    start.crash_after(3, "midway")
    with pytest.raises(SimulatedCrash, match="write_at"):
        write_new(start)
    start.crash_process()
    assert start.files()[PATH + TEMPORARY_SUFFIX] > 0
    short: Body = {"name": "shorter than what was left behind"}
    for point in crash_points(start, lambda disk: write_checkpoint(disk, PATH, VERSION, short)):
        for disk in (point.disk, *power_cuts(point.disk)):
            assert read(disk) in (OLD, short), point


def test_a_full_disk_leaves_the_old_one() -> None:
    disk = new_disk(OLD)
    size = len(encoded(NEW))
    used = disk.used_bytes()
    for room in range(size):
        disk.capacity = used + room
        with pytest.raises(DiskFull):
            write_new(disk)
        assert read(disk) == OLD
    for crashed in power_cuts(disk):
        assert read(crashed) == OLD
    disk.capacity = used + size
    write_new(disk)
    assert read(disk) == NEW


def encoded(body: Body) -> bytes:
    return new_disk(body).read_file(PATH)


@pytest.mark.parametrize("error", [DiskFailed("failed"), DiskReadOnly("read only"), DiskFull("full")])
@pytest.mark.parametrize("operation", ["create", "truncate", "write_at", "sync", "rename", "sync_directory"])
def test_an_error_at_any_step_reaches_the_caller(operation: str, error: DiskError) -> None:
    disk = new_disk(OLD)
    disk.fail_next(operation, error=error, partial=40)
    with pytest.raises(type(error)):
        write_new(disk)
    expected = (OLD, NEW) if operation == "sync_directory" else (OLD,)
    for crashed in (disk, *power_cuts(disk)):
        assert read(crashed) in expected
    write_new(disk)
    for crashed in power_cuts(disk):
        assert read(crashed) == NEW


# --- each step is needed: these disks leave one out, and the tests above would notice ---


class WithoutFileSync(FaultyDisk):
    def write_file(self, path: str, data: Bytes, *, sync: bool = False) -> None:
        super().write_file(path, data, sync=False)


class WithoutDirectorySync(FaultyDisk):
    def sync_directory(self, path: str) -> None:
        pass


class WithoutTemporaryFile(FaultyDisk):
    def write_file(self, path: str, data: Bytes, *, sync: bool = False) -> None:
        super().write_file(path.removesuffix(TEMPORARY_SUFFIX), data, sync=sync)

    def rename(self, source: str, target: str) -> None:
        pass


def outcome(disk: FaultyDisk) -> str:
    try:
        body = read(disk)
    except LogDamaged:
        return "damaged"
    return "missing" if body is None else str(body["name"])


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (FaultyDisk, {"new"}),
        (WithoutFileSync, {"damaged", "new"}),
        (WithoutDirectorySync, {"old", "new"}),
    ],
)
def test_each_step_of_a_write_is_needed(kind: type[FaultyDisk], expected: set[str]) -> None:
    disk = kind()
    disk.make_directory(DIRECTORY)
    write_checkpoint(disk, PATH, VERSION, OLD)
    disk.sync_everything()
    write_checkpoint(disk, PATH, VERSION, NEW)
    assert {outcome(crashed) for crashed in power_cuts(disk)} == expected


def test_the_temporary_file_is_needed() -> None:
    disk = WithoutTemporaryFile()
    disk.make_directory(DIRECTORY)
    write_checkpoint(disk, PATH, VERSION, OLD)
    disk.crash_after(3)
    with pytest.raises(SimulatedCrash, match="sync"):
        write_checkpoint(disk, PATH, VERSION, NEW)
    assert "damaged" in {outcome(crashed) for crashed in power_cuts(disk)}
