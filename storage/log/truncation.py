"""Cutting the end of a log, or all of it: what a follower does to agree with its leader (rules 9 to 11).

What must stay true: a crash at any step leaves a log that opens, as it was or as it is to be. So the marks on disk go
down before anything is cut, segments go from the last to the first, and what is cut is synced before anything else is
written in its place. Throwing everything away is written down before it begins, and finished by the next opening.
"""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from raylog.errors import OffsetOutOfRange
from raylog.storage.compaction.progress import cut_progress
from raylog.storage.directory.partition_directory import DELETED_SUFFIX, LogCheckpoint
from raylog.storage.disk.sealed_file import SealBroken
from raylog.storage.format.record_batch import MAX_OFFSET
from raylog.storage.log.job import Job
from raylog.storage.log.recovery import finish_restart
from raylog.storage.log.state import LogState, all_or_offline
from raylog.storage.segment.batch_scan import ChainBroken, scan_file
from raylog.storage.segment.leader_epochs import LeaderEpochs
from raylog.storage.segment.producer_replay import know_transactions, replay, states_before
from raylog.storage.segment.producer_state import SNAPSHOT_SUFFIX, ProducerStates, take_in
from raylog.storage.segment.segment import LOG_SUFFIX, Place, Segment
from raylog.storage.segment.segment_list import SegmentList


class Cut(NamedTuple):
    """The place where a log is to end: at `place` of this segment."""

    last: Segment
    place: Place


class _Source(NamedTuple):
    """The files of one segment, as far as they will be left."""

    base_offset: int
    size: int
    log_path: str
    snapshot_path: str


class PreparedCut:
    """The slow part of a cut, done on any thread before it. It opens the files that it reads itself.

    The log stays as it is. A cut that is made without this, or elsewhere, does all of it itself.
    """

    def __init__(self, log: LogState, cut: Cut, now_ms: int) -> None:
        self._disk = log.disk
        self._now_ms = now_ms
        self._epochs = LeaderEpochs(log.disk, log.directory.path, list(log.epochs.history))
        self._sources = [
            _Source(each.base_offset, each.size, each.path(LOG_SUFFIX), each.path(SNAPSHOT_SUFFIX))
            for each in log.segments
            if each.base_offset < cut.last.base_offset
        ]
        last = cut.last
        size = cut.place.position
        self._sources.append(_Source(last.base_offset, size, last.path(LOG_SUFFIX), last.path(SNAPSHOT_SUFFIX)))
        self._made_for = log.shape
        self._offset = cut.place.base_offset
        self._last = last
        self._is_shared = last.file.links() > 1
        self._producers: ProducerStates | None = None
        self._replacement = ""

    def carry_out(self) -> None:
        """Sync the segment that is to be cut, since a cut syncs all of it, and find out about the producers."""
        try:
            if self._is_shared:
                self._replacement = self._last.write_replacement(self._sources[-1].size)
            else:
                self._sync_last()
            self._producers = self._states()
        except (FileNotFoundError, ChainBroken):  # compaction or another cut was quicker, or it is damaged: see above
            self._producers = None

    def _sync_last(self) -> None:
        file = self._disk.open(self._sources[-1].log_path)
        try:
            file.sync()
        finally:
            file.close()

    def _states(self) -> ProducerStates:
        states, first = self._nearest_snapshot()
        for source in self._sources[first:]:
            file = self._disk.open(source.log_path)
            try:
                for _, header, batch in scan_file(file, source.base_offset, self._epochs, end=source.size):
                    take_in(states, header, batch, self._now_ms)
            finally:
                file.close()
        return states

    def _nearest_snapshot(self) -> tuple[ProducerStates, int]:
        for at in range(len(self._sources) - 1, -1, -1):
            source = self._sources[at]
            with contextlib.suppress(SealBroken):
                return ProducerStates.load(self._disk, source.snapshot_path, source.base_offset), at
        return ProducerStates(), 0

    def producers_for(self, log: LogState, cut: Cut) -> ProducerStates | None:
        """Return the producers as they are where the log is cut; None where that is not known."""
        return self._producers if self._is_for(log, cut) else None

    def replacement_for(self, log: LogState, cut: Cut) -> str:
        """Return what takes the place of a file that a copy of the log has too; empty where it is not made yet."""
        return self._replacement if self._is_for(log, cut) else ""

    def _is_for(self, log: LogState, cut: Cut) -> bool:
        return self._made_for == log.shape and self._offset == cut.place.base_offset


