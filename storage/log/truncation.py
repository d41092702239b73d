"""Cutting the end of a log, or all of it: what a follower does to agree with its leader (rules 9 to 11).

    1. beside    read what stays; write down that the log is cut, or that all of it goes
    2. owner     in memory the log is cut from here on
    3. beside    its files are cut, or removed; the epochs, and that nothing is left of it, are written down
    4. owner     appends go on (`LogState.cut` holds them back meanwhile)

Before step 2 a cut may be given up, and the log is as it was. From then on it is finished, whoever does that.

What must stay true: a crash at any step leaves a log that opens, as it was or as it is to be. So the marks on disk go
down before anything is cut, segments go from the last to the first, and what is cut is synced before anything else is
written in its place. Throwing everything away is written down before it begins, and finished by the next opening.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from raylog.errors import DiskBusy, DiskFailed, OffsetOutOfRange, RaylogError
from raylog.storage.compaction.progress import cut_progress
from raylog.storage.directory.partition_directory import DELETED_SUFFIX
from raylog.storage.disk.disk import DiskFile
from raylog.storage.format.record_batch import MAX_OFFSET
from raylog.storage.log.cut_preparation import Cut, CutPreparation
from raylog.storage.log.job import StepJob
from raylog.storage.log.state import LogState, all_or_offline
from raylog.storage.segment.cutting import cut_file, remove_file
from raylog.storage.segment.producer_state import SNAPSHOT_SUFFIX, ProducerStates
from raylog.storage.segment.segment import INDEX_SUFFIXES, LOG_SUFFIX, Segment
from raylog.storage.segment.segment_list import SegmentList

_Steps: TypeAlias = Iterator[Callable[[], object]]

_TRIES: Final = 5  # while compaction or retention takes segments away


class Truncation(StepJob):
    """Lets the log end at `offset` or before: steps 1 and 2. `LogState.cut` is the job for the others.

    An offset inside a batch takes the batch with it: the leader sends it again. Nothing may be appended meanwhile.
    """

    def __init__(self, log: LogState, offset: int, now_ms: int) -> None:
        super().__init__(log)
        self._offset = offset
        self._now_ms = now_ms
        if offset < log.log_end_offset:
            self.take_step()

    def _run(self) -> _Steps:
        log = self._log
        if self._offset >= log.log_end_offset:
            log.epochs.cut_end(log.log_end_offset)  # an epoch of ours that wrote nothing is not the leader's history
        elif self._offset <= log.log_start_offset:
            yield from _restart(log, log.log_start_offset, log.log_start_offset)
        else:
            yield from self._cut()

    def _cut(self) -> _Steps:
        log = self._log
        for _ in range(_TRIES):
            yield from log.settle_in_steps()
            found = CutPreparation(log, self._offset, self._now_ms)
            yield found.carry_out
            if found.damage is not None and found.is_of(log):
                raise found.damage
            cut = found.cut
            if cut is None or not found.is_of(log):
                continue
            if cut.place.base_offset < log.log_start_offset:  # it would take the batch across the start
                yield from _restart(log, log.log_start_offset, log.log_start_offset)
                return
            yield from _written_ahead(log, cut.place.base_offset)
            if found.is_of(log) and cut.place.base_offset >= log.log_start_offset:
                _make_cut(log, cut)
                return
        raise DiskBusy(f"{log.directory.path} was not cut: its segments are being replaced.")


class Restart(StepJob):
    """Throws everything away: steps 1 and 2. The next batch is that of `base_offset`, reading starts at
    `log_start_offset`.
    """

    def __init__(self, log: LogState, base_offset: int, log_start_offset: int | None = None) -> None:
        super().__init__(log)
        if not 0 <= base_offset <= MAX_OFFSET:
            raise OffsetOutOfRange(base_offset, 0, MAX_OFFSET)
        self._offsets = base_offset, base_offset if log_start_offset is None else log_start_offset
        self.take_step()

    def _run(self) -> _Steps:
        yield from _restart(self._log, *self._offsets)


def truncate_to(log: LogState, offset: int, now_ms: int) -> int:
    """Make all of a `Truncation`; returns the new log end offset."""
    Truncation(log, offset, now_ms).run()
    log.settle()
    return log.log_end_offset


def restart_at(log: LogState, offset: int) -> None:
    """Throw everything away and go on empty from `offset`, as a follower that is too far behind does."""
    restart(log, offset, offset)


def restart(log: LogState, base_offset: int, log_start_offset: int) -> None:
    """Make all of a `Restart`."""
    Restart(log, base_offset, log_start_offset).run()
    log.settle()


# --- steps 1 and 2 ----------------------------------------------------------------------------------------------------


def _written_ahead(log: LogState, offset: int) -> _Steps:
    while True:
        yield from log.settle_in_steps()
        write = log.marks.write_cut_ahead(offset)
        if write is not None:
            yield write.carry_out
        if log.marks.is_on_disk(write) and log.swap is None:
            return


def _restart(log: LogState, base_offset: int, log_start_offset: int) -> _Steps:
    while True:
        yield from log.settle_in_steps()
        write = log.marks.write_restart_ahead(base_offset, log_start_offset)
        yield write.carry_out
        if log.marks.is_on_disk(write) and log.swap is None:
            break
    _make_restart(log, base_offset, log_start_offset)


@all_or_offline
def _make_cut(log: LogState, cut: Cut) -> None:
    log.truncations += 1
    gone = [segment for segment in log.segments if segment.base_offset > cut.last.base_offset]
    for later in reversed(gone):
        log.segments.remove(later)
        log.flushes.let_go(later)
    is_shorter = cut.last.is_sealed or cut.last.end != cut.place
    if is_shorter:
        cut.last.end_at(cut.place, cut.indexes, cut.transactions)
    log.marks.cut_to(log.log_end_offset)
    log.epochs.cut_end(log.log_end_offset)
    log.producers = cut.producers
    log.producers.settle(log.high_watermark)
    log.cut = _CutFiles(log, cut, gone, is_shorter)


@all_or_offline
def _make_restart(log: LogState, base_offset: int, log_start_offset: int) -> None:
    log.truncations += 1
    for segment in log.segments:
        log.flushes.let_go(segment)
    log.segments = SegmentList([log.segment_to_come(base_offset)])
    log.producers = ProducerStates()
    log.epochs.forget_all()
    log.marks.restarted(base_offset, log_start_offset)
    log.cut = _RestartFiles(log, base_offset)


# --- steps 3 and 4 ----------------------------------------------------------------------------------------------------


class _FilesOfCut(StepJob):
    """Carries out on disk what the log has taken in already: if that fails, the log is offline."""

    def abandon(self) -> None:
        failure = self._failure
        if not isinstance(failure, RaylogError):
            failure = DiskFailed(f"{self._log.directory.path} was cut in memory only: {failure!r}")
        self._log.go_offline(failure)


class _CutFiles(_FilesOfCut):
    def __init__(self, log: LogState, cut: Cut, gone: list[Segment], is_shorter: bool) -> None:
        super().__init__(log)
        self._cut = cut
        self._is_shorter = is_shorter
        self._gone = [
            [segment.path(kind) for kind in (*INDEX_SUFFIXES, SNAPSHOT_SUFFIX, LOG_SUFFIX)] for segment in gone
        ]
        self._epochs = log.epochs.write_as_it_is() if log.epochs.is_stale else None
        self._keep = log.segments.bases()
        self._end = log.log_end_offset
        self._replaced: DiskFile | None = None
        self.take_step()

    def _run(self) -> _Steps:
        yield self._carry_out
        log, last = self._log, self._cut.last
        if self._replaced is not None:
            log.flushes.let_go(last.file)
            last.file = self._replaced
        log.epochs.note_written()
        log.cut = None

    def _carry_out(self) -> None:
        directory = self._log.directory
        with directory.copy_lock:  # a copy that nobody waits for any more may be made of these files
            for paths in reversed(self._gone):
                self._remove(paths)
            if self._is_shorter:
                self._cut_last()
        if self._epochs is not None:
            self._epochs.carry_out()
        directory.remove_snapshots(keep=self._keep)
        directory.disk.sync_directory(directory.path)
        cut_progress(directory, self._end)

    def _remove(self, paths: list[str]) -> None:
        disk = self._log.disk
        there = [path for path in paths if disk.exists(path)]
        for path in there:
            disk.rename(path, path + DELETED_SUFFIX)
        for path in there:
            if path.endswith(LOG_SUFFIX):
                remove_file(disk, path + DELETED_SUFFIX)
            else:
                disk.remove(path + DELETED_SUFFIX)

    def _cut_last(self) -> None:
        last, place = self._cut.last, self._cut.place
        self._replaced = cut_file(
            self._log.disk, last.file, last.path(LOG_SUFFIX), last.index_paths(), place.position, self._cut.replacement
        )


class _RestartFiles(_FilesOfCut):
    def __init__(self, log: LogState, base_offset: int) -> None:
        super().__init__(log)
        self._base_offset = base_offset
        self._epochs = log.epochs.write_as_it_is()
        self._first: Segment | None = None
        self.take_step()

    def _run(self) -> _Steps:
        log = self._log
        yield self._remove_files
        while True:
            write = log.marks.write_emptied()
            yield write.carry_out
            if log.marks.is_on_disk(write):
                break
        yield self._make_file
        assert self._first is not None
        log.segments = SegmentList([self._first])
        log.epochs.note_written()
        log.flushes.names_changed()
        log.cut = None

    def _remove_files(self) -> None:
        directory = self._log.directory
        with directory.copy_lock:
            directory.remove_segment_files()
        directory.disk.sync_directory(directory.path)
        self._epochs.carry_out()  # before the log can begin elsewhere: see `finish_restart`
        cut_progress(directory, self._base_offset)

    def _make_file(self) -> None:
        self._first = self._log.new_segment(self._base_offset)
