"""The sound part of a log that was set aside for its damage: all that stands before the damage, as a log of its own.

    segments before the damaged one    second names of the same files: nothing changes a sealed segment any more
    the damaged one                    a copy of its batches up to the first that is wrong
    what stands behind the damage      stays in the damaged log only, for `raylog log dump`

What must stay true: the damaged log is not changed. Its sound part is whole and synced before it gets the replica's
name; one that a crash has cut short lies under another name, and the next one begins with its removal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Final, NamedTuple

from raylog.errors import DiskError
from raylog.storage.directory.doubts import RESTORED
from raylog.storage.directory.partition_directory import (
    CHECKPOINT_FILE,
    CHECKPOINT_VERSION,
    PARTITION_FILE,
    parse_marks,
)
from raylog.storage.disk.checkpoints import read_checkpoint, write_checkpoint
from raylog.storage.disk.disk import Disk, copy_file
from raylog.storage.segment.batch_scan import ChainBroken, scan_file
from raylog.storage.segment.leader_epochs import LeaderEpochs
from raylog.storage.segment.segment import LOG_SUFFIX

_UNDER_WAY: Final = "@being-restored"
_UNKNOWN: Final = -1


class SoundEnd(NamedTuple):
    """The end of the sound batches of a file, by its bytes and by offset, and the epoch of the last of them."""

    size: int
    next_offset: int
    last_epoch: int


def sound_end(disk: Disk, path: str, epochs: LeaderEpochs | None = None) -> SoundEnd:
    """Read a segment's file up to the first batch that is wrong."""
    base_offset = base_of(path)
    end = SoundEnd(0, base_offset, _UNKNOWN)
    file = disk.open(path)
    try:
        for position, header, _ in scan_file(file, base_offset, epochs):
            end = SoundEnd(position + header.size, header.next_offset, header.leader_epoch)
    except (ChainBroken, DiskError):  # what is sound up to here is what can be told of it
        return end
    finally:
        file.close()
    return end


def base_of(path: str) -> int:
    """Return the offset that the name of a segment's file begins with."""
    return int(path.rpartition("/")[2].removesuffix(LOG_SUFFIX))


def write_sound_part(disk: Disk, source: str, target: str, segments: Sequence[str]) -> str:
    """Write what these segments hold, the last one up to its damage, for `target`; returns where it lies by now.

    The marks in it say that a person has put it there (rule 7).
    """
    path = target + _UNDER_WAY
    _begin(disk, path)
    *whole, damaged = segments
    for name in whole:
        disk.link(f"{source}/{name}", f"{path}/{name}")
        _sync(disk, f"{path}/{name}")
    epochs = LeaderEpochs.load(disk, source)
    end = sound_end(disk, f"{source}/{damaged}", epochs)
    copy_file(disk, f"{source}/{damaged}", f"{path}/{damaged}", end.size)
    LeaderEpochs(disk, path, list(epochs.history)).save()
    disk.write_file(f"{path}/{PARTITION_FILE}", disk.read_file(f"{source}/{PARTITION_FILE}"), sync=True)
    marks = read_checkpoint(disk, f"{source}/{CHECKPOINT_FILE}", CHECKPOINT_VERSION, parse_marks)
    reached = min(marks.high_watermark, end.next_offset)
    restored = replace(marks, recovery_point=end.next_offset, high_watermark=reached, unproven=RESTORED)
    write_checkpoint(disk, f"{path}/{CHECKPOINT_FILE}", CHECKPOINT_VERSION, asdict(restored))
    disk.sync_directory(path)
    return path


def _begin(disk: Disk, path: str) -> None:
    if disk.exists(path):
        for name in disk.list_directory(path):
            disk.remove(f"{path}/{name}")
    disk.make_directory(path)


def _sync(disk: Disk, path: str) -> None:
    file = disk.open(path)
    try:
        file.sync()
    finally:
        file.close()