class Truncation(Job[int]):
    """Cuts a log as `truncate_to` does, with the slow part done before."""

    def __init__(self, log: LogState, offset: int, now_ms: int) -> None:
        super().__init__(log)
        cut = find_cut(log, offset) if offset < log.log_end_offset else None
        self._offset = offset
        self._now_ms = now_ms
        self._prepared = None if cut is None else PreparedCut(log, cut, now_ms)

    @property
    def has_work(self) -> bool:
        return self._prepared is not None

    def work(self) -> None:
        if self._prepared is not None:
            self._prepared.carry_out()

    def _take_in(self) -> int:
        return _truncate(self._log, self._offset, self._now_ms, self._prepared)


def truncate_to(log: LogState, offset: int, now_ms: int) -> int:
    """Cut the log so that it ends at `offset` or before; returns the new log end offset.

    An offset inside a batch takes the batch with it: the leader sends it again.
    """
    return _truncate(log, offset, now_ms, None)


def _truncate(log: LogState, offset: int, now_ms: int, prepared: PreparedCut | None) -> int:
    if offset >= log.log_end_offset:
        log.epochs.cut_end(log.log_end_offset)  # an epoch of ours that wrote nothing is not the leader's history
        return log.log_end_offset
    log.settle()
    cut = find_cut(log, offset)
    if cut is None:
        restart(log, log.log_start_offset, log.log_start_offset)
    else:
        producers = None if prepared is None else prepared.producers_for(log, cut)
        prepare_cut(log, cut, now_ms)
        carry_out_cut(log, cut, now_ms, producers, "" if prepared is None else prepared.replacement_for(log, cut))
    return log.log_end_offset


def restart_at(log: LogState, offset: int) -> None:
    """Throw everything away and go on empty from `offset`, as a follower that is too far behind does."""
    if not 0 <= offset <= MAX_OFFSET:
        raise OffsetOutOfRange(offset, 0, MAX_OFFSET)
    restart(log, offset, offset)


def restart(log: LogState, base_offset: int, log_start_offset: int) -> None:
    """Throw everything away. The next batch is that of `base_offset`, and reading starts at `log_start_offset`."""
    log.settle()
    _carry_out_restart(log, log.marks.before_restart(base_offset, log_start_offset))


def find_cut(log: LogState, offset: int) -> Cut | None:
    """Return where to cut for the log to end at `offset` or before; None where nothing that is served would be left."""
    if offset <= log.log_start_offset:
        return None
    last = log.segments.containing(offset - 1)
    place = last.locate(offset) if last.next_offset > offset else last.end
    return Cut(last, place) if place.base_offset >= log.log_start_offset else None  # else it lies across the start


def prepare_cut(log: LogState, cut: Cut, now_ms: int) -> None:
    """All that can still be refused without harm, by a full disk above all."""
    know_transactions(log.segments, cut.last, now_ms)
    log.marks.before_cut_to(cut.place.base_offset)
    log.truncations += 1


@all_or_offline
def carry_out_cut(
    log: LogState, cut: Cut, now_ms: int, producers: ProducerStates | None, replacement: str = ""
) -> None:
    """Make the cut. `producers`: as they will be, if that is known; `replacement`: see `Segment.truncate`."""
    for later in reversed([segment for segment in log.segments if segment.base_offset > cut.last.base_offset]):
        log.segments.remove(later)
        _remove(log, later)
    if cut.last.is_sealed or cut.last.end != cut.place:
        cut.last.truncate(cut.place, replacement)
    _forget_after_end(log, now_ms, producers)


@all_or_offline
def _carry_out_restart(log: LogState, written: LogCheckpoint) -> None:
    """Throw everything away. `written`: the marks that are on disk since that was prepared."""
    assert written.restart is not None
    log.truncations += 1
    for segment in log.segments:
        _remove(log, segment)
    empty = finish_restart(log.directory, log.epochs, written)
    log.segments = SegmentList([log.new_segment(written.restart[0])])
    log.producers = ProducerStates()
    log.marks.restarted(empty)
    log.flushes.names_changed()


def _remove(log: LogState, segment: Segment) -> None:
    for path in segment.retire(DELETED_SUFFIX):
        log.disk.remove(path)
    log.flushes.let_go(segment)


def _forget_after_end(log: LogState, now_ms: int, producers: ProducerStates | None) -> None:
    """Forget whatever speaks of offsets that are gone: epochs, snapshots, producers' state, compaction progress."""
    end = log.log_end_offset
    log.epochs.cut_end(end)
    log.epochs.take_back()
    log.directory.remove_snapshots(keep=log.segments.bases())
    log.disk.sync_directory(log.directory.path)
    if producers is None:
        producers = states_before(log.segments, len(log.segments) - 1, now_ms)
        replay(producers, [log.segments.active], now_ms)
    log.producers = producers
    log.producers.settle(log.high_watermark)
    cut_progress(log.directory, end)
