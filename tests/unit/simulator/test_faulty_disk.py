"""The crash model and the faults of `FaultyDisk`. That it is a `Disk` at all: `storage/test_disk.py`."""

import errno
import gc
from collections.abc import Callable, Hashable
from random import Random
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.errors import DirectoryLocked, DiskFailed, DiskFull
from raylog.storage.disk.disk import Disk
from tests.simulator.world.crash_model import SECTOR_BYTES, FileImage
from tests.simulator.world.faulty_disk import (
    MOMENTS,
    FaultyDisk,
    FaultyFile,
    Moment,
    SimulatedCrash,
    UsedAfterClose,
    UsedAfterCrash,
    crash_points,
)

Seen = TypeVar("Seen", bound=Hashable)

DIRECTORY = "/data"
PATH = "/data/a"
BOTH_ORDERS = pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "unordered"])


def new_disk(*, ordered: bool = True, capacity: int | None = None) -> FaultyDisk:
    """A disk with two directories that have been there for long."""
    disk = FaultyDisk(ordered_names=ordered, capacity=capacity)
    disk.make_directory(DIRECTORY)
    disk.make_directory("/other")
    disk.sync_everything()
    return disk


def after_power_cut(disk: FaultyDisk, look: Callable[[FaultyDisk], Seen], seeds: int = 300) -> set[Seen]:
    """All that can be seen after a power cut now."""
    seen = set()
    for seed in range(seeds):
        crashed = disk.clone()
        crashed.crash_machine(Random(seed))
        seen.add(look(crashed))
    return seen


def content(disk: FaultyDisk) -> bytes:
    return disk.read_file(PATH)


def names(disk: FaultyDisk) -> str:
    return " ".join(disk.list_directory(DIRECTORY))


def synced_file(disk: FaultyDisk, data: bytes) -> FaultyFile:
    file = disk.open(PATH, create=True)
    file.write_at(data, 0)
    file.sync()
    disk.sync_directory(DIRECTORY)
    return file


def test_it_is_a_disk() -> None:
    disk: Disk = FaultyDisk()
    assert disk.list_directory("/") == []


# --- bytes after a power cut ---


def test_what_was_synced_survives() -> None:
    disk = new_disk()
    synced_file(disk, b"synced")
    assert after_power_cut(disk, content) == {b"synced"}


def test_an_unsynced_append_is_lost_kept_cut_or_zeros() -> None:
    disk = new_disk()
    synced_file(disk, b"0123").write_at(b"45", 4)
    whole, lost, half, one_zero, zeros = b"012345", b"0123", b"01234", b"0123\0", b"0123\0\0"
    assert after_power_cut(disk, content) == {whole, lost, half, one_zero, zeros}


def test_sectors_of_a_write_survive_in_any_combination() -> None:
    disk = new_disk()
    synced_file(disk, bytes(SECTOR_BYTES) * 3).write_at(b"x" * SECTOR_BYTES * 3, 0)

    def kept_sectors(crashed: FaultyDisk) -> tuple[bytes, ...]:
        data = content(crashed)
        sectors = [data[at : at + SECTOR_BYTES] for at in range(0, len(data), SECTOR_BYTES)]
        assert all(len(set(sector)) == 1 for sector in sectors), "a sector is written as a whole"
        return tuple(sector[:1] for sector in sectors)

    assert len(after_power_cut(disk, kept_sectors)) == 2**3


def test_a_sector_written_twice_may_be_at_either_version() -> None:
    disk = new_disk()
    file = synced_file(disk, b"old")
    file.write_at(b"one", 0)
    file.write_at(b"two", 0)
    assert after_power_cut(disk, content) == {b"old", b"one", b"two"}


def test_a_write_across_the_old_end_leaves_what_was_synced_before_it() -> None:
    disk = new_disk()
    file = synced_file(disk, b"s" * 700)
    file.write_at(b"n" * 700, 700)
    assert all(data.startswith(b"s" * 700) for data in after_power_cut(disk, content))


