"""One machine's files in memory: which bytes a path stands for, who has them open, how much room they take.

What stays true here: a file that lost its name keeps its bytes, and its room, while it is open; and it keeps
its bytes while a power cut could give it a name again. What Linux refuses is refused, and typed as
`LocalDisk` types it.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from random import Random
from typing import Final, Protocol
from weakref import WeakSet

from raylog.errors import DiskError
from raylog.storage.disk.disk import disk_error
from tests.simulator.world.crash_model import ROOT, FileImage, NameTree, Place

_BOUNDLESS: Final = 1 << 50
_FIRST_PID: Final = 1001


class Process(Protocol):
    pid: int

    def crash_process(self) -> None: ...


class FileSystem:
    """One machine's files, shared by the processes on it."""

    def __init__(self, names: NameTree, capacity: int | None) -> None:
        self.names = names
        self.capacity = capacity
        self.images: dict[int, FileImage] = {}
        self.opened: Counter[int] = Counter()
        self.locks: dict[int, object] = {}
        self.processes: WeakSet[Process] = WeakSet()  # weak, so that a clone is freed without a garbage run
        self.boots = 1
        self._last_number = ROOT
        self._last_pid = _FIRST_PID - 1

    def clone(self) -> FileSystem:
        """The same files, synced and un-synced, but no processes, locks or open files."""
        other = FileSystem(self.names.clone(), self.capacity)
        remembered = other.names.remembered()
        other.images = {number: self.images[number].clone() for number in self.images if number in remembered}
        other.boots = self.boots
        other._last_number = self._last_number
        other._last_pid = self._last_pid
        return other

    def start_process(self) -> int:
        self._last_pid += 1
        return self._last_pid

    def crash(self, rng: Random) -> None:
        for process in sorted(self.processes, key=lambda process: process.pid):
            process.crash_process()
        self.opened.clear()
        self.locks.clear()
        self.boots += 1
        self.names.crash(rng)
        self.forget_unnamed()
        for number in sorted(self.images):
            self.images[number].crash(rng)

    def sync_everything(self) -> None:
        self.names.sync_everything()
        for image in self.images.values():
            image.sync()

    # --- bytes ---

    def acquire(self, number: int) -> FileImage:
        self.opened[number] += 1
        return self.images[number]

    def release(self, number: int) -> None:
        self.opened[number] -= 1
        if not self.opened[number]:
            del self.opened[number]

    def forget_unnamed(self) -> None:
        """Drop the bytes that nobody has open, and that no name stands for now or after a power cut."""
        wanted = self.names.remembered() | self.opened.keys()
        if not wanted.issuperset(self.images):
            self.images = {number: image for number, image in self.images.items() if number in wanted}

    def used_bytes(self) -> int:
        taken = self.names.visible() | self.opened.keys()
        return sum(image.allocated for number, image in self.images.items() if number in taken)

    def free_bytes(self) -> int:
        return _BOUNDLESS if self.capacity is None else max(0, self.capacity - self.used_bytes())

    def total_bytes(self) -> int:
        return _BOUNDLESS if self.capacity is None else self.capacity

    # --- names ---

    def create(self, path: str) -> None:
        place, number = self.locate(path), self._next_number()
        self.images[number] = FileImage()
        self.names.add(place, number)

    def make_directory(self, path: str) -> None:
        self.names.add_directory(self.locate(path), self._next_number())

    def missing_directories(self, path: str) -> list[str]:
        """`path` and its parents, from the first one that does not exist."""
        parts = _parts(path)
        ancestors = ["/" + "/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]
        for depth, ancestor in enumerate(ancestors):
            number = self.lookup(ancestor)
            if number is None:
                return ancestors[depth:]
            if not self.names.is_directory(number):
                raise _refused(errno.EEXIST, f"Making directory {path}")
        return []

    def _next_number(self) -> int:
        self._last_number += 1
        return self._last_number

    def locate(self, path: str) -> Place:
        """The directory that holds `path`, which must exist, and the name in it, which need not."""
        *parents, name = _parts(path) or [""]
        directory = ROOT
        for parent in parents:
            number = self.names.children(directory).get(parent)
            if number is None:
                raise _missing(path)
            if not self.names.is_directory(number):
                raise _refused(errno.ENOTDIR, f"Looking up {path}")
            directory = number
        return directory, name

    def lookup(self, path: str) -> int | None:
        directory, name = self.locate(path)
        return self.names.children(directory).get(name) if name else directory

    def file(self, path: str, doing: str) -> int:
        number = self.existing(path)
        if self.names.is_directory(number):
            raise _refused(errno.EISDIR, f"{doing} {path}")
        return number

    def directory(self, path: str, doing: str) -> int:
        number = self.existing(path)
        if not self.names.is_directory(number):
            raise _refused(errno.ENOTDIR, f"{doing} {path}")
        return number

    def existing(self, path: str) -> int:
        number = self.lookup(path)
        if number is None:
            raise _missing(path)
        return number

    def check_empty(self, directory: int, path: str) -> None:
        if self.names.children(directory):
            raise _refused(errno.ENOTEMPTY, f"Removing directory {path}")

    def check_rename(self, source: str, target: str) -> tuple[Place, Place]:
        """Return both places of a rename. It is refused where rename(2) refuses."""
        doing = f"Renaming {source} to {target}"
        places = self.locate(source), self.locate(target)  # rename(2) looks at the parents first
        moved, replaced = self.existing(source), self.lookup(target)
        if self.names.is_directory(moved):
            if replaced is not None and not self.names.is_directory(replaced):
                raise _refused(errno.ENOTDIR, doing)
            if replaced is not None and replaced != moved and self.names.children(replaced):
                raise _refused(errno.ENOTEMPTY, doing)
            if target.startswith(source.rstrip("/") + "/"):
                raise _refused(errno.EINVAL, doing)
        elif replaced is not None and self.names.is_directory(replaced):
            raise _refused(errno.EISDIR, doing)
        return places


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def _refused(code: int, doing: str) -> DiskError:
    return disk_error(OSError(code, os.strerror(code)), doing)
