"""The files that have left a log and wait for their removal.

What must stay true: a file stays for `file.delete.delay.ms` after it has left the log, since readers on this machine
may be in the middle of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from raylog.storage.disk.disk import Disk
from raylog.storage.segment.segment import Segment


class Removal(NamedTuple):
    """Files out of the log's sight, and the open segments they belong to."""

    due_ms: int
    segments: Sequence[Segment]
    paths: Sequence[str]


class DueRemoval(NamedTuple):
    """Files whose time is over."""

    removals: Sequence[Removal]
    disk: Disk

    def carry_out(self) -> int:
        """Remove them; returns how many. On any thread: freeing the blocks of a large file takes long."""
        paths = [path for removal in self.removals for path in removal.paths]
        for path in paths:
            self.disk.remove(path)
        return len(paths)


class Removals:
    """What is to be removed later."""

    def __init__(self) -> None:
        self._waiting: list[Removal] = []

    def add(self, removal: Removal) -> None:
        self._waiting.append(removal)

    def begin(self, disk: Disk, now_ms: int, let_go: Callable[[Segment], None]) -> DueRemoval:
        """What is due. Its segments are let go first: a file's blocks are freed by whoever has it last."""
        for at, removal in enumerate(self._waiting):
            if removal.due_ms <= now_ms:
                for segment in removal.segments:
                    let_go(segment)
                self._waiting[at] = removal._replace(segments=())
        return DueRemoval([removal for removal in self._waiting if removal.due_ms <= now_ms], disk)

    def finish(self, due: DueRemoval) -> None:
        """It was carried out. What was not is due again the next time."""
        self._waiting = [removal for removal in self._waiting if removal not in due.removals]

    def close(self) -> None:
        """Let go of the files; the next opening removes them."""
        for removal in self._waiting:
            for segment in removal.segments:
                segment.close()