def test_an_unsynced_truncation_may_not_have_happened() -> None:
    disk = new_disk()
    synced_file(disk, b"0123456789").truncate(4)
    assert after_power_cut(disk, content) == {b"0123456789", b"0123"}


def test_what_a_surviving_truncation_cut_off_never_comes_back() -> None:
    disk = new_disk()
    file = synced_file(disk, b"0123456789")
    file.truncate(4)
    file.truncate(12)
    assert after_power_cut(disk, content) == {b"0123456789", b"0123", b"0123" + bytes(8)}


def test_a_write_before_a_truncation_does_not_come_back_after_it() -> None:
    disk = new_disk()
    file = synced_file(disk, b"")
    file.write_at(b"se", 0)
    file.truncate(0)
    file.truncate(4)
    expected = {b"", b"\0", b"s", b"\0\0", b"se", bytes(4)}
    assert after_power_cut(disk, content) == expected


def test_a_truncation_and_a_write_behind_it_may_mix_with_what_was_there() -> None:
    disk = new_disk()
    file = synced_file(disk, b"o" * 1024)
    file.truncate(512)
    file.write_at(b"n" * 512, 512)
    old, cut, new = b"o" * 1024, b"o" * 512, b"o" * 512 + b"n" * 512
    assert {old, cut, new} <= after_power_cut(disk, content)


def test_a_process_crash_loses_no_byte() -> None:
    disk = new_disk()
    file = disk.open(PATH, create=True)
    file.write_at(b"unsynced", 0)
    disk.crash_process()
    assert content(disk) == b"unsynced"
    assert after_power_cut(disk, disk_is_empty) == {True, False}


def disk_is_empty(disk: FaultyDisk) -> bool:
    return not disk.list_directory(DIRECTORY)


Step = tuple[str, int, int]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 1500), st.integers(1, 1500)),
        st.tuples(st.just("truncate"), st.integers(0, 2500), st.just(0)),
        st.tuples(st.sampled_from(["sync", "fail_sync", "clone"]), st.just(0), st.just(0)),
    ),
    max_size=12,
)


def take_step(image: FileImage, model: bytearray, step: Step, fill: int) -> FileImage:
    kind, position, length = step
    if kind == "write":
        image.write(bytes([fill]) * length, position)
        model.extend(bytes(max(0, position + length - len(model))))
        model[position : position + length] = bytes([fill]) * length
    elif kind == "truncate":
        image.truncate(position)
        model.extend(bytes(max(0, position - len(model))))
        del model[position:]
    elif kind == "sync":
        image.sync()
    elif kind == "fail_sync":
        image.fail_sync()
    else:
        return image.clone()
    return image


@given(steps=STEPS)
def test_the_page_cache_is_a_plain_file(steps: list[Step]) -> None:
    image, model = FileImage(), bytearray()
    copies: list[tuple[FileImage, bytes]] = []
    for fill, step in enumerate(steps, 1):
        copies.append((image.clone(), bytes(model)))
        image = take_step(image, model, step, fill)
        assert image.snapshot() == model
        assert len(image) == len(model)
        assert image.read(700, 300) == model[300:1000]
    for copy, before in copies:
        assert copy.snapshot() == before


def is_version_of_sector(found: bytes, versions: list[bytes]) -> bool:
    """Whether the sector is one of its versions, perhaps with zeros where it was cut off."""
    for version in versions:
        same = len(found)
        while found[:same] != version[:same]:
            same -= 1
        if not any(found[same:]):
            return True
    return False


