"""The small door through which all file access goes, so that tests can stand behind it.

`LocalDisk` is the real one; the tests have a twin that tears writes, fails with EIO or ENOSPC, and
forgets what was not synced. What both promise:
- An operation either did all it was asked, or raises a typed `DiskError` (a missing file or directory:
  `FileNotFoundError`).
- A write that raised may have left part of its bytes behind: the caller truncates.
- A process crash keeps everything written; a machine crash keeps what was synced, and of names what
  was synced with their directory.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final, Protocol

from raylog.errors import DiskBusy, DiskError, DiskFailed, DiskFull, DiskReadOnly
from raylog.storage.format.record_batch import Bytes

_FULL: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
_BUSY: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM))
_NOT_ALLOWED: Final = frozenset((errno.EACCES, errno.EPERM))
_COPY_CHUNK: Final = 1024 * 1024


class DiskFile(Protocol):
    """An open file."""

    @property
    def path(self) -> str: ...
    def write_at(self, data: Bytes, position: int) -> None:
        """Write all of `data`, or raise with an unknown part of it written."""

    def read_at(self, length: int, position: int) -> bytes:
        """Return up to `length` bytes; fewer only at the end of the file."""

    def drop_cached(self, length: int, position: int) -> None:
        """Let the next read of this come from the disk, as far as that is possible. What is not synced stays."""

    def size(self) -> int: ...
    def inode(self) -> int: ...
    def links(self) -> int:
        """Return how many names the file has: what is written or cut under one of them shows under all."""

    def truncate(self, length: int) -> None: ...
    def sync(self) -> None:
        """Make the file's bytes and length survive a machine crash. Callable from another thread."""

    def close(self) -> None: ...


class KeptFile(DiskFile, Protocol):
    """A file that is open only while it is used, or was lately."""

    def moved_to(self, path: str) -> None:
        """Note that it has been renamed."""

    def taken_out(self) -> DiskFile:
        """Return the file, open, which from now on is the caller's alone. Nobody else may use it just now."""


class FileKeeper(Protocol):
    """Keeps files that may be closed meanwhile: `open_files.OpenFiles`."""

    def keep(self, file: DiskFile, reopen: Callable[[str], DiskFile]) -> KeptFile:
        """Take over an open file, which from now on is closed and opened again as needed."""


class DirectoryLock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    """A file system, as one process sees it."""

    @property
    def open_files(self) -> FileKeeper:
        """Return what keeps files that are seldom used. Each process has its own."""

    def open(self, path: str, *, create: bool = False) -> DiskFile: ...
    def read_file(self, path: str) -> bytes: ...
    def write_file(self, path: str, data: Bytes, *, sync: bool = False) -> None:
        """Make `path` hold exactly `data`. Not atomic: see `checkpoints.py` for that."""

    def map_file(self, path: str) -> Bytes:
        """The file's bytes as they are now, read only. No file descriptor stays open for them."""

    def exists(self, path: str) -> bool: ...
    def list_directory(self, path: str) -> list[str]: ...
    def make_directory(self, path: str) -> None:
        """Make the directory and its missing parents; one that is there already is fine."""

    def rename(self, source: str, target: str) -> None: ...
    def link(self, source: str, target: str) -> None:
        """Give the file a second name; where the file system knows no such thing, copy it."""

    def remove(self, path: str) -> None:
        """Remove a file; one that is gone already is fine."""

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory; one that is gone already is fine."""

    def sync_directory(self, path: str) -> None:
        """Make the names in the directory survive a machine crash."""

    def lock_directory(self, path: str) -> DirectoryLock:
        """Become the only owner of the directory, or raise `DirectoryLocked`."""

    def free_bytes(self, path: str) -> int: ...
    def total_bytes(self, path: str) -> int:
        """The size of the file system that holds `path`."""

    def boot_id(self) -> str:
        """Changes when the machine reboots: un-synced bytes of an earlier boot cannot be relied on."""


def copy_file(disk: Disk, source: str, target: str, size: int) -> None:
    """The first `size` bytes, synced."""
    read = disk.open(source)
    try:
        written = disk.open(target, create=True)
        try:
            written.truncate(0)
            for position in range(0, size, _COPY_CHUNK):
                written.write_at(read.read_at(min(_COPY_CHUNK, size - position), position), position)
            written.sync()
        finally:
            written.close()
    finally:
        read.close()


def disk_error(error: OSError, doing: str) -> DiskError:
    """The typed error for what the operating system reported.

    A file system that has become read-only (EROFS) has met an I/O error before: it counts as one (rules 2, 14).
    """
    text = f"{doing}: {error.strerror or error}."
    if error.errno in _FULL:
        return DiskFull(text)
    if error.errno in _NOT_ALLOWED:
        return DiskReadOnly(text)
    if error.errno in _BUSY:
        return DiskBusy(text)
    return DiskFailed(text)
