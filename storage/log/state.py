"""State that the parts of one open log share: segments, marks, flushes, files to remove, and whether it is online.

`PartitionLog` is this state with the calls that the rest of raylog makes. The other modules here are functions over it.

    mark               moved by                                          on disk
    log start offset   deletion and retention, forward; a restart        before it holds: what is gone never comes back
    high watermark     what is replicated, forward; a cut, back          now and then, and before a cut
    recovery point     a finished flush, forward; a cut, back            now and then, and before a cut
    unproven           an opening sets it, the controller clears it      before it holds

    log start offset ≤ last stable offset ≤ high watermark ≤ log end offset

What must stay true: a log that has gone offline never comes back online in this process (rule 2). While it is online,
`broken_invariants` has nothing to say between two calls.
"""

from __future__ import annotations

import functools
import logging
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Concatenate, Final, NamedTuple, ParamSpec, Protocol, TypeVar

from raylog.config import TopicConfig
from raylog.errors import DiskError, DiskFailed, LogDamaged, LogOffline, RaylogError
from raylog.storage.directory.doubts import BLANK
from raylog.storage.directory.partition_directory import PartitionDirectory
from raylog.storage.disk.file_to_come import FileToCome
from raylog.storage.log.marks import LogMarks
from raylog.storage.log.recovery import RecoveredLog
from raylog.storage.segment.damaged_ranges import DamagedRanges
from raylog.storage.segment.segment import Segment

if TYPE_CHECKING:
    from raylog.storage.log.job import StepJob

_log = logging.getLogger(__name__)

_P = ParamSpec("_P")
_R = TypeVar("_R")
_L = TypeVar("_L", bound="LogState")


