"""The files that have left a log and wait for their removal.

What must stay true: a file stays for `file.delete.delay.ms` after it has left the log, since readers on this machine
may be in the middle of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from raylog.storage.segment.segment import Segment


class Removal(NamedTuple):
    """Files out of the log's sight, and the open segments they belong to."""

    due_ms: int
    segments: Sequence[Segment]
    paths: Sequence[str]


class Removals:
    """The files that are to be removed later."""

    def __init__(self) -> None:
        self._waiting: list[Removal] = []

    def add(self, removal: Removal) -> None:
        self._waiting.append(removal)

    def take_due(self, now_ms: int, let_go: Callable[[Segment], None]) -> list[Removal]:
        """Return what is due. Its segments are let go first: the last one to close a file frees its blocks."""
        for at, removal in enumerate(self._waiting):
            if removal.due_ms <= now_ms:
                for segment in removal.segments:
                    let_go(segment)
                self._waiting[at] = removal._replace(segments=())
        return [removal for removal in self._waiting if removal.due_ms <= now_ms]

    def were_carried_out(self, due: Sequence[Removal]) -> None:
        """Forget them. What is never carried out is due again the next time."""
        self._waiting = [removal for removal in self._waiting if removal not in due]

    def close(self) -> None:
        """Let go of the files; the next opening removes them."""
        for removal in self._waiting:
            for segment in removal.segments:
                segment.close()
