"""State of a log's flushes: when one is due, what has to be synced, and which files are kept open for them.

What must stay true: a segment that has left the log is closed once no flush is under way. A sync of a closed file would
seem to fail.
"""

from __future__ import annotations

from collections.abc import Iterator

from raylog.config import TopicConfig
from raylog.storage.segment.segment import Segment


class LogFlushes:
    """Told by its log of everything that changes what has to be synced.

    A flush is due when `flush.messages` or `flush.ms` say so, when a segment was sealed, or when an earlier flush
    proved nothing.
    """

    def __init__(self, counted_unsynced: int) -> None:
        self.counted_unsynced = counted_unsynced  # what is below may count though it is not synced
        self.name_changes = 1
        self.names_synced = 0
        self._records = 0
        self._waiting_since_ms: int | None = None
        self._at_once = False
        self._under_way = 0
        self._let_go: list[Segment] = []

    def appended(self, records: int, now_ms: int) -> None:
        self._records += records
        if self._waiting_since_ms is None:
            self._waiting_since_ms = now_ms

    def rolled(self) -> None:
        self.names_changed()
        self._at_once = True

    def names_changed(self) -> None:
        """Files came, went, or were renamed."""
        self.name_changes += 1

    def is_due(self, config: TopicConfig, now_ms: int) -> bool:
        if self._at_once or self._records >= config.flush_messages:
            return True
        if self._waiting_since_ms is None:
            return False
        return config.flush_policy == "fsync" or now_ms - self._waiting_since_ms >= config.flush_ms

    def began(self) -> None:
        self._records = 0
        self._waiting_since_ms = None
        self._at_once = False
        self._under_way += 1

    def proved_nothing(self) -> None:
        """Note that what the flush was to make safe still waits."""
        self._at_once = True

    def is_over(self) -> None:
        self._under_way -= 1
        self._close_if_idle()

    def let_go(self, segment: Segment) -> None:
        """Close a segment that has left the log, as soon as no flush can be at it."""
        self._let_go.append(segment)
        self._close_if_idle()

    @property
    def is_letting_go(self) -> bool:
        """Whether files of segments that have left the log are still open, for a flush."""
        return bool(self._let_go)

    def broken_invariants(self) -> Iterator[str]:
        """Say in words what contradicts the top of this file."""
        if self._under_way < 0:
            yield f"{-self._under_way} more flushes have ended than began"
        if self._let_go and not self._under_way:
            yield f"{len(self._let_go)} files of segments that have left the log are open, and no flush is under way"

    def close(self) -> None:
        """The log is closed, so nothing is kept open any more."""
        while self._let_go:
            self._let_go.pop().close()

    def _close_if_idle(self) -> None:
        if not self._under_way:
            self.close()
