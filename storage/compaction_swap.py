"""Putting a compacted segment in the place of the segments it was made from, so that a crash at any step loses nothing.

    1. the compactor writes  B.log.cleaned, B.index.cleaned, …     and syncs them
    2. the owner renames     B.index.cleaned -> B.index.swap, …, and last B.log.cleaned -> B.log.swap; syncs the names
    3. it renames            the old segments' files -> .deleted; syncs the directory
    4. it renames            B.index.swap -> B.index, …, and last B.log.swap -> B.log; syncs the directory

The rename of the log file in step 2 is the point of no return: before it, an opening forgets the new files; after it,
an opening goes on with step 3. What must stay true: the new file spans exactly the offsets of the old ones (removed
batches leave fillers), so which segments are old can be told from it alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from raylog.errors import LogDamaged
from raylog.storage.batch_scan import ChainBroken, scan_file
from raylog.storage.disk import Disk
from raylog.storage.partition_directory import DELETED_SUFFIX, PartitionDirectory
from raylog.storage.producer_state import SNAPSHOT_SUFFIX
from raylog.storage.segment import INDEX_SUFFIXES, LOG_SUFFIX, file_name

CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"


def is_written(directory: PartitionDirectory, base_offset: int) -> bool:
    """Whether all that step 2 renames is there. An opening in between has removed it."""
    names = [file_name(base_offset, kind) + CLEANED_SUFFIX for kind in (*INDEX_SUFFIXES, LOG_SUFFIX)]
    return all(directory.disk.exists(directory.file(name)) for name in names)


def commit_swap(directory: PartitionDirectory, base_offset: int) -> None:
    """Step 2: from here on the new segment stands."""
    disk = directory.disk
    for kind in (*INDEX_SUFFIXES, LOG_SUFFIX):
        path = directory.file(file_name(base_offset, kind))
        disk.rename(path + CLEANED_SUFFIX, path + SWAP_SUFFIX)
    disk.sync_directory(directory.path)


def finish_swap(directory: PartitionDirectory, base_offset: int, old: Sequence[int]) -> list[str]:
    """Steps 3 and 4; returns the files that wait for their removal."""
    disk = directory.disk
    retired = []
    for base in old:
        # The producers' state where the new segment begins is still true.
        kinds = (*INDEX_SUFFIXES, *(() if base == base_offset else (SNAPSHOT_SUFFIX,)), LOG_SUFFIX)
        for kind in kinds:
            path = directory.file(file_name(base, kind))
            if disk.exists(path):
                disk.rename(path, path + DELETED_SUFFIX)
                retired.append(path + DELETED_SUFFIX)
    # An old segment that came back after a power cut, beside a new one that had lost its suffix, would overlap it.
    disk.sync_directory(directory.path)
    for kind in (*INDEX_SUFFIXES, LOG_SUFFIX):
        path = directory.file(file_name(base_offset, kind))
        if disk.exists(path + SWAP_SUFFIX):
            disk.rename(path + SWAP_SUFFIX, path)
    disk.sync_directory(directory.path)
    return retired


def finish_swaps(directory: PartitionDirectory) -> None:
    """At opening: forget what was not committed, finish what was."""
    disk = directory.disk
    names = disk.list_directory(directory.path)
    committed = [
        int(name[: -len(LOG_SUFFIX + SWAP_SUFFIX)]) for name in names if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)
    ]
    for name in names:
        half_committed = name.endswith(SWAP_SUFFIX) and int(name.partition(".")[0]) not in committed
        if name.endswith(CLEANED_SUFFIX) or half_committed:
            disk.remove(directory.file(name))
    for base_offset in committed:
        end = _end_of_swap(disk, directory.file(file_name(base_offset, LOG_SUFFIX) + SWAP_SUFFIX), base_offset)
        old = [base for base in directory.segment_bases() if base_offset <= base < end]
        finish_swap(directory, base_offset, old)


def _end_of_swap(disk: Disk, path: str, base_offset: int) -> int:
    """The offset after the new segment's last batch. It was synced before it was committed, so it must be whole."""
    file = disk.open(path)
    end = base_offset
    try:
        for _, header, _ in scan_file(file, base_offset, None):
            end = header.next_offset
    except ChainBroken as broken:
        raise LogDamaged(path, broken.position, broken.reason) from broken
    finally:
        file.close()
    return end