@given(steps=STEPS, seed=st.integers(0, 2**32))
def test_after_a_power_cut_each_sector_is_one_of_its_versions_since_the_sync(
    steps: list[Step], seed: int
) -> None:
    image, model = FileImage(), bytearray()
    versions = [b""]
    for fill, step in enumerate(steps, 1):
        if step[0] != "fail_sync":
            image = take_step(image, model, step, fill)
            versions = [bytes(model)] if step[0] == "sync" else [*versions, bytes(model)]
    image.crash(Random(seed))
    found = image.snapshot()
    assert min(map(len, versions)) <= len(found) <= max(map(len, versions))
    for at in range(0, len(found), SECTOR_BYTES):
        sectors = [version[at : at + SECTOR_BYTES].ljust(SECTOR_BYTES, b"\0") for version in versions]
        assert is_version_of_sector(found[at : at + SECTOR_BYTES], sectors)
    assert found == versions[0] or len(versions) > 1
    image.crash(Random(seed))
    assert image.snapshot() == found, "what survived is on the disk"


# --- failed syncs ---


def failed_sync(file: FaultyFile, disk: FaultyDisk) -> None:
    disk.fail_next("sync", PATH)
    with pytest.raises(DiskFailed):
        file.sync()


def test_after_a_failed_sync_a_later_one_saves_nothing_of_it() -> None:
    disk = new_disk()
    file = synced_file(disk, b"old")
    file.write_at(b"new", 0)
    failed_sync(file, disk)
    file.sync()
    assert content(disk) == b"new", "it is still in the page cache"
    assert after_power_cut(disk, content) == {b"old"}


def test_appending_and_syncing_after_a_failed_sync_leaves_a_hole() -> None:
    disk = new_disk()
    file = synced_file(disk, b"s" * 512)
    file.write_at(b"l" * 512, 512)
    failed_sync(file, disk)
    file.write_at(b"n" * 512, 1024)
    file.sync()
    assert after_power_cut(disk, content) == {b"s" * 512 + bytes(512) + b"n" * 512}


def test_writing_the_sector_again_after_a_failed_sync_saves_it() -> None:
    disk = new_disk()
    file = synced_file(disk, b"old")
    file.write_at(b"new", 0)
    failed_sync(file, disk)
    file.write_at(b"NEW", 0)
    file.sync()
    assert after_power_cut(disk, content) == {b"NEW"}
    file.write_at(b"two", 0)
    assert after_power_cut(disk, content) == {b"NEW", b"two"}
    file.sync()
    assert after_power_cut(disk, content) == {b"two"}


def test_a_sync_that_the_hook_fails_is_a_failed_sync() -> None:
    disk = new_disk()
    file = synced_file(disk, b"old")
    file.write_at(b"new", 0)

    def refuse(operation: str, path: str) -> None:
        raise DiskFailed(f"{operation} {path}")

    disk.on_operation = refuse
    with pytest.raises(DiskFailed, match="sync /data/a"):
        file.sync()
    disk.on_operation = None
    file.sync()
    assert after_power_cut(disk, content) == {b"old"}


# --- names after a power cut ---


@BOTH_ORDERS
def test_a_new_name_is_sure_once_its_directory_is_synced(ordered: bool) -> None:
    disk = new_disk(ordered=ordered)
    disk.open(PATH, create=True).sync()
    assert after_power_cut(disk, names) == {"", "a"}
    disk.sync_directory("/other")
    assert after_power_cut(disk, names) == {"", "a"}
    disk.sync_directory(DIRECTORY)
    assert after_power_cut(disk, names) == {"a"}


@BOTH_ORDERS
def test_a_synced_name_may_stand_for_an_empty_file(ordered: bool) -> None:
    disk = new_disk(ordered=ordered)
    disk.write_file(PATH, b"data")
    disk.sync_directory(DIRECTORY)
    assert {b"", b"data"} <= after_power_cut(disk, content)


@BOTH_ORDERS
def test_a_removed_name_may_come_back(ordered: bool) -> None:
    disk = new_disk(ordered=ordered)
    synced_file(disk, b"abc").close()
    disk.remove(PATH)
    if not ordered:  # where the order is kept, this makes the removal sure
        disk.write_file("/other/b", b"", sync=True)
        disk.sync_directory("/other")
    assert after_power_cut(disk, names) == {"", "a"}
    assert b"abc" in after_power_cut(disk, lambda crashed: crashed.exists(PATH) and content(crashed))
    disk.sync_directory(DIRECTORY)
    assert after_power_cut(disk, names) == {""}


