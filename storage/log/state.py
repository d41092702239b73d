"""State that the parts of one open log share: its segments, its marks, and whether it is online.

`PartitionLog` is this state with the calls that the rest of raylog makes. The other modules here are functions over it.

    log start offset ≤ last stable offset ≤ high watermark ≤ log end offset

What must stay true: a log that has gone offline never comes back online in this process (rule 2). While it is online,
`broken_invariants` has nothing to say between two calls.
"""

from __future__ import annotations

import functools
import logging
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Concatenate, Final, ParamSpec, TypeVar

from raylog.config import TopicConfig
from raylog.errors import DiskError, DiskFailed, LogDamaged, LogOffline, RaylogError
from raylog.storage.directory.partition_directory import PartitionDirectory
from raylog.storage.log.flushes import LogFlushes
from raylog.storage.log.marks import LogMarks
from raylog.storage.log.recovery import RecoveredLog
from raylog.storage.log.removals import Removal, Removals
from raylog.storage.segment.damaged_ranges import DamagedRanges
from raylog.storage.segment.segment import Segment

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
        self.finish_swap: Callable[[], None] | None = None  # set while compacted segments are put in place
        self._opening = secrets.token_hex(8)
        self.producers.settle(self.high_watermark)

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

    def new_segment(self, base_offset: int) -> Segment:
        """Create an empty segment that grows. The list of segments does not have it yet."""
        return Segment.create(
            self.disk, self.directory.path, base_offset, self.config.index_interval_bytes, self.epochs
        )

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
        """Leave no segment half in place."""
        finish, self.finish_swap = self.finish_swap, None
        if finish is not None:
            try:
                finish()
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
