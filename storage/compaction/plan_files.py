"""Facts that a compaction needs of its log and no message can hold: producers, and aborts in the growing segment.

    owner: `save`, beside its loop  →  whoever compacts: `opened`  →  owner: `remove_drafts`

Both files are drafts of the compaction, so they go with them, and at the next opening at the latest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from raylog.errors import LogDamaged
from raylog.storage.compaction.last_writes import LastWriteRows, LastWrites
from raylog.storage.compaction.plan import CompactionPlan
from raylog.storage.compaction.swap import draft_suffix
from raylog.storage.disk.disk import Disk
from raylog.storage.disk.sealed_file import SealBroken
from raylog.storage.segment.segment import file_name
from raylog.storage.segment.transaction_index import AbortedTransaction, TransactionIndex

_PRODUCERS: Final = ".producers"
_ABORTED: Final = ".aborted"


def save(disk: Disk, plan: CompactionPlan, producers: LastWriteRows) -> None:
    """Write both. It takes a second for a million producers, so it is no work for an event loop."""
    producers.save(disk, _path(plan.directory, plan.limit, plan.run, _PRODUCERS))
    index = TransactionIndex(plan.aborted_later)
    index.save(disk, _path(plan.directory, plan.limit, plan.run, _ABORTED), plan.limit)


@contextmanager
def opened(
    disk: Disk, directory: str, limit: int, run: str
) -> Iterator[tuple[Sequence[AbortedTransaction], LastWrites]]:
    """`aborted_later` and `last_writes` of the plan with this limit and run, for the length of the block."""
    path = _path(directory, limit, run, _ABORTED)
    writes = LastWrites(disk, _path(directory, limit, run, _PRODUCERS))
    try:
        yield TransactionIndex.load(disk, path, limit).aborted, writes
    except SealBroken as broken:
        raise LogDamaged(path, 0, str(broken)) from broken
    finally:
        writes.close()


def _path(directory: str, limit: int, run: str, kind: str) -> str:
    return f"{directory}/{file_name(limit, kind)}{draft_suffix(run)}"
