"""What every `Disk` promises, checked on the real one and on its faulty twin; and `LocalDisk`'s errors.

A promise that only one of the two kept would let a test pass that the real file system fails.
"""

import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.errors import DirectoryLocked, DiskBusy, DiskError, DiskFailed, DiskFull, DiskReadOnly
from raylog.storage.disk.disk import Disk, DiskFile
from raylog.storage.disk.local_disk import LocalDisk
from raylog.storage.format.record_batch import Bytes
from tests.simulator.world.faulty_disk import FaultyDisk


class Place(NamedTuple):
    disk: Disk
    root: str

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def put(self, name: str, data: bytes) -> str:
        self.disk.write_file(self.path(name), data)
        return self.path(name)


@pytest.fixture(params=["local", "faulty"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "local":
        return Place(LocalDisk(), str(tmp_path))
    disk = FaultyDisk()
    disk.make_directory("/data")
    return Place(disk, "/data")


# --- the contract: files ----------------------------------------------------------------------------------


def test_what_is_written_is_read(place: Place) -> None:
    file = place.disk.open(place.path("a"), create=True)
    file.write_at(b"hello world", 0)
    file.write_at(b"W", 6)
    assert file.path == place.path("a")
    assert file.size() == 11
    assert file.read_at(11, 0) == b"hello World"
    assert file.read_at(3, 6) == b"Wor"
    file.close()


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_kind_of_bytes_can_be_written(place: Place, kind: Callable[[bytes], Bytes]) -> None:
    file = place.disk.open(place.path("a"), create=True)
    data = kind(b"some bytes")
    file.write_at(data, 0)
    file.write_at(memoryview(data)[5:], 10)
    assert file.read_at(100, 0) == b"some bytesbytes"
    assert bytes(data) == b"some bytes"
    file.close()


def test_a_written_buffer_may_be_used_again(place: Place) -> None:
    file = place.disk.open(place.path("a"), create=True)
    data = bytearray(b"first")
    file.write_at(data, 0)
    data[:] = b"other"
    assert file.read_at(5, 0) == b"first"
    file.close()


def test_reading_is_short_only_at_the_end(place: Place) -> None:
    file = place.disk.open(place.put("a", b"0123456789"))
    assert file.read_at(20, 4) == b"456789"
    assert file.read_at(5, 10) == b""
    assert file.read_at(5, 1000) == b""
    assert file.read_at(0, 3) == b""
    file.close()


def test_writing_nothing_changes_nothing(place: Place) -> None:
    file = place.disk.open(place.put("a", b"abc"))
    file.write_at(b"", 100)
    assert file.size() == 3
    file.close()


def test_a_hole_reads_as_zeros(place: Place) -> None:
    file = place.disk.open(place.put("a", b"abc"))
    file.write_at(b"xyz", 6)
    assert file.read_at(100, 0) == b"abc\0\0\0xyz"
    file.close()


def test_a_write_across_the_end_grows_the_file(place: Place) -> None:
    file = place.disk.open(place.put("a", b"abcdef"))
    file.write_at(b"12345", 4)
    assert file.read_at(100, 0) == b"abcd12345"
    file.close()


def test_truncating_cuts_and_extends_with_zeros(place: Place) -> None:
    file = place.disk.open(place.put("a", b"0123456789"))
    file.truncate(4)
    assert (file.size(), file.read_at(100, 0)) == (4, b"0123")
    file.truncate(6)
    assert (file.size(), file.read_at(100, 0)) == (6, b"0123\0\0")
    file.truncate(0)
    assert (file.size(), file.read_at(100, 0)) == (0, b"")
    file.close()


def test_two_openings_see_the_same_bytes(place: Place) -> None:
    one = place.disk.open(place.path("a"), create=True)
    other = place.disk.open(place.path("a"), create=True)
    one.write_at(b"abc", 0)
    assert other.read_at(3, 0) == b"abc"
    assert one.inode() == other.inode()
    one.close()
    assert other.read_at(3, 0) == b"abc"
    other.close()


def test_syncing_changes_nothing_one_can_read(place: Place) -> None:
    file = place.disk.open(place.put("a", b"abc"))
    file.sync()
    assert file.read_at(3, 0) == b"abc"
    file.close()
    place.disk.sync_directory(place.root)
    assert place.disk.list_directory(place.root) == ["a"]


def test_another_thread_may_sync(place: Place) -> None:
    file = place.disk.open(place.put("a", b"abc"))
    with ThreadPoolExecutor(1) as threads:
        threads.submit(file.sync).result()
    file.close()


def test_closing_twice_is_fine(place: Place) -> None:
    file = place.disk.open(place.put("a", b""))
    file.close()
    file.close()


@pytest.mark.parametrize("use", ["read_at", "write_at", "truncate"])
def test_negative_positions_are_refused(place: Place, use: str) -> None:
    file = place.disk.open(place.put("a", b"abc"))
    arguments = {"read_at": (1, -1), "write_at": (b"x", -1), "truncate": (-1,)}[use]
    with pytest.raises(DiskFailed):
        getattr(file, use)(*arguments)
    assert file.read_at(3, 0) == b"abc"
    file.close()


def test_whole_files(place: Place) -> None:
    path = place.put("a", b"a longer content")
    assert place.disk.read_file(path) == b"a longer content"
    place.disk.write_file(path, b"short", sync=True)
    assert place.disk.read_file(path) == b"short"
    place.disk.write_file(path, b"")
    assert place.disk.read_file(path) == b""


def test_a_mapped_file_is_read_only_bytes(place: Place) -> None:
    path = place.put("a", b"0123456789")
    mapped = memoryview(place.disk.map_file(path))
    assert mapped.readonly
    assert (len(mapped), mapped.itemsize) == (10, 1)
    assert bytes(mapped[2:5]) == b"234"
    place.disk.remove(path)
    assert bytes(mapped) == b"0123456789"


def test_an_empty_file_can_be_mapped(place: Place) -> None:
    assert bytes(place.disk.map_file(place.put("a", b""))) == b""


# --- the contract: names ----------------------------------------------------------------------------------


@pytest.mark.parametrize("use", ["open", "read_file", "map_file", "list_directory", "sync_directory"])
def test_what_is_missing_is_reported_as_missing(place: Place, use: str) -> None:
    for path in (place.path("missing"), place.path("missing/below")):
        with pytest.raises(FileNotFoundError):
            getattr(place.disk, use)(path)


def test_nothing_can_be_made_in_a_missing_directory(place: Place) -> None:
    path = place.put("a", b"")
    with pytest.raises(FileNotFoundError):
        place.disk.open(place.path("missing/a"), create=True)
    with pytest.raises(FileNotFoundError):
        place.disk.write_file(place.path("missing/a"), b"")
    with pytest.raises(FileNotFoundError):
        place.disk.rename(path, place.path("missing/a"))
    with pytest.raises(FileNotFoundError):
        place.disk.lock_directory(place.path("missing"))
    with pytest.raises(FileNotFoundError):
        place.disk.free_bytes(place.path("missing"))


def test_a_file_is_no_directory_nor_the_other_way_round(place: Place) -> None:
    file, directory = place.put("file", b""), place.path("directory")
    place.disk.make_directory(directory)
    calls: list[Callable[[], object]] = [
        lambda: place.disk.open(directory),
        lambda: place.disk.open(f"{file}/below", create=True),
        lambda: place.disk.read_file(directory),
        lambda: place.disk.read_file(f"{file}/below"),
        lambda: place.disk.remove(directory),
        lambda: place.disk.rename(file, directory),
        lambda: place.disk.rename(directory, file),
        lambda: place.disk.rename(directory, f"{directory}/below"),
        lambda: place.disk.list_directory(file),
        lambda: place.disk.sync_directory(file),
        lambda: place.disk.make_directory(file),
        lambda: place.disk.make_directory(f"{file}/below"),
    ]
    for call in calls:
        with pytest.raises(DiskError):
            call()
    assert place.disk.list_directory(place.root) == ["directory", "file"]


def test_opening_to_create_keeps_what_is_there(place: Place) -> None:
    file = place.disk.open(place.put("a", b"abc"), create=True)
    assert file.read_at(3, 0) == b"abc"
    file.close()


def test_existence(place: Place) -> None:
    path = place.put("a", b"")
    assert place.disk.exists(path)
    assert place.disk.exists(place.root)
    assert not place.disk.exists(place.path("b"))
    assert not place.disk.exists(place.path("missing/a"))
    assert not place.disk.exists(f"{path}/below")


def test_listing_gives_sorted_names_of_direct_children(place: Place) -> None:
    for name in ("b", "c", "a"):
        place.put(name, b"")
    place.disk.make_directory(place.path("aa/below"))
    assert place.disk.list_directory(place.root) == ["a", "aa", "b", "c"]
    assert place.disk.list_directory(place.path("aa")) == ["below"]
    assert place.disk.list_directory(place.path("aa/below")) == []


def test_directories_are_made_with_their_parents_and_may_exist(place: Place) -> None:
    place.disk.make_directory(place.path("x/y/z"))
    place.put("x/y/z/a", b"abc")
    place.disk.make_directory(place.path("x/y/z"))
    assert place.disk.read_file(place.path("x/y/z/a")) == b"abc"


def test_a_rename_keeps_file_and_inode_and_replaces_the_target(place: Place) -> None:
    source, target = place.put("new", b"new"), place.put("old", b"old")
    reader, file = place.disk.open(target), place.disk.open(source)
    inode = file.inode()
    assert inode != reader.inode()
    place.disk.rename(source, target)
    assert place.disk.list_directory(place.root) == ["old"]
    assert place.disk.read_file(target) == b"new"
    assert reader.read_at(3, 0) == b"old"
    file.write_at(b"N", 0)
    again = place.disk.open(target)
    assert (again.inode(), again.read_at(3, 0)) == (inode, b"New")
    for opened in (reader, file, again):
        opened.close()


def test_a_rename_moves_between_directories(place: Place) -> None:
    place.disk.make_directory(place.path("x"))
    place.disk.rename(place.put("a", b"abc"), place.path("x/b"))
    assert place.disk.list_directory(place.root) == ["x"]
    assert place.disk.read_file(place.path("x/b")) == b"abc"


def test_a_rename_onto_itself_changes_nothing(place: Place) -> None:
    path = place.put("a", b"abc")
    place.disk.rename(path, path)
    assert place.disk.read_file(path) == b"abc"


def test_renaming_what_is_missing_leaves_the_target(place: Place) -> None:
    target = place.put("a", b"abc")
    with pytest.raises(FileNotFoundError):
        place.disk.rename(place.path("missing"), target)
    assert place.disk.read_file(target) == b"abc"


def test_a_directory_is_renamed_with_what_is_in_it(place: Place) -> None:
    place.disk.make_directory(place.path("x/y"))
    place.put("x/y/a", b"abc")
    place.disk.rename(place.path("x"), place.path("z"))
    assert place.disk.read_file(place.path("z/y/a")) == b"abc"
    assert not place.disk.exists(place.path("x"))


def test_a_directory_is_renamed_over_an_empty_one_only(place: Place) -> None:
    for name in ("x", "full", "empty"):
        place.disk.make_directory(place.path(name))
    place.put("full/a", b"")
    with pytest.raises(DiskError):
        place.disk.rename(place.path("x"), place.path("full"))
    place.disk.rename(place.path("full"), place.path("empty"))
    assert place.disk.list_directory(place.path("empty")) == ["a"]


def test_a_second_name_stands_for_the_same_bytes(place: Place) -> None:
    disk, path = place.disk, place.path
    disk.write_file(path("one"), b"before")
    disk.link(path("one"), path("two"))
    file = disk.open(path("one"))
    assert file.links() == 2
    file.write_at(b"AFTER!", 0)
    assert disk.read_file(path("two")) == b"AFTER!"
    disk.remove(path("one"))
    assert file.links() == 1
    file.close()
    assert disk.read_file(path("two")) == b"AFTER!"
    with pytest.raises(FileNotFoundError):
        disk.link(path("one"), path("three"))
    disk.write_file(path("three"), b"is there")
    with pytest.raises(DiskFailed):
        disk.link(path("two"), path("three"))


def test_where_there_are_no_second_names_a_file_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: str, target: str) -> None:
        raise PermissionError(errno.EPERM, "this file system knows none")

    monkeypatch.setattr(os, "link", refuse)
    (tmp_path / "one").write_bytes(b"bytes")
    LocalDisk().link(str(tmp_path / "one"), str(tmp_path / "two"))
    (tmp_path / "one").write_bytes(b"other")
    assert (tmp_path / "two").read_bytes() == b"bytes"


def test_removing(place: Place) -> None:
    path = place.put("a", b"abc")
    file = place.disk.open(path)
    place.disk.remove(path)
    assert not place.disk.exists(path)
    assert file.read_at(3, 0) == b"abc"
    place.disk.remove(path)
    place.disk.remove(place.path("missing/a"))
    again = place.disk.open(path, create=True)
    assert again.size() == 0
    assert again.inode() != file.inode()
    file.close()
    again.close()


def test_removing_a_directory(place: Place) -> None:
    place.disk.make_directory(place.path("d"))
    place.put("d/a", b"data")
    with pytest.raises(DiskError):
        place.disk.remove_directory(place.path("d"))
    place.disk.remove(place.path("d/a"))
    place.disk.remove_directory(place.path("d"))
    assert not place.disk.exists(place.path("d"))
    place.disk.remove_directory(place.path("d"))


def test_there_is_room_and_a_boot_id_that_stays(place: Place) -> None:
    assert place.disk.free_bytes(place.root) > 0
    assert place.disk.boot_id()
    assert place.disk.boot_id() == place.disk.boot_id()


# --- the contract: locks ----------------------------------------------------------------------------------


def test_a_directory_has_one_owner_at_a_time(place: Place) -> None:
    lock = place.disk.lock_directory(place.root)
    assert place.disk.list_directory(place.root) == [".lock"]
    holder = place.disk.read_file(place.path(".lock")).decode().strip()
    assert holder.startswith("pid ")
    with pytest.raises(DirectoryLocked, match=holder) as caught:
        place.disk.lock_directory(place.root)
    assert (caught.value.path, caught.value.holder) == (place.root, holder)
    lock.release()
    lock.release()
    place.disk.lock_directory(place.root).release()


def test_releasing_twice_does_not_free_the_next_owner(place: Place) -> None:
    lock = place.disk.lock_directory(place.root)
    lock.release()
    later = place.disk.lock_directory(place.root)
    lock.release()
    with pytest.raises(DirectoryLocked):
        place.disk.lock_directory(place.root)
    later.release()


def test_each_directory_has_its_own_lock(place: Place) -> None:
    place.disk.make_directory(place.path("x"))
    locks = [place.disk.lock_directory(place.root), place.disk.lock_directory(place.path("x"))]
    for lock in locks:
        lock.release()


def test_a_lock_follows_its_directory(place: Place) -> None:
    place.disk.make_directory(place.path("x"))
    lock = place.disk.lock_directory(place.path("x"))
    place.disk.rename(place.path("x"), place.path("y"))
    with pytest.raises(DirectoryLocked):
        place.disk.lock_directory(place.path("y"))
    lock.release()


def test_an_unreadable_holder_is_unknown(place: Place) -> None:
    lock = place.disk.lock_directory(place.root)
    place.put(".lock", b"")
    with pytest.raises(DirectoryLocked, match="process unknown"):
        place.disk.lock_directory(place.root)
    lock.release()


HOLD_A_LOCK = """
import sys
from raylog.storage.disk.local_disk import LocalDisk
lock = LocalDisk().lock_directory(sys.argv[1])
print("locked", flush=True)
sys.stdin.read()
"""


def test_the_lock_of_another_process_holds_until_it_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD_A_LOCK, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "locked\n"
            with pytest.raises(DirectoryLocked, match=f"pid {holder.pid}") as caught:
                LocalDisk().lock_directory(str(tmp_path))
            assert caught.value.holder == f"pid {holder.pid}"
        finally:
            holder.send_signal(signal.SIGKILL)
            holder.wait()
        LocalDisk().lock_directory(str(tmp_path)).release()


# --- the contract: at random ------------------------------------------------------------------------------

PATHS = st.sampled_from(["a", "b", "x", "x/a", "x/y", "x/y/a", "b/a"])
NUMBERS = st.integers(0, 9_000)
CALLS = st.one_of(
    st.tuples(
        st.sampled_from(["exists", "list_directory", "make_directory", "sync_directory"]),
        st.tuples(PATHS | st.just(".")),
    ),
    st.tuples(st.sampled_from(["read_file", "map_file", "remove"]), st.tuples(PATHS)),
    st.tuples(st.just("rename"), st.tuples(PATHS, PATHS)),
    st.tuples(st.sampled_from(["write_file", "write_at", "truncate"]), st.tuples(PATHS, NUMBERS)),
)


def outcome(disk: Disk, root: str, call: str, arguments: tuple[object, ...]) -> object:
    """What the call returned, or the type of error it raised."""
    path = f"{root}/{arguments[0]}"
    try:
        if call in ("write_at", "truncate"):
            return change_open_file(disk.open(path), call, arguments)
        if call == "rename":
            disk.rename(path, f"{root}/{arguments[1]}")
        elif call == "write_file":
            disk.write_file(path, f"{arguments}".encode())
        elif call == "map_file":
            return bytes(disk.map_file(path))
        else:
            return getattr(disk, call)(path)
        return None
    except (DiskError, FileNotFoundError) as error:
        return type(error)


def change_open_file(file: DiskFile, call: str, arguments: tuple[object, ...]) -> object:
    number = int(str(arguments[1]))
    if call == "truncate":
        file.truncate(number)
    else:
        file.write_at(b"data", number)
    seen = file.size(), file.read_at(10_000, 0)
    file.close()
    return seen


@given(calls=st.lists(CALLS, max_size=30))
def test_both_disks_answer_the_same(calls: list[tuple[str, tuple[object, ...]]]) -> None:
    with TemporaryDirectory() as root:
        faulty, local = FaultyDisk(), LocalDisk()
        faulty.make_directory(root)
        for call, arguments in calls:
            expected = outcome(local, root, call, arguments)
            assert outcome(faulty, root, call, arguments) == expected, (call, arguments)


# --- how LocalDisk reports errors -------------------------------------------------------------------------

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NOT_ALLOWED = (errno.EACCES, errno.EPERM)
ERRORS = [
    *((code, DiskFull) for code in FULL),
    *((code, DiskReadOnly) for code in NOT_ALLOWED),
    (errno.EIO, DiskFailed),
    (errno.EROFS, DiskFailed),  # what an I/O error has made of the file system (rule 2)
    (errno.EMFILE, DiskBusy),
]


def failing(code: int) -> Callable[..., NoReturn]:
    def fail(*_arguments: object, **_options: object) -> NoReturn:
        raise OSError(code, os.strerror(code))

    return fail


@pytest.fixture
def path(tmp_path: Path) -> str:
    LocalDisk().write_file(str(tmp_path / "a"), b"abc")
    return str(tmp_path / "a")


@pytest.mark.parametrize(("code", "expected"), ERRORS)
@pytest.mark.parametrize(
    ("function", "use", "arguments"),
    [
        ("pwrite", "write_at", (b"xyz", 0)),
        ("pread", "read_at", (3, 0)),
        ("ftruncate", "truncate", (0,)),
        ("fstat", "size", ()),
        ("fstat", "inode", ()),
    ],
)
def test_errors_of_an_open_file_are_typed(
    path: str,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    expected: type[DiskError],
    function: str,
    use: str,
    arguments: tuple[object, ...],
) -> None:
    file = LocalDisk().open(path)
    with monkeypatch.context() as patch:
        patch.setattr(os, function, failing(code))
        with pytest.raises(expected) as caught:
            getattr(file, use)(*arguments)
    assert type(caught.value) is expected
    assert path in str(caught.value)
    assert os.strerror(code) in str(caught.value)
    assert file.read_at(10, 0) == b"abc"
    file.close()


@pytest.mark.parametrize(("code", "expected"), ERRORS)
@pytest.mark.parametrize(
    ("function", "use", "arguments"),
    [
        ("os.open", "open", ("a",)),
        ("os.open", "lock_directory", ("a",)),
        ("os.open", "map_file", ("a",)),
        ("os.open", "read_file", ("a",)),
        ("pathlib.Path.exists", "exists", ("a",)),
        ("pathlib.Path.mkdir", "make_directory", ("a",)),
        ("pathlib.Path.unlink", "remove", ("a",)),
        ("os.listdir", "list_directory", ("a",)),
        ("os.replace", "rename", ("a", "b")),
        ("os.statvfs", "free_bytes", ("a",)),
        ("fcntl.flock", "lock_directory", ("",)),
    ],
)
def test_errors_of_the_file_system_are_typed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    expected: type[DiskError],
    function: str,
    use: str,
    arguments: tuple[str, ...],
) -> None:
    paths = [str(tmp_path / name) for name in arguments]
    with monkeypatch.context() as patch:
        patch.setattr(function, failing(code))
        with pytest.raises(expected) as caught:
            getattr(LocalDisk(), use)(*paths)
    assert type(caught.value) is expected
    assert paths[0] in str(caught.value)


