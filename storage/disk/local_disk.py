"""The disk of this machine.

It makes directories of mode 0700 and files of mode 0600: records are their owner's alone. A directory that was open to
others is closed to them when it is locked, so what an earlier version wrote in it cannot be reached either.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import shutil
import stat
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Final

from raylog.errors import DirectoryLocked, DiskFailed
from raylog.storage.disk.disk import disk_error
from raylog.storage.disk.open_files import OpenFiles
from raylog.storage.format.record_batch import Bytes

_NO_LINKS: Final = frozenset((errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS))
_BOOT_ID_FILE: Final = Path("/proc/sys/kernel/random/boot_id")
_FILE_MODE: Final = 0o600
_DIRECTORY_MODE: Final = 0o700
_OTHERS: Final = 0o077

_log = logging.getLogger(__name__)


class LocalFile:
    """A file of the real file system."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd

    def write_at(self, data: Bytes, position: int) -> None:
        try:
            written = os.pwrite(self._fd, data, position)
            if written != len(data):  # a signal, or the last free block
                self._write_rest(memoryview(data)[written:], position + written)
        except OSError as error:
            raise disk_error(error, f"Writing {self.path}") from error

    def _write_rest(self, rest: memoryview, position: int) -> None:
        while rest:
            written = os.pwrite(self._fd, rest, position)
            rest = rest[written:]
            position += written

    def read_at(self, length: int, position: int) -> bytes:
        try:
            data = os.pread(self._fd, length, position)
            if len(data) == length:
                return data
            return self._read_rest(data, length, position)
        except OSError as error:
            raise disk_error(error, f"Reading {self.path}") from error

    def _read_rest(self, data: bytes, length: int, position: int) -> bytes:
        parts, got = [data], len(data)
        while got < length:
            part = os.pread(self._fd, length - got, position + got)
            if not part:
                break
            parts.append(part)
            got += len(part)
        return b"".join(parts)

    def drop_cached(self, length: int, position: int) -> None:
        if sys.platform != "darwin":
            with contextlib.suppress(OSError):  # it is advice, and not every file system takes it
                os.posix_fadvise(self._fd, position, length, os.POSIX_FADV_DONTNEED)

    def size(self) -> int:
        return self._status().st_size

    def inode(self) -> int:
        return self._status().st_ino

    def links(self) -> int:
        return self._status().st_nlink

    def _status(self) -> os.stat_result:
        try:
            return os.fstat(self._fd)
        except OSError as error:
            raise disk_error(error, f"Reading the size of {self.path}") from error

    def truncate(self, length: int) -> None:
        try:
            os.ftruncate(self._fd, length)
        except OSError as error:
            raise disk_error(error, f"Truncating {self.path}") from error

    def sync(self) -> None:
        try:
            _sync_data(self._fd)
        except OSError as error:
            # Whatever the reason, even ENOSPC: the kernel may have dropped the dirty pages, so a second try
            # that succeeds would prove nothing (rule 2).
            raise DiskFailed(f"Syncing {self.path}: {error.strerror}.") from error

    def close(self) -> None:
        # The number is free again even if closing fails, and may be another file's by the next call.
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        try:
            os.close(fd)
        except OSError as error:
            raise disk_error(error, f"Closing {self.path}") from error