class LogState:
    """One open log. Its owner's thread alone reads and changes it."""

    def __init__(self, directory: PartitionDirectory, config: TopicConfig, recovered: RecoveredLog) -> None:
        self.directory = directory
        self.disk = directory.disk
        self.config = config
        self.segments = recovered.segments
        self.epochs = recovered.epochs
        self.producers = recovered.producers
        self.opened_after = recovered.opened_after
        self.marks = LogMarks(directory, recovered.checkpoint)
        self.flushes = LogFlushes(self.log_end_offset)
        self.removals = Removals()
        self.damaged = DamagedRanges()
        self.when_damaged: Callable[[LogDamaged], None] = self.go_offline  # an owner may know more (rule 14)
        self.offline_because: RaylogError | None = None
        self.truncations = 0  # in this opening
        self.swap: StepJob | None = None  # compacted segments that are put in place
        self.cut: StepJob | None = None  # made here, not in the files yet: nothing may be appended before
        self._opening = secrets.token_hex(8)
        self.producers.settle(self.high_watermark)
        self.let_files_rest()

    @property
    def log_end_offset(self) -> int:
        return self.segments.active.next_offset

    @property
    def log_start_offset(self) -> int:
        return self.marks.log_start_offset

    @property
    def high_watermark(self) -> int:
        return self.marks.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction has ended, and its marker is replicated."""
        unstable, marks = self.producers.first_unstable_offset(), self.marks
        if unstable is None:
            return marks.high_watermark
        return max(marks.log_start_offset, min(unstable, marks.high_watermark))

    @property
    def recovery_point(self) -> int:
        """Everything below it has been synced."""
        return self.marks.recovery_point

    @property
    def unproven(self) -> str:
        """The reason why nobody may rely on this replica until the controller has heard of it (rule 7).

        It is kept through restarts.
        """
        return self.marks.unproven

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    @property
    def shape(self) -> tuple[str, int]:
        """Changes with every opening and every cut: segments at the same offsets may be others afterwards."""
        return self._opening, self.truncations

    def let_files_rest(self) -> None:
        """Let the files of sealed segments be closed while nobody reads them, newest first, as far as they are new.

        Not while a flush is at them on another thread.
        """
        if self.flushes.is_idle:
            for segment in reversed(self.segments.sealed):
                if segment.next_offset <= self.recovery_point and not segment.let_file_rest():
                    break

    def advance_high_watermark(self, offset: int) -> None:
        """Move the high watermark forward; never past the end of the log."""
        end = self.segments.active.next_offset
        if self.marks.replicated_to(offset if offset < end else end):
            self.producers.settle(self.marks.high_watermark)

    def flush_due(self, now_ms: int) -> bool:
        return self.flushes.is_due(self.config, now_ms)

    def segment_to_come(self, base_offset: int) -> Segment:
        """Return an empty segment that grows once its file is there."""
        return Segment.without_file(
            self.disk, self.directory.path, base_offset, self.config.index_interval_bytes, self.epochs
        )

    def new_segment(self, base_offset: int) -> Segment:
        """Create an empty segment that grows. The list of segments does not have it yet."""
        return Segment.create(
            self.disk, self.directory.path, base_offset, self.config.index_interval_bytes, self.epochs
        )

    @property
    def may_register_later(self) -> bool:
        """Whether nothing would be lost with the word that it is registered: it was created, and never held anything.

        The controller knows such a directory again by the incarnation that has created it (`created_as`).
        """
        marks = self.marks
        return marks.unproven == BLANK and marks.created_as != 0 and not self.size_bytes and marks.restart_ahead is None

    def make_first_file(self) -> None:
        """Let the growing segment have a file: a log that holds nothing may do without."""
        active = self.segments.active
        if isinstance(active.file, FileToCome):
            try:
                active.make_file()
            finally:
                self.flushes.names_changed()
                self.directory.has_new_segment = True

    def opened_segment(self, base_offset: int, next_offset: int, suffix: str) -> Segment:
        """Open a sealed segment whose files are there already."""
        segment = Segment.open(
            self.disk, self.directory.path, base_offset, self.config.index_interval_bytes, self.epochs, suffix
        )
        segment.next_offset = next_offset
        return segment

    def remove_later(self, segments: Sequence[Segment], paths: Sequence[str], now_ms: int) -> None:
        """Keep files that have left the log for `file.delete.delay.ms`."""
        self.removals.add(Removal(now_ms + self.config.file_delete_delay_ms, segments, paths))

    def broken_invariants(self) -> Iterator[str]:
        """Say in words what contradicts the heads of this file and of those that it is made of."""
        end = self.log_end_offset
        marks = self.log_start_offset, self.last_stable_offset, self.high_watermark, end
        if not 0 <= marks[0] <= marks[1] <= marks[2] <= marks[3]:
            yield f"log start, last stable offset, high watermark, log end are not in order: {marks}"
        if self.recovery_point > end:
            yield f"the recovery point {self.recovery_point} lies behind the log's end {end}"
        if self.segments[0].base_offset > self.log_start_offset:
            yield f"the first segment is {self.segments[0].base_offset}, the log starts at {self.log_start_offset}"
        yield from self.segments.broken_invariants()
        yield from self.epochs.broken_invariants(end)
        yield from self.flushes.broken_invariants()

    def settle(self) -> None:
        """Leave no segment half in place, and no cut half made."""
        self._finish(self.settle_in_steps())

    def settle_swap(self) -> None:
        """Leave no segment half in place."""
        self._finish(self._swap_in_steps())

    def settle_in_steps(self) -> Iterator[Callable[[], object]]:
        """Do what `settle` does, with the slow work for whoever asks to do, on any thread."""
        yield from self._swap_in_steps()
        if self.cut is not None:
            yield from self.cut.settle_in_steps()

    def _swap_in_steps(self) -> Iterator[Callable[[], object]]:
        if self.swap is not None:
            yield from self.swap.settle_in_steps()
            self.swap = None

    def _finish(self, steps: Iterator[Callable[[], object]]) -> None:
        try:
            for work in steps:
                work()
        except RaylogError as error:
            self.go_offline(error)
            raise

    def go_offline(self, error: RaylogError) -> None:
        """Serve and take nothing more. Damage is remembered through restarts."""
        if self.offline_because is None:
            self.offline_because = error
            _log.error("%s goes offline: %s", self.directory.path, error)
            if isinstance(error, LogDamaged):
                quarantine(self.directory, error)
            elif isinstance(error, DiskError):
                self._note_failed_disk(error)

    def met_while_reading(self, error: RaylogError) -> None:
        """A failed disk takes the log offline. What damage means is for the owner to say."""
        if isinstance(error, LogDamaged):
            self.when_damaged(error)
        else:
            self.go_offline(error)

    def _note_failed_disk(self, error: DiskError) -> None:
        try:
            self.directory.note_failed_disk(error)
        except DiskError as refused:  # with fsync the next process writes again what was unsynced in any case
            _log.error("%s: its disk failed, and that could not be written down: %s", self.directory.path, refused)


def make_whole(log: LogState) -> None:
    """Leave nothing under way that an append would have to wait for. Its owner has seen to that nearly always."""
    if log.cut is not None:
        log.settle()
    if log.marks.restart_ahead is not None:
        log.marks.take_restart_back()
    if log.marks.registers_later:
        log.marks.register()


class Closable(Protocol):
    """An open file, or a segment with one."""

    def close(self) -> None:
        """Close it."""


class LogFlushes:
    """Say when a flush is due, what it has to sync, and which files are kept open for it.

    A flush is due when `flush.messages` or `flush.ms` say so, when a segment was sealed, or when an earlier flush
    proved nothing.

    What must stay true: a segment that has left the log is closed once no flush is under way. A sync of a closed file
    would seem to fail.
    """

    def __init__(self, counted_unsynced: int) -> None:
        self.counted_unsynced = counted_unsynced  # what is below may count though it is not synced
        self.name_changes = 1
        self.names_synced = 0
        self._records = 0
        self._waiting_since_ms: int | None = None
        self._at_once = False
        self._under_way = 0
        self._let_go: list[Closable] = []

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

    def due_in_ms(self, config: TopicConfig, now_ms: int) -> int | None:
        """Return when `flush.ms` will be over for what waits now. None: nothing waits."""
        return None if self._waiting_since_ms is None else self._waiting_since_ms + config.flush_ms - now_ms

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

    @property
    def is_idle(self) -> bool:
        """Whether no flush is at the files on another thread."""
        return not self._under_way

    def let_go(self, left: Closable) -> None:
        """Close a segment, or a file, that has left the log, as soon as no flush can be at it."""
        self._let_go.append(left)
        self._close_if_idle()

    @property
    def is_letting_go(self) -> bool:
        """Whether files of segments that have left the log are still open, for a flush."""
        return bool(self._let_go)

    def broken_invariants(self) -> Iterator[str]:
        """Say in words what contradicts the text of this class."""
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


class Removal(NamedTuple):
    """Files out of the log's sight, and the open segments they belong to."""

    due_ms: int
    segments: Sequence[Segment]
    paths: Sequence[str]


