"""Files that are opened again when they are needed: of those that nobody uses just now only so many stay open.

A log has a file for each of its segments, and a host may have thousands of logs. Only files to which nothing is written
any more, and that have been synced, are kept this way.

What must stay true: a file is not closed while it is in use, and no write or sync is lost by that. What is opened again
is the same file, or an error says that it is gone. Any thread may use them.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from raylog.errors import DiskFailed
from raylog.storage.format.record_batch import Bytes

if TYPE_CHECKING:
    from raylog.storage.disk.disk import DiskFile

MOST_IDLE: Final = 1024


class OpenFiles:
    """The files of one process that are open and not in use, the least recently used first."""

    def __init__(self, most_idle: int = MOST_IDLE) -> None:
        self.lock = threading.Lock()
        self._most_idle = most_idle
        self._idle: OrderedDict[ReopenedFile, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._idle)

    def keep(self, file: DiskFile, reopen: Callable[[str], DiskFile]) -> ReopenedFile:
        """Take over an open file. It is closed when others are used more, and opened again by its path."""
        kept = ReopenedFile(self, file, reopen)
        self.close_some(kept)
        return kept

    def is_used(self, file: ReopenedFile) -> None:
        """Keep it open from now on. `lock` is held."""
        self._idle.pop(file, None)

    def close_some(self, idle: ReopenedFile) -> None:
        """Take in a file that nobody uses, and close those that are too many."""
        evicted: list[DiskFile] = []
        with self.lock:
            if idle.is_idle:
                self._idle[idle] = None
            while len(self._idle) > self._most_idle:
                evicted += self._idle.popitem(last=False)[0].take_file()
        for file in evicted:
            file.close()


class ReopenedFile:
    """A `DiskFile` that is open only while it is used, or was lately. Made by `OpenFiles.keep`."""

    def __init__(self, files: OpenFiles, file: DiskFile, reopen: Callable[[str], DiskFile]) -> None:
        self.path = file.path
        self._files = files
        self._reopen = reopen
        self._inode = file.inode()
        self._file: DiskFile | None = file
        self._users = 0
        self._opening = threading.Lock()
        self._is_closed = False

    @property
    def is_idle(self) -> bool:
        """Whether it is open, and nobody uses it."""
        return self._users == 0 and self._file is not None and not self._is_closed

    def take_file(self) -> list[DiskFile]:
        """Return the open file, if there is one, to be closed or used by the caller. The lock of all is held."""
        file, self._file = self._file, None
        return [] if file is None else [file]

    def moved_to(self, path: str) -> None:
        """Note that it has been renamed."""
        self.path = path

    def taken_out(self) -> DiskFile:
        """Return the file, open, which from now on is the caller's alone. Nobody else may use it just now."""
        with self._lent() as file, self._files.lock:
            self.take_file()
            self._is_closed = True
            return file

    @contextmanager
    def _lent(self) -> Iterator[DiskFile]:
        with self._opening:
            with self._files.lock:
                self._users += 1
                self._files.is_used(self)
            try:
                file = self._file = self._file or self._opened_again()
            except BaseException:
                self._give_back()
                raise
        try:
            yield file
        finally:
            self._give_back()

    def _give_back(self) -> None:
        last: list[DiskFile] = []
        with self._files.lock:
            self._users -= 1
            if self._users == 0 and self._is_closed:
                last = self.take_file()
        for file in last:
            file.close()
        self._files.close_some(self)

    def _opened_again(self) -> DiskFile:
        if self._is_closed:
            raise DiskFailed(f"Opening {self.path}: it was closed.")
        file = self._reopen(self.path)
        if file.inode() != self._inode:
            file.close()
            raise FileNotFoundError(f"{self.path} is another file by now.")
        return file

    # --- as a DiskFile --------------------------------------------------------------------------------------------

    def write_at(self, data: Bytes, position: int) -> None:
        """Write as `DiskFile` does, and sync: nobody else would while it is closed."""
        with self._lent() as file:
            file.write_at(data, position)
            file.sync()

    def read_at(self, length: int, position: int) -> bytes:
        with self._lent() as file:
            return file.read_at(length, position)

    def drop_cached(self, length: int, position: int) -> None:
        with self._lent() as file:
            file.drop_cached(length, position)

    def size(self) -> int:
        with self._lent() as file:
            return file.size()

    def inode(self) -> int:
        return self._inode

    def links(self) -> int:
        with self._lent() as file:
            return file.links()

    def truncate(self, length: int) -> None:
        with self._lent() as file:
            file.truncate(length)
            file.sync()

    def sync(self) -> None:
        with self._lent() as file:
            file.sync()

    def close(self) -> None:
        """Close it for good, as soon as nobody uses it."""
        last: list[DiskFile] = []
        with self._files.lock:
            self._is_closed = True
            self._files.is_used(self)
            if self._users == 0:
                last = self.take_file()
        for file in last:
            file.close()
