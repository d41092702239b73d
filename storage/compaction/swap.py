"""Putting a compacted segment in the place of the segments it was made from, so that a crash at any step loses nothing.

    1. the compactor writes  B.log.R.cleaned, B.index.R.cleaned, …  and syncs them; R is drawn anew for each plan
    2. the owner renames     B.index.R.cleaned -> B.index.swap, …, and last B.log.R.cleaned -> B.log.swap
    3. it renames            the old segments' files -> .deleted
    4. it renames            B.index.swap -> B.index, …, and last B.log.swap -> B.log
       and after each of 2, 3 and 4 it syncs the directory before it goes on

The rename of the log file in step 2 is the point of no return: before it, an opening forgets the new files; after it,
an opening goes on with step 3. What must stay true:
- The new file spans exactly the offsets of the old ones (removed batches leave fillers), so which segments are old can
  be told from it alone.
- No two compactions write under one name. One that nobody waits for any more, since its log was opened again or its
  owner has asked anew, may write on for as long as it likes: nobody will ever rename its files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from raylog.errors import LogDamaged
from raylog.storage.directory.partition_directory import CLEANED_SUFFIX, DELETED_SUFFIX, PartitionDirectory
from raylog.storage.disk.disk import Disk
from raylog.storage.segment.batch_scan import ChainBroken, scan_file
from raylog.storage.segment.producer_state import SNAPSHOT_SUFFIX
from raylog.storage.segment.segment import INDEX_SUFFIXES, LOG_SUFFIX, file_name

SWAP_SUFFIX: Final = ".swap"


def draft_suffix(run: str) -> str:
    """Return the suffix of files that the compaction of this name writes."""
    return f".{run}{CLEANED_SUFFIX}"


def is_written(directory: PartitionDirectory, base_offset: int, run: str) -> bool:
    """Whether all that step 2 renames is there. An opening in between has removed it."""
    names = [file_name(base_offset, kind) + draft_suffix(run) for kind in (*INDEX_SUFFIXES, LOG_SUFFIX)]
    return all(directory.disk.exists(directory.file(name)) for name in names)


def commit_swap(directory: PartitionDirectory, base_offset: int, run: str) -> None:
    """Step 2 but its sync: from here on the new segment stands."""
    for kind in (*INDEX_SUFFIXES, LOG_SUFFIX):
        path = directory.file(file_name(base_offset, kind))
        directory.disk.rename(path + draft_suffix(run), path + SWAP_SUFFIX)


def retire_old(directory: PartitionDirectory, base_offset: int, old: Sequence[int]) -> list[str]:
    """Step 3 but its sync; returns the files that wait for their removal."""
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
    return retired


def put_in_place(directory: PartitionDirectory, base_offset: int) -> None:
    """Step 4 but its sync.

    Step 3 has been synced: an old segment that came back after a power cut, beside a new one that had lost its suffix,
    would overlap it.
    """
    disk = directory.disk
    for kind in (*INDEX_SUFFIXES, LOG_SUFFIX):
        path = directory.file(file_name(base_offset, kind))
        if disk.exists(path + SWAP_SUFFIX):
            disk.rename(path + SWAP_SUFFIX, path)


def remove_drafts(directory: PartitionDirectory, suffix: str = CLEANED_SUFFIX) -> int:
    """Remove what compactions have written that came to nothing; returns how many files. Callable from any thread.

    While the log is open only with the suffix of its own compaction: by then another process may be its owner.
    """
    drafts = [name for name in directory.disk.list_directory(directory.path) if name.endswith(suffix)]
    for name in drafts:
        directory.disk.remove(directory.file(name))
    return len(drafts)


def finish_swaps(directory: PartitionDirectory) -> None:
    """Forget, at opening, what was not committed; finish what was."""
    disk = directory.disk
    names = disk.list_directory(directory.path)
    committed = [
        int(name[: -len(LOG_SUFFIX + SWAP_SUFFIX)]) for name in names if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)
    ]
    if any(name.endswith(CLEANED_SUFFIX) for name in names):
        remove_drafts(directory)
    for name in names:
        if name.endswith(SWAP_SUFFIX) and int(name.partition(".")[0]) not in committed:
            disk.remove(directory.file(name))
    for base_offset in committed:
        end = _end_of_swap(disk, directory.file(file_name(base_offset, LOG_SUFFIX) + SWAP_SUFFIX), base_offset)
        old = [base for base in directory.segment_bases() if base_offset <= base < end]
        retire_old(directory, base_offset, old)
        disk.sync_directory(directory.path)
        put_in_place(directory, base_offset)
        disk.sync_directory(directory.path)


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