@BOTH_ORDERS
def test_a_rename_over_a_file_leaves_old_or_new_never_neither(ordered: bool) -> None:
    disk = new_disk(ordered=ordered)
    synced_file(disk, b"old").close()
    disk.write_file("/data/a.tmp", b"new", sync=True)
    disk.rename("/data/a.tmp", PATH)
    assert after_power_cut(disk, content) == {b"old", b"new"}
    assert after_power_cut(disk, names) == {"a", "a a.tmp"}
    disk.sync_directory(DIRECTORY)
    assert after_power_cut(disk, lambda crashed: (names(crashed), content(crashed))) == {("a", b"new")}


@BOTH_ORDERS
def test_a_rename_between_directories_needs_both_synced(ordered: bool) -> None:
    def where(crashed: FaultyDisk) -> str:
        return " ".join(crashed.files())

    for first, second in ((DIRECTORY, "/other"), ("/other", DIRECTORY)):
        disk = new_disk(ordered=ordered)
        synced_file(disk, b"abc").close()
        disk.rename(PATH, "/other/b")
        disk.sync_directory(first)
        assert after_power_cut(disk, where) == {"/data/a", "/other/b"}
        disk.sync_directory(second)
        assert after_power_cut(disk, where) == {"/other/b"}


def make_three_changes(disk: FaultyDisk) -> None:
    disk.open("/data/a", create=True).close()
    disk.open("/data/b", create=True).close()
    disk.rename("/data/a", "/data/c")


def test_of_ordered_changes_a_prefix_survives() -> None:
    disk = new_disk()
    make_three_changes(disk)
    assert after_power_cut(disk, names) == {"", "a", "a b", "b c"}


def test_of_unordered_changes_any_survive_with_those_they_need() -> None:
    disk = new_disk(ordered=False)
    make_three_changes(disk)
    assert after_power_cut(disk, names) == {"", "a", "b", "a b", "c", "b c"}


def test_a_file_renamed_twice_has_one_name() -> None:
    disk = new_disk(ordered=False)
    synced_file(disk, b"abc")
    disk.rename(PATH, "/data/b")
    disk.rename("/data/b", "/data/c")
    assert after_power_cut(disk, names) == {"a", "b", "c"}


def test_a_new_file_under_the_old_name_of_another_does_not_push_it_out() -> None:
    disk = new_disk(ordered=False)
    synced_file(disk, b"abc")
    disk.rename(PATH, "/data/b")
    disk.write_file(PATH, b"new", sync=True)

    def contents(crashed: FaultyDisk) -> tuple[tuple[str, bytes], ...]:
        return tuple(state(crashed).items())

    both = (PATH, b"new"), ("/data/b", b"abc")
    assert after_power_cut(disk, contents) == {((PATH, b"abc"),), (("/data/b", b"abc"),), both}


@pytest.mark.parametrize(("ordered", "expected"), [(True, {"a"}), (False, {"", "a"})])
def test_only_ordered_changes_are_sure_with_a_later_one(ordered: bool, expected: set[str]) -> None:
    disk = new_disk(ordered=ordered)
    disk.open(PATH, create=True).close()
    disk.open("/other/b", create=True).close()
    disk.sync_directory("/other")
    assert after_power_cut(disk, names) == expected


@pytest.mark.parametrize(("ordered", "expected"), [(True, {True}), (False, {True, False})])
def test_a_directory_needs_its_name_in_its_parent(ordered: bool, expected: set[bool]) -> None:
    disk = new_disk(ordered=ordered)
    disk.make_directory("/data/x/y")
    disk.write_file("/data/x/y/a", b"abc", sync=True)
    disk.sync_directory("/data/x/y")
    assert after_power_cut(disk, lambda crashed: crashed.exists("/data/x/y/a")) == expected
    disk.sync_directory("/data/x")
    disk.sync_directory("/data")
    assert after_power_cut(disk, lambda crashed: crashed.exists("/data/x/y/a")) == {True}


