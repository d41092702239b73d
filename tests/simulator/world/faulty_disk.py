"""A file system in memory that fails, tears and forgets: `LocalDisk`'s twin for unit tests and the simulator.

What survives which crash is said at the top of `crash_model.py`. What stays true here:
- A `FaultyDisk` is one process's view of one machine's file system; `new_process()` gives another process
  on it. A process crash takes that process's open files and locks and leaves the page cache. A machine
  crash takes every process, changes the boot id, and leaves of un-synced state what the seed decides.
- Same calls, same seed: same outcome. Nothing here reads a clock or draws a random number of its own.
- What a dead process left behind cannot touch the disk: its files raise `UsedAfterCrash`. Only `close` and
  `release` are let pass, because clean-up code runs them, and change nothing.
- Between `SimulatedCrash` and the call of `crash_process` or `crash_machine` every operation raises
  `SimulatedCrash`: the code under test is dead and merely being unwound.

Operations are named after the methods of `Disk` and `DiskFile`, and happen in the steps that `LocalDisk`
makes: `open` of a missing file is `create`; `write_file` is `create` or `open`, `truncate`, `write_at`,
perhaps `sync`; each missing parent is a `make_directory`; the first `lock_directory` of a directory is also
a `create`. Faults and the hook know a `rename` by its source. Operations that change anything, now or on the
disk, count in `operations`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

from raylog.errors import DirectoryLocked, DiskFailed, DiskFull
from raylog.storage.disk.open_files import OpenFiles
from raylog.storage.format.record_batch import Bytes
from tests.simulator.world.crash_model import FileImage, NameTree
from tests.simulator.world.file_system import FileSystem

Moment: TypeAlias = Literal["before", "midway", "after"]
MOMENTS: Final[tuple[Moment, ...]] = get_args(Moment)

_LOCK_NAME: Final = ".lock"
_MOST_IDLE: Final = 2  # so that files are closed and opened again all the time


class SimulatedCrash(BaseException):
    """The process dies here. Not an `Exception`: no handler in the code under test may outlive it."""


class UsedAfterCrash(AssertionError):
    """A file or lock of a process that died was used."""


class UsedAfterClose(AssertionError):
    """A closed file was used."""


@dataclass
class _Fault:
    operation: str
    path_contains: str
    error: BaseException
    partial: int
    times: int


class FaultyFile:
    """An open file of a `FaultyDisk`."""

    def __init__(self, disk: FaultyDisk, path: str, number: int, image: FileImage) -> None:
        self.path = path
        self.number = number
        self._disk = disk
        self._image = image
        self._state: Literal["open", "closed", "lost"] = "open"

    def write_at(self, data: Bytes, position: int) -> None:
        self._check_usable("write_at", position)

        def write(count: int) -> None:
            self._disk.write_image(self._image, self.path, memoryview(data)[:count], position)

        self._disk.observe("write_at", self.path, write)
        self._disk.apply("write_at", self.path, lambda: write(len(data)), write, len(data))

    def read_at(self, length: int, position: int) -> bytes:
        self._check_usable("read_at", min(length, position))
        self._disk.observe("read_at", self.path)
        return self._image.read(length, position)

    def drop_cached(self, length: int, position: int) -> None:
        """Do nothing: the cache and the disk have one content here."""
        self._check_usable("drop_cached", min(length, position))

    def size(self) -> int:
        self._check_usable("size")
        self._disk.observe("size", self.path)
        return len(self._image)

    def inode(self) -> int:
        self._check_usable("inode")
        self._disk.observe("inode", self.path)
        return self.number

    def links(self) -> int:
        self._check_usable("links")
        self._disk.observe("links", self.path)
        return self._disk.names_of(self.number)

    def truncate(self, length: int) -> None:
        self._check_usable("truncate", length)
        self._disk.change("truncate", self.path, lambda: self._image.truncate(length))

    def sync(self) -> None:
        self._check_usable("sync")
        try:
            self._disk.change("sync", self.path, self._image.sync)
        except Exception:
            self._image.fail_sync()
            raise

    def close(self) -> None:
        if self._state == "open":
            self._state = "closed"
            self._disk.forget(self)

    def lose(self) -> None:
        """The process that had it open is dead."""
        self._state = "lost"

    def _check_usable(self, operation: str, number: int = 0) -> None:
        if self._state == "lost":
            raise UsedAfterCrash(f"{operation}: {self.path} was opened by a process that has crashed since")
        if self._state == "closed":
            raise UsedAfterClose(f"{operation}: {self.path} is closed")
        if number < 0:
            raise DiskFailed(f"{operation} of {self.path}: {os.strerror(errno.EINVAL)}.")


class FaultyLock:
    """A held directory lock."""

    def __init__(self, locks: dict[int, object], number: int) -> None:
        self._locks = locks
        self._number = number
        locks[number] = self

    def release(self) -> None:
        if self._locks.get(self._number) is self:
            del self._locks[self._number]


class FaultyDisk:
    """A `Disk` in memory, with faults on request. See the top of this file."""

    def __init__(self, *, capacity: int | None = None, ordered_names: bool = True) -> None:
        self._start_on(FileSystem(NameTree(ordered=ordered_names), capacity))

    def _start_on(self, file_system: FileSystem) -> None:
        self._files = file_system
        self.pid = file_system.start_process()
        self.operations = 0
        self.on_operation: Callable[[str, str], None] | None = None
        self._faults: list[_Fault] = []
        self._open: set[FaultyFile] = set()
        self.open_files = OpenFiles(_MOST_IDLE)
        self._locks: list[FaultyLock] = []
        self._crash_at: int | None = None
        self._crash_moment: Moment = "before"
        self._crash_fraction = 0.5
        self._dying = False
        file_system.processes.add(self)

    def new_process(self) -> FaultyDisk:
        """Another process on the same machine: the same files, its own handles, locks and faults."""
        other = FaultyDisk.__new__(FaultyDisk)
        other._start_on(self._files)
        return other

    def clone(self) -> FaultyDisk:
        """The same files, synced and un-synced, on a machine of their own. Nobody has a file open there."""
        other = FaultyDisk.__new__(FaultyDisk)
        other._start_on(self._files.clone())
        return other

    # --- crashes ---

    def crash_process(self) -> None:
        """Kill this process. The page cache survives; this object goes on as the process's successor."""
        for file in self._open:
            file.lose()
            self._files.release(file.number)
        for lock in self._locks:
            lock.release()
        self._open = set()
        self.open_files = OpenFiles(_MOST_IDLE)
        self._locks = []
        self._crash_at = None
        self._dying = False
        self.pid = self._files.start_process()

    def crash_machine(self, rng: Random) -> None:
        """Cut the power: every process here dies, and `rng` decides what un-synced state survives."""
        self._files.crash(rng)

    def crash_after(self, count: int, moment: Moment = "before", *, fraction: float = 0.5) -> None:
        """Make the `count`-th operation from now raise `SimulatedCrash` before, midway in, or after it.

        Midway, a write has put that fraction of its bytes; any other operation is atomic, and not done.
        """
        self._crash_at = self.operations + count
        self._crash_moment = moment
        self._crash_fraction = fraction

    def sync_everything(self) -> None:
        """Sync all that was written, as if the machine had been left alone for long."""
        self._files.sync_everything()

    # --- faults ---

    def fail_next(
        self,
        operation: str,
        path_contains: str = "",
        error: BaseException | None = None,
        *,
        partial: int = 0,
        times: int = 1,
    ) -> None:
        """Make the next such operations fail, `write_at` after `partial` bytes. Default: an I/O error."""
        error = error or DiskFailed(
            f"{operation} of *{path_contains}*: {os.strerror(errno.EIO)} (simulated)."
        )
        self._faults.append(_Fault(operation, path_contains, error, partial, times))

    def clear_faults(self) -> None:
        self._faults.clear()

    @property
    def capacity(self) -> int | None:
        """Bytes that all files together may take; None for no limit."""
        return self._files.capacity

    @capacity.setter
    def capacity(self, capacity: int | None) -> None:
        self._files.capacity = capacity

    def used_bytes(self) -> int:
        """Bytes taken now, by files that have a name or are open."""
        return self._files.used_bytes()

    def files(self) -> dict[str, int]:
        """Path and size of every file."""
        return {path: len(self._files.images[number]) for path, number in self._files.names.files()}

    def flip_bit(self, path: str, bit_index: int) -> None:
        """Let one bit rot, in the cache and on the disk."""
        self._files.images[self._files.file(path, "Flipping a bit of")].flip_bit(bit_index)

    # --- the gates every operation passes ---

    def observe(self, operation: str, path: str, apply_part: Callable[[int], None] | None = None) -> None:
        """Gate of every operation: the caller has to be alive, and may be made to fail."""
        self._check_alive(operation, path)
        if self.on_operation is not None:
            self.on_operation(operation, path)
        if self._faults:
            self._raise_fault(operation, path, apply_part)

    def apply(
        self,
        operation: str,
        path: str,
        effect: Callable[[], None],
        apply_part: Callable[[int], None] | None = None,
        size: int = 0,
    ) -> None:
        """Gate of an effect: counted, and perhaps the last. `apply_part` does so many of `size` bytes."""
        self.operations += 1
        if self.operations != self._crash_at:
            effect()
            return
        self._dying = True
        if self._crash_moment == "after":
            effect()
        elif self._crash_moment == "midway" and apply_part is not None:
            apply_part(int(size * self._crash_fraction))
        self._check_alive(operation, path)

    def change(self, operation: str, path: str, effect: Callable[[], None]) -> None:
        """Both gates."""
        self.observe(operation, path)
        self.apply(operation, path, effect)

    def _check_alive(self, operation: str, path: str) -> None:
        if self._dying:
            raise SimulatedCrash(f"{operation} {path} (operation {self.operations})")

    def _raise_fault(self, operation: str, path: str, apply_part: Callable[[int], None] | None) -> None:
        for fault in self._faults:
            if fault.operation == operation and fault.path_contains in path:
                fault.times -= 1
                if fault.times == 0:
                    self._faults.remove(fault)
                if fault.partial and apply_part is not None:
                    apply_part(fault.partial)
                raise fault.error

    def write_image(self, image: FileImage, path: str, data: memoryview, position: int) -> None:
        """Write what there is room for; `DiskFull` if that is not all."""
        if self._files.capacity is None:
            image.write(data, position)
            return
        room = max(0, image.allocated + self._files.free_bytes() - position)
        image.write(data[:room], position)
        if room < len(data):
            raise DiskFull(f"Writing {path}: {os.strerror(errno.ENOSPC)}.")

    def names_of(self, number: int) -> int:
        """Return how many names a file has."""
        return sum(each == number for _, each in self._files.names.files())

    def forget(self, file: FaultyFile) -> None:
        """The file was closed."""
        self._open.remove(file)
        self._files.release(file.number)

    # --- Disk ---

    def open(self, path: str, *, create: bool = False) -> FaultyFile:
        self._check_alive("open", path)
        if create and self._files.lookup(path) is None:
            self.change("create", path, lambda: self._files.create(path))
        else:
            self.observe("open", path)
        number = self._files.file(path, "Opening")
        file = FaultyFile(self, path, number, self._files.acquire(number))
        self._open.add(file)
        return file

    def read_file(self, path: str) -> bytes:
        self.observe("read_file", path)
        return self._files.images[self._files.file(path, "Reading")].snapshot()

    def write_file(self, path: str, data: Bytes, *, sync: bool = False) -> None:
        file = self.open(path, create=True)
        try:
            file.truncate(0)
            file.write_at(data, 0)
            if sync:
                file.sync()
        finally:
            file.close()

    def map_file(self, path: str) -> memoryview:
        """A snapshot: later writes do not show in it, so whoever relies on seeing them is found out."""
        self.observe("map_file", path)
        return memoryview(self._files.images[self._files.file(path, "Mapping")].snapshot())

    def exists(self, path: str) -> bool:
        self.observe("exists", path)
        try:
            return self._files.lookup(path) is not None
        except (FileNotFoundError, DiskFailed):  # a parent is missing, or is a file
            return False

    def list_directory(self, path: str) -> list[str]:
        self.observe("list_directory", path)
        return sorted(self._files.names.children(self._files.directory(path, "Listing")))

    def make_directory(self, path: str) -> None:
        self._check_alive("make_directory", path)
        missing = self._files.missing_directories(path)
        if not missing:
            self.observe("make_directory", path)
        for directory in missing:
            self.change("make_directory", directory, partial(self._files.make_directory, directory))

    def rename(self, source: str, target: str) -> None:
        self.observe("rename", source)
        places = self._files.check_rename(source, target)
        self.apply("rename", source, lambda: self._files.names.rename(*places))

    def link(self, source: str, target: str) -> None:
        self.observe("link", source)
        number, place = self._files.file(source, "Linking"), self._files.locate(target)
        if self._files.lookup(target) is not None:
            raise DiskFailed(f"Linking {source} to {target}: {os.strerror(errno.EEXIST)}.")
        self.apply("link", source, lambda: self._files.names.add(place, number))

    def remove(self, path: str) -> None:
        self.observe("remove", path)
        try:
            self._files.file(path, "Removing")
        except FileNotFoundError:
            return
        place = self._files.locate(path)
        self.apply("remove", path, lambda: self._files.names.remove(place))

    def remove_directory(self, path: str) -> None:
        self.observe("remove_directory", path)
        try:
            number = self._files.directory(path, "Removing directory")
        except FileNotFoundError:
            return
        self._files.check_empty(number, path)
        place = self._files.locate(path)
        self.apply("remove_directory", path, lambda: self._files.names.remove(place))

    def sync_directory(self, path: str) -> None:
        self.observe("sync_directory", path)
        number = self._files.directory(path, "Syncing directory")
        self.apply("sync_directory", path, lambda: self._files.names.sync(number))
        self._files.forget_unnamed()

    def lock_directory(self, path: str) -> FaultyLock:
        self.observe("lock_directory", path)
        self._files.directory(path, "Locking")
        lock_path = f"{path.rstrip('/')}/{_LOCK_NAME}"
        if self._files.lookup(lock_path) is None:
            self.change("create", lock_path, lambda: self._files.create(lock_path))
        number = self._files.file(lock_path, "Locking")
        image = self._files.images[number]
        if number in self._files.locks:
            holder = image.snapshot().decode(errors="replace").strip()
            raise DirectoryLocked(path, holder or "process unknown")
        self._sign(image)
        lock = FaultyLock(self._files.locks, number)
        self._locks.append(lock)
        return lock

    def _sign(self, image: FileImage) -> None:
        """Leave the process id for whoever finds the directory locked. On a full disk it stays out."""
        image.truncate(0)
        signature = f"pid {self.pid}\n".encode()
        if self._files.free_bytes() >= len(signature):
            image.write(signature, 0)

    def free_bytes(self, path: str) -> int:
        self.observe("free_bytes", path)
        self._files.existing(path)
        return self._files.free_bytes()

    def total_bytes(self, path: str) -> int:
        self.observe("total_bytes", path)
        self._files.existing(path)
        return self._files.total_bytes()

    def boot_id(self) -> str:
        self.observe("boot_id", "")
        return f"boot-{self._files.boots}"


class CrashPoint(NamedTuple):
    """A disk whose process died in the middle of something. Its machine still runs: crash it, or do not."""

    disk: FaultyDisk
    operation: int
    moment: Moment


def crash_points(start: FaultyDisk, scenario: Callable[[FaultyDisk], object]) -> Iterator[CrashPoint]:
    """Run `scenario` on a clone of `start` once per operation it makes and per moment, killed there."""
    rehearsal = start.clone()
    scenario(rehearsal)
    for operation in range(1, rehearsal.operations + 1):
        for moment in MOMENTS:
            disk = start.clone()
            disk.crash_after(operation, moment)
            try:
                scenario(disk)
            except SimulatedCrash:
                disk.crash_process()
                yield CrashPoint(disk, operation, moment)
            else:
                raise AssertionError(f"the scenario made fewer than {operation} operations this time")