class LocalLock:
    """A held `flock`; the kernel lets go of it when the process dies."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class LocalDisk:
    """The machine's own file system."""

    def __init__(self) -> None:
        self.open_files = OpenFiles()
        self._boot_id = ""  # read once: no process outlives its boot

    def open(self, path: str, *, create: bool = False) -> LocalFile:
        try:
            flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
            return LocalFile(path, os.open(path, flags, _FILE_MODE))
        except FileNotFoundError:
            raise
        except OSError as error:
            raise disk_error(error, f"Opening {path}") from error

    def read_file(self, path: str) -> bytes:
        try:
            return _read_whole(path)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise disk_error(error, f"Reading {path}") from error

    def write_file(self, path: str, data: Bytes, *, sync: bool = False) -> None:
        file = self.open(path, create=True)
        try:
            file.truncate(0)
            file.write_at(data, 0)
            if sync:
                file.sync()
        finally:
            file.close()

    def map_file(self, path: str) -> Bytes:
        try:
            return _read_whole(path)  # not `mmap`: Python's keeps a duplicate of the descriptor until it is gone
        except FileNotFoundError:
            raise
        except OSError as error:
            raise disk_error(error, f"Mapping {path}") from error

    def exists(self, path: str) -> bool:
        try:
            return Path(path).exists()
        except OSError as error:
            raise disk_error(error, f"Looking for {path}") from error

    def list_directory(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            raise
        except OSError as error:
            raise disk_error(error, f"Listing {path}") from error

    def make_directory(self, path: str) -> None:
        try:
            _make_private(Path(path))
        except OSError as error:
            raise disk_error(error, f"Making directory {path}") from error

    def rename(self, source: str, target: str) -> None:
        try:
            os.replace(source, target)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise disk_error(error, f"Renaming {source} to {target}") from error

    def link(self, source: str, target: str) -> None:
        try:
            _link_or_copy(source, target)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise disk_error(error, f"Linking {source} to {target}") from error

    def remove(self, path: str) -> None:
        try:
            Path(path).unlink(missing_ok=True)
        except OSError as error:
            raise disk_error(error, f"Removing {path}") from error

    def remove_directory(self, path: str) -> None:
        try:
            Path(path).rmdir()
        except FileNotFoundError:
            return
        except OSError as error:
            raise disk_error(error, f"Removing directory {path}") from error

    def sync_directory(self, path: str) -> None:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise DiskFailed(f"Syncing directory {path}: {error.strerror}.") from error

    def lock_directory(self, path: str) -> LocalLock:
        lock_path = Path(path) / ".lock"
        try:
            fd = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise disk_error(error, f"Opening {lock_path}") from error
        lock = LocalLock(fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = _lock_holder(fd)
            lock.release()
            if isinstance(error, BlockingIOError):
                raise DirectoryLocked(path, holder) from None
            raise disk_error(error, f"Locking {lock_path}") from error
        _sign_lock(fd)
        _close_to_others(path)
        return lock

    def free_bytes(self, path: str) -> int:
        status = self._file_system_status(path)
        return status.f_bavail * status.f_frsize

    def total_bytes(self, path: str) -> int:
        status = self._file_system_status(path)
        return status.f_blocks * status.f_frsize

    def _file_system_status(self, path: str) -> os.statvfs_result:
        try:
            return os.statvfs(path)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise disk_error(error, f"Reading the free space at {path}") from error

    def boot_id(self) -> str:
        if not self._boot_id:
            self._boot_id = _read_boot_id()
        return self._boot_id


def _read_boot_id() -> str:
    if _BOOT_ID_FILE.exists():
        return _BOOT_ID_FILE.read_text().strip()
    return subprocess.run(
        ["sysctl", "-n", "kern.bootsessionuuid"], check=True, capture_output=True, text=True, timeout=10
    ).stdout.strip()


def _read_whole(path: str) -> bytes:
    """Read a file with as few calls of the kernel as it takes. A thousand logs that open read several each."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return b"".join(iter(partial(os.read, fd, os.fstat(fd).st_size + 1), b""))
    finally:
        os.close(fd)


def _make_private(path: Path) -> None:
    """Make a directory for its owner alone, and its missing parents, to which `mkdir(parents=True)` would give the
    user's usual mode.
    """
    if not path.parent.is_dir():
        _make_private(path.parent)
    path.mkdir(mode=_DIRECTORY_MODE, exist_ok=True)


def _close_to_others(path: str) -> None:
    """Let only its owner enter the directory. A file system without modes, or another owner, is no reason to stop."""
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)
        if mode & _OTHERS:
            os.chmod(path, mode & ~_OTHERS)
    except OSError as error:
        _log.warning("%s is open to other users, who can read its records, and cannot be closed: %s", path, error)


def _lock_holder(fd: int) -> str:
    with contextlib.suppress(OSError):
        return os.pread(fd, 64, 0).decode(errors="replace").strip() or "process unknown"
    return "process unknown"


def _sign_lock(fd: int) -> None:
    """Leave our process id for whoever finds the directory locked.

    It is a hint and may fail: a full disk must not keep a log from being opened, for that frees space.
    """
    with contextlib.suppress(OSError):
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"pid {os.getpid()}\n".encode(), 0)


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        shutil.copy(source, target)


def _sync_data(fd: int) -> None:
    if sys.platform == "darwin":
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)  # fsync on macOS stops at the drive's cache
    else:
        os.fdatasync(fd)