@BOTH_ORDERS
def test_a_machine_goes_on_after_a_power_cut(ordered: bool) -> None:
    disk = new_disk(ordered=ordered)
    synced_file(disk, b"abc")
    for seed in range(50):
        disk.write_file("/data/b", b"unsynced")
        disk.crash_machine(Random(seed))
        assert content(disk) == b"abc"
        assert after_power_cut(disk, content, seeds=3) == {b"abc"}
        assert after_power_cut(disk, names, seeds=3) == {names(disk)}


NAMES = st.sampled_from(["a", "b", "c"])
NAME_STEPS = st.lists(
    st.tuples(st.sampled_from(["write", "rename", "remove", "sync"]), NAMES, NAMES), max_size=12
)


@given(steps=NAME_STEPS, ordered=st.booleans(), seed=st.integers(0, 2**32))
def test_a_file_has_one_name_and_none_is_lost_but_by_its_removal(
    steps: list[tuple[str, str, str]], ordered: bool, seed: int
) -> None:
    """With all contents synced: what survives is a set of whole files, and none vanishes unasked."""
    disk, sure = new_disk(ordered=ordered), set[bytes]()
    for count, (kind, one, two) in enumerate(steps):
        at, to = f"/data/{one}", f"/data/{two}"
        if kind == "write" and not disk.exists(at):
            disk.write_file(at, b"%d" % count, sync=True)
        elif kind == "rename" and disk.exists(at):
            if at != to and disk.exists(to):
                sure.discard(disk.read_file(to))
            disk.rename(at, to)
        elif kind == "remove" and disk.exists(at):
            sure.discard(disk.read_file(at))
            disk.remove(at)
        elif kind == "sync":
            disk.sync_directory(DIRECTORY)
            sure = {disk.read_file(path) for path in disk.files()}
    disk.crash_machine(Random(seed))
    found = [disk.read_file(path) for path in disk.files()]
    assert len(found) == len(set(found))
    assert sure <= set(found)


def test_the_same_seed_leaves_the_same() -> None:
    disk = new_disk(ordered=False)
    for name in "abcdef":
        disk.write_file(f"/data/{name}", name.encode() * 2000)

    def everything(crashed: FaultyDisk) -> tuple[tuple[str, bytes], ...]:
        return tuple((path, crashed.read_file(path)) for path in crashed.files())

    for seed in range(20):
        one, other = disk.clone(), disk.clone()
        one.crash_machine(Random(seed))
        other.crash_machine(Random(seed))
        assert everything(one) == everything(other)
    assert len(after_power_cut(disk, everything)) > 100


# --- processes ---


def test_a_dead_process_can_touch_nothing() -> None:
    disk = new_disk()
    file, lock = synced_file(disk, b"abc"), disk.lock_directory(DIRECTORY)
    disk.crash_process()
    uses: list[Callable[[], object]] = [
        lambda: file.write_at(b"x", 0),
        lambda: file.read_at(1, 0),
        lambda: file.truncate(0),
        file.sync,
        file.size,
        file.inode,
    ]
    for use in uses:
        with pytest.raises(UsedAfterCrash):
            use()
    successor = disk.lock_directory(DIRECTORY)
    file.close()
    lock.release()
    with pytest.raises(DirectoryLocked):
        disk.lock_directory(DIRECTORY)
    successor.release()
    assert content(disk) == b"abc"


def test_a_closed_file_cannot_be_used() -> None:
    file = synced_file(new_disk(), b"abc")
    file.close()
    with pytest.raises(UsedAfterClose):
        file.read_at(1, 0)


def test_processes_on_one_machine_share_files_but_not_their_fate() -> None:
    disk = new_disk()
    other = disk.new_process()
    file = other.open(PATH, create=True)
    file.write_at(b"abc", 0)
    lock = other.lock_directory(DIRECTORY)
    assert content(disk) == b"abc"
    with pytest.raises(DirectoryLocked, match=f"pid {other.pid}"):
        disk.lock_directory(DIRECTORY)
    disk.crash_process()
    file.write_at(b"def", 3)
    with pytest.raises(DirectoryLocked):
        disk.lock_directory(DIRECTORY)
    other.crash_process()
    disk.lock_directory(DIRECTORY)
    lock.release()
    assert content(disk) == b"abcdef"