class Removals:
    """Files that have left the log and wait for their removal.

    What must stay true: a file stays for `file.delete.delay.ms` after it has left the log, since readers on this
    machine may be in the middle of it.
    """

    def __init__(self) -> None:
        self._waiting: list[Removal] = []

    def add(self, removal: Removal) -> None:
        self._waiting.append(removal)

    def due_in_ms(self, now_ms: int) -> int | None:
        """Return when the first file may be removed. None: none waits for that."""
        return min((removal.due_ms for removal in self._waiting), default=now_ms) - now_ms if self._waiting else None

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


def quarantine(directory: PartitionDirectory, damage: LogDamaged) -> None:
    """Write down that the replica is damaged. A disk that refuses even that must not hide the damage itself."""
    try:
        directory.quarantine(damage)
    except DiskError as error:
        _log.error("%s is damaged, and that could not be written down: %s", directory.path, error)


class Guard:
    """Wraps the calls of a log: none runs on a log that is offline, and `tell` hears of the errors named here."""

    def __init__(self, tell: Callable[[LogState, RaylogError], None], *errors: type[RaylogError]) -> None:
        self._tell = tell
        self._errors = errors

    def __call__(self, call: Callable[Concatenate[_L, _P], _R]) -> Callable[Concatenate[_L, _P], _R]:
        tell, errors = self._tell, self._errors

        @functools.wraps(call)
        def guarded(log: _L, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
            if log.offline_because is not None:
                raise LogOffline(f"{log.directory.path} is offline: {log.offline_because}")
            try:
                return call(log, *args, **kwargs)
            except errors as error:
                tell(log, error)
                raise

        return guarded


while_open: Final = Guard(LogState.go_offline, DiskFailed, LogDamaged)
reading: Final = Guard(LogState.met_while_reading, DiskFailed, LogDamaged)  # for calls that change nothing
all_or_offline: Final = Guard(LogState.go_offline, RaylogError)  # for calls that cannot be undone half way
