"""Progress of a log's compaction: how far it is compacted, and when each part of it was compacted first.

A tombstone, or a marker that no record needs any more, goes once the pass that first met it is `delete.retention.ms`
old; until then slow readers may still have to learn of the deletion. Which pass that was follows from the offset, so
nothing needs to be written into the batches.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final, NamedTuple

from raylog.errors import LogDamaged
from raylog.storage.directory.partition_directory import PartitionDirectory
from raylog.storage.disk.checkpoints import read_checkpoint, write_checkpoint
from raylog.storage.disk.disk import Disk

FILE_NAME: Final = "compaction-checkpoint"
_VERSION: Final = 1

_log = logging.getLogger(__name__)


class Pass(NamedTuple):
    """One compaction: everything below `end_offset` had been met by it."""

    end_offset: int
    at_ms: int


@dataclass(frozen=True)
class CompactionProgress:
    passes: tuple[Pass, ...] = ()

    @property
    def cleaned_to(self) -> int:
        """The offset below which only the newest value of every key is there."""
        return self.passes[-1].end_offset if self.passes else 0

    def removable_below(self, now_ms: int, delete_retention_ms: int) -> int:
        """Tombstones below this offset have been there for long enough."""
        return max((each.end_offset for each in self.passes if now_ms - each.at_ms > delete_retention_ms), default=0)

    def after(self, done: Pass, delete_retention_ms: int) -> CompactionProgress:
        """Return the progress after one more pass. Only the farthest of the passes whose time is over still matters."""
        over = self.removable_below(done.at_ms, delete_retention_ms)
        kept = [each for each in self.passes if each.end_offset >= over and each.end_offset < done.end_offset]
        return CompactionProgress((*kept, done)) if done.end_offset > self.cleaned_to else self

    def cut(self, log_end_offset: int) -> CompactionProgress:
        """Return what is left of the progress when the log is truncated."""
        kept = [each for each in self.passes if each.end_offset <= log_end_offset]
        across = [each for each in self.passes if each.end_offset > log_end_offset][:1]
        return CompactionProgress((*kept, *(Pass(log_end_offset, each.at_ms) for each in across)))

    @classmethod
    def load(cls, disk: Disk, directory: str) -> CompactionProgress:
        """Read the progress. Without a readable file, everything counts as never compacted: that costs work, and loses
        nothing.
        """
        try:
            body = read_checkpoint(disk, f"{directory}/{FILE_NAME}", _VERSION)
        except FileNotFoundError:
            return cls()
        except LogDamaged as damage:
            _log.warning("%s The next compaction starts from the beginning.", damage.describe())
            return cls()
        return cls(tuple(Pass(end_offset, at_ms) for end_offset, at_ms in body["passes"]))

    def save(self, disk: Disk, directory: str) -> None:
        write_checkpoint(disk, f"{directory}/{FILE_NAME}", _VERSION, {"passes": [list(each) for each in self.passes]})


def cut_progress(directory: PartitionDirectory, log_end_offset: int) -> None:
    """Note that what is appended from here on has not been compacted, whatever stood at those offsets before."""
    with directory.progress_lock:
        progress = CompactionProgress.load(directory.disk, directory.path)
        if progress.cleaned_to > log_end_offset:
            progress.cut(log_end_offset).save(directory.disk, directory.path)