def test_a_power_cut_kills_every_process_and_changes_the_boot_id() -> None:
    disk = new_disk()
    other = disk.new_process()
    files = [synced_file(disk, b"abc"), other.open(PATH)]
    other.lock_directory(DIRECTORY)
    boot = disk.boot_id()
    disk.crash_process()
    assert disk.boot_id() == boot
    disk.crash_machine(Random(0))
    assert disk.boot_id() == other.boot_id() != boot
    for file in files:
        with pytest.raises(UsedAfterCrash):
            file.size()
    disk.lock_directory(DIRECTORY)


def test_a_clone_goes_its_own_way() -> None:
    disk = new_disk()
    file = synced_file(disk, b"abc")
    file.write_at(b"unsynced", 3)
    lock = disk.lock_directory(DIRECTORY)
    clone = disk.clone()
    file.write_at(b"X", 0)
    clone.remove(PATH)
    clone.lock_directory(DIRECTORY)
    assert content(disk) == b"Xbcunsynced"
    assert not clone.exists(PATH)
    assert clone.operations < disk.operations
    file.truncate(0)
    seen = after_power_cut(clone, lambda crashed: crashed.exists(PATH) and content(crashed))
    assert {False, b"abc", b"abcunsynced"} <= seen
    assert all(data is False or data.startswith(b"abc") for data in seen)
    lock.release()


# --- killing at an operation ---


def scenario(disk: FaultyDisk) -> None:
    file = disk.open("/data/b", create=True)
    file.write_at(b"0123456789", 0)
    file.sync()
    disk.rename("/data/b", PATH)
    disk.sync_directory(DIRECTORY)
    file.truncate(5)
    disk.remove(PATH)


def state(disk: FaultyDisk) -> dict[str, bytes]:
    return {path: disk.read_file(path) for path in disk.files()}


FULL = b"0123456789"
STATES: list[dict[str, bytes]] = [
    {},
    {"/data/b": b""},
    {"/data/b": FULL},
    {"/data/b": FULL},
    {PATH: FULL},
    {PATH: FULL},
    {PATH: FULL[:5]},
    {},
]


def test_each_operation_can_be_the_last() -> None:
    points = list(crash_points(new_disk(), scenario))
    assert [(operation, moment) for _, operation, moment in points] == [
        (operation, moment) for operation in range(1, len(STATES)) for moment in MOMENTS
    ]
    for disk, operation, moment in points:
        expected = STATES[operation if moment == "after" else operation - 1]
        if (operation, moment) == (2, "midway"):
            expected = {"/data/b": FULL[:5]}
        assert state(disk) == expected, (operation, moment)


def test_a_torn_write_is_as_long_as_asked() -> None:
    disk = new_disk()
    disk.crash_after(2, "midway", fraction=0.9)
    with pytest.raises(SimulatedCrash):
        scenario(disk)
    disk.crash_process()
    assert disk.files() == {"/data/b": 9}


@pytest.mark.parametrize("moment", MOMENTS)
def test_nothing_happens_between_death_and_burial(moment: Moment) -> None:
    disk = new_disk()
    file = synced_file(disk, b"abc")
    disk.crash_after(1, moment)
    with pytest.raises(SimulatedCrash, match="truncate /data/a"):
        file.truncate(1)
    calls: list[Callable[[], object]] = [
        lambda: file.write_at(b"x", 0),
        lambda: file.read_at(1, 0),
        file.sync,
        file.size,
        lambda: disk.open("/missing/a", create=True),
        lambda: disk.rename(PATH, "/data/b"),
        lambda: disk.exists(PATH),
        lambda: disk.make_directory("/x"),
        lambda: disk.lock_directory(DIRECTORY),
        lambda: disk.remove(PATH),
        disk.boot_id,
    ]
    for call in calls:
        with pytest.raises(SimulatedCrash):
            call()
    file.close()
    disk.crash_process()
    assert disk.files() == {PATH: 1 if moment == "after" else 3}
    disk.remove(PATH)


