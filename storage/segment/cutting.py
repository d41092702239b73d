"""Cutting and removing the files of segments, on any thread. What is cut off has no reader in the log any more.

What must stay true: a file that has a second name keeps what it has, for a copy of the log has it under that one.
"""

from __future__ import annotations

from collections.abc import Sequence

from raylog.storage.disk.checkpoints import TEMPORARY_SUFFIX
from raylog.storage.disk.disk import Disk, DiskFile, copy_file


def cut_file(
    disk: Disk, file: DiskFile, path: str, index_paths: Sequence[str], size: int, replacement: str = ""
) -> DiskFile | None:
    """Let the log file at `path`, which is open as `file`, end at `size`, durably; its indexes go.

    Returns the file that has taken its place, where it has a second name. `replacement`: that file, if it is made.
    """
    for index_path in index_paths:
        disk.remove(index_path)
    disk.sync_directory(_directory(path))
    replaced = _replaced(disk, path, replacement or write_replacement(disk, path, size)) if file.links() > 1 else None
    left = replaced or file
    left.truncate(size)
    left.sync()
    return replaced


def write_replacement(disk: Disk, path: str, size: int) -> str:
    """Write a file of its own that begins like this one; returns its path."""
    copy_file(disk, path, path + TEMPORARY_SUFFIX, size)
    return path + TEMPORARY_SUFFIX


def _replaced(disk: Disk, path: str, replacement: str) -> DiskFile:
    disk.rename(replacement, path)
    disk.sync_directory(_directory(path))
    return disk.open(path)


def _directory(path: str) -> str:
    return path.rpartition("/")[0]


def remove_file(disk: Disk, path: str) -> None:
    """Remove a log file, and free its blocks here: the owner's thread may be the last to close it.

    Whoever has it open finds it empty.
    """
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return
    try:
        if file.links() == 1:
            file.truncate(0)
    finally:
        file.close()
    disk.remove(path)
