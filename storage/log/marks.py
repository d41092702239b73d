"""The marks of one log: where it begins, how far it is replicated, how far it is synced. And their copy on disk.

    mark               moved by                                          on disk
    log start offset   deletion and retention, forward; a restart        before it holds: what is gone never comes back
    high watermark     what is replicated, forward; a cut, back          now and then, and before a cut
    recovery point     a finished flush, forward; a cut, back            now and then, and before a cut
    unproven           an opening sets it, the controller clears it      before it holds

What must stay true: nothing else moves a mark, so this is where it is decided what readers see; and the copy on disk
never says more than is so. It is `partition_directory.LogCheckpoint`, replaced whole.
"""

from __future__ import annotations

from dataclasses import replace

from raylog.storage.directory.partition_directory import CheckpointWrite, LogCheckpoint, PartitionDirectory


class LogMarks:
    """The marks of a log. Anybody may read them; the log alone moves them."""

    __slots__ = ("_ahead", "_boot_id", "_directory", "high_watermark", "log_start_offset", "recovery_point", "unproven")

    def __init__(self, directory: PartitionDirectory, found: LogCheckpoint) -> None:
        self._directory = directory
        self._boot_id = found.boot_id
        self._ahead: CheckpointWrite | None = None
        self._take(found)

    def _take(self, marks: LogCheckpoint) -> None:
        self.log_start_offset = marks.log_start_offset
        self.high_watermark = marks.high_watermark
        self.recovery_point = marks.recovery_point
        self.unproven = marks.unproven

    def now(self) -> LogCheckpoint:
        return LogCheckpoint(
            self._boot_id, self.recovery_point, self.high_watermark, self.log_start_offset, self.unproven
        )

    def write(self) -> None:
        self._directory.write_checkpoint(self.now())

    def begin_write(self) -> CheckpointWrite:
        """The same for another thread to carry out."""
        return self._directory.begin_checkpoint(self.now())

    # --- moving them ---

    def replicated_to(self, offset: int) -> bool:
        """Forward only; whether it moved."""
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        return True

    def synced_to(self, offset: int) -> None:
        self.recovery_point = max(self.recovery_point, offset)

    def begin_at(self, offset: int) -> None:
        """The log starts there: on disk first, since what is below may be removed from now on."""
        ahead, self._ahead = self._ahead, None
        if ahead is None or ahead.checkpoint.log_start_offset != offset or not self._directory.is_newest(ahead):
            self._directory.write_checkpoint(replace(self.now(), log_start_offset=offset))
        self.log_start_offset = offset

    def write_ahead(self, offset: int) -> CheckpointWrite:
        """Return a job for another thread: it writes that the log starts there, before it does. `begin_at` then need
        not wait for the disk.

        A crash in between has the log start there already, so nothing must hold `offset` back any more. Whatever is
        written behind this takes it back.
        """
        self._ahead = self._directory.begin_checkpoint(replace(self.now(), log_start_offset=offset))
        return self._ahead

    def registered(self) -> None:
        """The controller knows why this log is not to be relied upon (rule 7)."""
        self._write_and_take(replace(self.now(), unproven=""))

    def before_cut_to(self, offset: int) -> None:
        """Write the cut down before anything is cut: what is written there next has not been synced."""
        lower = replace(
            self.now(),
            recovery_point=min(self.recovery_point, offset),
            high_watermark=min(self.high_watermark, offset),
        )
        if lower != self.now():
            self._write_and_take(lower)

    def before_restart(self, base_offset: int, log_start_offset: int) -> LogCheckpoint:
        """Write down that everything goes: from here on an opening carries it out, whatever is still there."""
        marks = replace(self.now(), restart=(base_offset, log_start_offset))
        self._directory.write_checkpoint(marks)
        return marks

    def restarted(self, empty: LogCheckpoint) -> None:
        """The log is empty; these are its marks, and on disk."""
        self._take(empty)

    def _write_and_take(self, marks: LogCheckpoint) -> None:
        self._directory.write_checkpoint(marks)
        self._take(marks)