def test_a_handler_in_the_code_under_test_does_not_survive_its_death() -> None:
    disk = new_disk()

    def stubborn() -> None:
        while True:
            try:
                disk.write_file(PATH, b"abc")
            except Exception:  # noqa: BLE001 (the point of the test)
                continue

    disk.crash_after(7)
    with pytest.raises(SimulatedCrash):
        stubborn()


def test_a_kill_in_a_sync_is_not_a_failed_sync() -> None:
    disk = new_disk()
    file = synced_file(disk, b"old")
    file.write_at(b"new", 0)
    disk.crash_after(1)
    with pytest.raises(SimulatedCrash):
        file.sync()
    disk.crash_process()
    disk.open(PATH).sync()
    assert after_power_cut(disk, content) == {b"new"}


def test_a_process_that_died_otherwise_does_not_die_again() -> None:
    disk = new_disk()
    disk.crash_after(2)
    disk.crash_process()
    scenario(disk)


def test_only_what_changes_something_is_counted() -> None:
    disk = new_disk()
    before = disk.operations
    disk.exists(PATH)
    disk.remove(PATH)
    disk.make_directory(DIRECTORY)
    disk.list_directory(DIRECTORY)
    assert disk.operations == before
    disk.lock_directory(DIRECTORY).release()
    disk.lock_directory(DIRECTORY).release()
    assert disk.operations == before + 1
    disk.make_directory("/data/x/y")
    assert disk.operations == before + 3
    disk.write_file(PATH, b"abc", sync=True)
    assert disk.operations == before + 7


# --- faults ---


def test_the_hook_sees_each_operation_before_it_happens() -> None:
    disk = new_disk()
    seen: list[tuple[str, str, int]] = []
    disk.on_operation = lambda operation, path: seen.append((operation, path, len(disk.files())))
    disk.make_directory("/data/x")
    disk.write_file(PATH, b"abc", sync=True)
    disk.map_file(PATH)
    disk.rename(PATH, "/data/b")
    disk.lock_directory(DIRECTORY)
    assert seen == [
        ("make_directory", "/data/x", 0),
        ("create", PATH, 0),
        ("truncate", PATH, 1),
        ("write_at", PATH, 1),
        ("sync", PATH, 1),
        ("map_file", PATH, 1),
        ("rename", PATH, 1),
        ("lock_directory", DIRECTORY, 1),
        ("create", "/data/.lock", 1),
    ]


def test_a_fault_hits_the_operation_and_path_it_names() -> None:
    disk = new_disk()
    disk.fail_next("write_at", "b", DiskFull("no room"), partial=2, times=2)
    disk.write_file(PATH, b"abc")
    for _ in range(2):
        with pytest.raises(DiskFull, match="no room"):
            disk.write_file("/data/b", b"abc")
        assert disk.read_file("/data/b") == b"ab"
    disk.write_file("/data/b", b"abc")
    assert disk.read_file("/data/b") == b"abc"


@pytest.mark.parametrize(
    "operation", ["read_file", "rename", "remove", "sync_directory", "exists", "map_file"]
)
def test_a_failed_operation_has_no_effect(operation: str) -> None:
    disk = new_disk()
    synced_file(disk, b"abc")
    disk.fail_next(operation)
    arguments = {"rename": (PATH, "/data/b"), "sync_directory": (DIRECTORY,)}.get(operation, (PATH,))
    with pytest.raises(DiskFailed, match="simulated"):
        getattr(disk, operation)(*arguments)
    assert state(disk) == {PATH: b"abc"}
    getattr(disk, operation)(*arguments)


