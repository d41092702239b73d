"""The marks of a log, in memory and on disk: where it starts, how far it is replicated, how far it is synced.

`state.py` says what moves each of them.
"""

from __future__ import annotations

from dataclasses import replace

from raylog.storage.directory.partition_directory import CheckpointWrite, LogCheckpoint, PartitionDirectory, emptied


class LogMarks:
    """The marks of a log, and their copy on disk. Anybody may read them; the log alone moves them.

    What must stay true: nothing else moves a mark, so this is where it is decided what readers see. The copy on disk
    never says more than is so. It is `partition_directory.LogCheckpoint`, replaced whole.
    """

    __slots__ = (
        "_ahead",
        "_boot_id",
        "_directory",
        "created_as",
        "high_watermark",
        "log_start_offset",
        "recovery_point",
        "registers_later",
        "restart",
        "restart_ahead",
        "unproven",
    )

    def __init__(self, directory: PartitionDirectory, found: LogCheckpoint) -> None:
        self._directory = directory
        self._boot_id = found.boot_id
        self.created_as = found.created_as
        self._ahead: CheckpointWrite | None = None
        self.registers_later = False  # registered, but that is not written down: to be done before the first batch
        self.restart_ahead: CheckpointWrite | None = None  # the disk says that all goes, or soon does: it may not
        self._take(found)

    def _take(self, marks: LogCheckpoint) -> None:
        self.log_start_offset = marks.log_start_offset
        self.high_watermark = marks.high_watermark
        self.recovery_point = marks.recovery_point
        self.unproven = marks.unproven
        self.restart = marks.restart

    def now(self) -> LogCheckpoint:
        return LogCheckpoint(
            self._boot_id,
            self.recovery_point,
            self.high_watermark,
            self.log_start_offset,
            self.unproven,
            self.restart,
            self.created_as,
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
        if not self.is_written_ahead(offset):
            self._directory.write_checkpoint(replace(self.now(), log_start_offset=offset))
        self._ahead = None
        self.log_start_offset = offset

    def is_written_ahead(self, offset: int) -> bool:
        """Whether the disk says already that the log starts there."""
        ahead = self._ahead
        return ahead is not None and ahead.checkpoint.log_start_offset == offset and self._directory.is_newest(ahead)

    def write_ahead(self, offset: int) -> CheckpointWrite:
        """Return a job for another thread: it writes that the log starts there, before it does. `begin_at` then need
        not wait for the disk.

        A crash in between has the log start there already, so nothing must hold `offset` back any more. Whatever is
        written behind this takes it back.
        """
        self._ahead = self._directory.begin_checkpoint(replace(self.now(), log_start_offset=offset))
        return self._ahead

    def write_registered_ahead(self) -> CheckpointWrite:
        """Return a job for another thread: it writes that the controller has heard of this replica as it is, and that
        no restart is under way.

        `registered` need not wait for the disk then. Whatever is written behind this takes it back.
        """
        return self._directory.begin_checkpoint(replace(self.now(), unproven=""))

    def registered(self, ahead: CheckpointWrite) -> None:
        """The controller knows that this log is blank, or perhaps shorter than it was (rule 7)."""
        if self._directory.is_newest(ahead):
            self.unproven = ""
        else:
            self._write_and_take(replace(self.now(), unproven=""))
        self.registers_later = False
        self.restart_ahead = None

    def register(self) -> None:
        """Write down what was to be written later."""
        self._write_and_take(replace(self.now(), unproven=""))
        self.registers_later = False

    def write_cut_ahead(self, offset: int) -> CheckpointWrite | None:
        """Return a job for another thread: it writes down a cut before anything is cut, since what is written there
        next has not been synced. None: the marks are as low already.
        """
        lower = self._lowered_to(offset)
        return None if lower == self.now() else self._directory.begin_checkpoint(lower)

    def cut_to(self, offset: int) -> None:
        """The log is cut, as was written ahead."""
        self._take(self._lowered_to(offset))

    def _lowered_to(self, offset: int) -> LogCheckpoint:
        lower = min(self.recovery_point, offset), min(self.high_watermark, offset)
        return replace(self.now(), recovery_point=lower[0], high_watermark=lower[1])

    def write_restart_ahead(self, base_offset: int, log_start_offset: int) -> CheckpointWrite:
        """Return a job for another thread: it writes down that everything goes. From then on an opening carries that
        out, whatever is still there. Until it is made, or taken back, nothing must be appended.
        """
        marks = replace(self.now(), restart=(base_offset, log_start_offset))
        self.restart_ahead = self._directory.begin_checkpoint(marks)
        return self.restart_ahead

    def take_restart_back(self) -> None:
        """Let the disk not say that everything goes, where it went no further than that."""
        if self.restart_ahead is not None:
            self.write()
            self.restart_ahead = None

    def restarted(self, base_offset: int, log_start_offset: int) -> None:
        """Everything has left the log, as was written ahead. Its files are still to go, and all writes say so."""
        self._take(emptied(replace(self.now(), restart=(base_offset, log_start_offset))))
        self.restart = base_offset, log_start_offset
        self.restart_ahead = None

    def write_emptied(self) -> CheckpointWrite:
        """Return a job for another thread: the files of before a restart are gone."""
        self.restart = None
        return self.begin_write()

    def is_on_disk(self, write: CheckpointWrite | None) -> bool:
        """Whether it was written, and nothing behind it."""
        return write is None or self._directory.is_newest(write)

    def _write_and_take(self, marks: LogCheckpoint) -> None:
        self._directory.write_checkpoint(marks)
        self._take(marks)