def test_a_short_write_is_gone_on_with(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real, lengths = os.pwrite, iter((3, 1, 2, 100))

    def short(fd: int, data: Bytes, position: int) -> int:
        return real(fd, memoryview(data)[: next(lengths)], position)

    file = LocalDisk().open(path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", short)
        file.write_at(b"0123456789", 1)
    assert file.read_at(100, 0) == b"a0123456789"
    file.close()


def test_a_disk_that_fills_up_within_a_write_is_full(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real, room = os.pwrite, iter((4,))

    def nearly_full(fd: int, data: Bytes, position: int) -> int:
        fitting = next(room, 0)
        return real(fd, memoryview(data)[:fitting], position) if fitting else failing(errno.ENOSPC)()

    file = LocalDisk().open(path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", nearly_full)
        with pytest.raises(DiskFull):
            file.write_at(b"0123456789", 0)
    assert file.read_at(100, 0) == b"0123"
    file.close()


def test_a_short_read_is_gone_on_with(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pread
    file = LocalDisk().open(path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", lambda fd, length, position: real(fd, min(length, 2), position))
        assert file.read_at(3, 0) == b"abc"
        assert file.read_at(100, 1) == b"bc"
    file.close()


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS syncs by fcntl")
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_failed_sync_is_a_failed_disk_whatever_the_reason(
    path: str, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    file = LocalDisk().open(path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", failing(code))
        with pytest.raises(DiskFailed, match="Syncing"):
            file.sync()
        with pytest.raises(DiskFailed, match="Syncing"):
            LocalDisk().write_file(path, b"new", sync=True)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing(code))
        with pytest.raises(DiskFailed, match="Syncing directory"):
            LocalDisk().sync_directory(str(Path(path).parent))
    file.close()


def open_descriptors() -> int:
    return len(os.listdir("/dev/fd"))


@pytest.mark.parametrize("function", ["pwrite", "ftruncate"])
def test_a_full_disk_does_not_keep_a_directory_from_being_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, function, failing(errno.ENOSPC))
        lock = LocalDisk().lock_directory(str(tmp_path))
    with pytest.raises(DirectoryLocked):
        LocalDisk().lock_directory(str(tmp_path))
    lock.release()


def test_an_unreadable_lock_file_is_still_reported_as_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = LocalDisk().lock_directory(str(tmp_path))
    monkeypatch.setattr(os, "pread", failing(errno.EIO))
    with pytest.raises(DirectoryLocked, match="process unknown"):
        LocalDisk().lock_directory(str(tmp_path))
    lock.release()


def test_no_failure_leaks_a_file_descriptor(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = str(Path(path).parent)
    lock = LocalDisk().lock_directory(directory)
    before = open_descriptors()
    with pytest.raises(DirectoryLocked):
        LocalDisk().lock_directory(directory)
    calls: list[tuple[str, Callable[[], object]]] = [
        ("fcntl.flock", lambda: LocalDisk().lock_directory(directory)),
        ("os.fsync", lambda: LocalDisk().sync_directory(directory)),
        ("os.pwrite", lambda: LocalDisk().write_file(path, b"abc")),
        ("os.ftruncate", lambda: LocalDisk().write_file(path, b"abc")),
    ]
    for target, call in calls:
        with monkeypatch.context() as patch:
            patch.setattr(target, failing(errno.EIO))
            with pytest.raises(DiskFailed):
                call()
    assert open_descriptors() == before
    lock.release()


def test_a_failed_close_is_not_tried_again(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The descriptor is free after close(2) fails, so a second try could close another thread's file."""
    file = LocalDisk().open(path)
    real, closed = os.close, list[int]()

    def close(fd: int) -> NoReturn:
        closed.append(fd)
        real(fd)
        failing(errno.EIO)()

    with monkeypatch.context() as patch:
        patch.setattr(os, "close", close)
        with pytest.raises(DiskFailed, match="Closing"):
            file.close()
        file.close()
    assert len(closed) == 1


def test_a_child_does_not_inherit_files_or_locks(path: str) -> None:
    file, lock = LocalDisk().open(path), LocalDisk().lock_directory(str(Path(path).parent))
    for held in (file, lock):
        assert fcntl.fcntl(held._fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    file.close()
    lock.release()


# --- whose it is ------------------------------------------------------------------------------------------


@pytest.fixture
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("usual_umask")
def test_what_is_made_is_its_owners_alone(tmp_path: Path) -> None:
    disk = LocalDisk()
    directory = tmp_path / "data" / "broker-0" / "clicks-0"
    disk.make_directory(str(directory))
    disk.open(str(directory / "log"), create=True).close()
    disk.write_file(str(directory / "checkpoint"), b"x")
    disk.lock_directory(str(directory)).release()
    assert [mode_of(each) for each in (directory, directory.parent, directory.parent.parent)] == [0o700] * 3
    assert {mode_of(each) for each in directory.iterdir()} == {0o600}
    assert len(list(directory.iterdir())) == 3


@pytest.mark.usefixtures("usual_umask")
def test_a_directory_that_others_could_enter_is_closed_to_them_when_it_is_locked(tmp_path: Path) -> None:
    directory = tmp_path / "broker-0"
    directory.mkdir()
    directory.chmod(0o2755)
    LocalDisk().lock_directory(str(directory)).release()
    assert mode_of(directory) == 0o2700


def test_a_directory_that_cannot_be_closed_to_others_is_told_and_used(
    path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    directory = Path(path).parent
    directory.chmod(0o755)
    monkeypatch.setattr(os, "chmod", failing(errno.EPERM))
    LocalDisk().lock_directory(str(directory)).release()
    assert f"{directory} is open to other users" in caplog.text


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has no such advice")
def test_what_is_dropped_from_the_cache_is_asked_for_by_place(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    advice: list[tuple[int, int, int]] = []
    file = LocalDisk().open(path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fadvise", lambda fd, position, length, kind: advice.append((position, length, kind)))
        file.drop_cached(2, 1)
    assert advice == [(1, 2, os.POSIX_FADV_DONTNEED)]
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fadvise", failing(errno.EINVAL))
        file.drop_cached(2, 1)
    file.drop_cached(2, 1)
    assert file.read_at(3, 0) == b"abc"
    file.close()