def test_faults_can_be_called_off() -> None:
    disk = new_disk()
    disk.fail_next("read_file")
    disk.clear_faults()
    synced_file(disk, b"abc")
    assert content(disk) == b"abc"


@pytest.mark.parametrize("bit", [0, 7, 8, 23])
def test_a_rotten_bit_stays_rotten(bit: int) -> None:
    disk = new_disk()
    synced_file(disk, b"abc")
    rotten = (int.from_bytes(b"abc", "little") ^ 1 << bit).to_bytes(3, "little")
    clone = disk.clone()
    disk.flip_bit(PATH, bit)
    assert content(disk) == rotten
    assert after_power_cut(disk, content) == {rotten}
    assert content(clone) == b"abc"
    disk.flip_bit(PATH, bit)
    assert content(disk) == b"abc"


# --- room ---


def test_a_full_disk_takes_what_fits_and_says_so() -> None:
    disk = new_disk(capacity=10)
    file = disk.open(PATH, create=True)
    file.write_at(b"0123456", 0)
    with pytest.raises(DiskFull, match="No space left"):
        file.write_at(b"789ab", 7)
    assert content(disk) == b"0123456789"
    assert (disk.used_bytes(), disk.free_bytes(DIRECTORY)) == (10, 0)
    file.write_at(b"over", 3)
    with pytest.raises(DiskFull):
        file.write_at(b"x", 10)
    file.truncate(7)
    assert disk.used_bytes() == 7
    file.write_at(b"abc", 7)
    assert content(disk) == b"012overabc"
    disk.capacity = None
    file.write_at(b"more", 10)
    assert disk.free_bytes(DIRECTORY) > 2**40


def test_holes_take_no_room_until_they_are_written() -> None:
    disk = new_disk(capacity=10)
    file = disk.open(PATH, create=True)
    file.truncate(100)
    assert disk.used_bytes() == 0
    file.write_at(b"0123456789", 0)
    with pytest.raises(DiskFull):
        file.write_at(b"x", 50)
    assert content(disk) == b"0123456789" + bytes(90)


def test_a_removed_file_keeps_its_room_while_it_is_open() -> None:
    disk = new_disk(capacity=10)
    file = synced_file(disk, b"0123456789")
    disk.remove(PATH)
    disk.sync_directory(DIRECTORY)
    with pytest.raises(DiskFull):
        disk.write_file("/data/b", b"x")
    file.close()
    disk.write_file("/data/b", b"0123456789")
    disk.write_file("/other/c", b"")
    disk.rename("/other/c", "/data/b")
    assert disk.free_bytes(DIRECTORY) == 10


def test_a_file_of_a_dead_process_gives_up_its_room() -> None:
    disk = new_disk(capacity=10)
    synced_file(disk, b"0123456789")
    disk.remove(PATH)
    disk.crash_process()
    assert disk.free_bytes(DIRECTORY) == 10


def test_lost_bytes_take_no_room() -> None:
    disk = new_disk()
    synced_file(disk, b"0123").write_at(b"456789", 4)
    for size, used in after_power_cut(disk, lambda crashed: (len(content(crashed)), crashed.used_bytes())):
        assert used == size


def test_a_power_cut_frees_what_a_forgotten_process_had_open() -> None:
    disk = new_disk(capacity=10)
    synced_file(disk.new_process(), b"0123456789")
    disk.remove(PATH)
    disk.sync_directory(DIRECTORY)
    gc.collect()
    assert disk.free_bytes(DIRECTORY) == 0
    disk.crash_machine(Random(0))
    assert disk.free_bytes(DIRECTORY) == 10


def test_the_lock_does_without_room_for_its_holder() -> None:
    disk = new_disk(capacity=0)
    disk.lock_directory(DIRECTORY)
    with pytest.raises(DirectoryLocked, match="process unknown"):
        disk.lock_directory(DIRECTORY)


def test_missing_files_say_which_and_why() -> None:
    with pytest.raises(FileNotFoundError) as caught:
        new_disk().read_file(PATH)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOENT, PATH)
