"""Cutting the end of a log, or all of it: what a follower does to agree with its leader (rules 9 to 11).

What must stay true: a crash at any step leaves a log that opens: as it was, as it is to be, or cut further than that.
So the marks on disk go down before anything is cut, segments go from the last to the first, and what is cut is synced
before anything else is written in its place.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from raylog.storage.compaction_progress import cut_progress
from raylog.storage.partition_directory import DELETED_SUFFIX, LogCheckpoint
from raylog.storage.producer_replay import know_transactions, replay, states_before
from raylog.storage.producer_state import ProducerStates
from raylog.storage.segment import Segment

if TYPE_CHECKING:
    from raylog.storage.partition_log import PartitionLog


def truncate_to(log: PartitionLog, offset: int, now_ms: int) -> None:
    """Let the log end at `offset`, or at the beginning of the batch that holds it."""
    if offset >= log.log_end_offset:
        return
    if offset <= log.log_start_offset:
        restart(log, log.log_start_offset, log_start_offset=log.log_start_offset)
        return
    last = log.segments.containing(offset - 1)
    place = last.locate(offset) if last.next_offset > offset else last.end
    if place.base_offset < log.log_start_offset:  # the batch across the log's start would go too
        restart(log, log.log_start_offset, log_start_offset=log.log_start_offset)
        return
    know_transactions(log.segments, last, now_ms)
    _lower_marks(log, place.base_offset)
    for later in reversed([segment for segment in log.segments if segment.base_offset > last.base_offset]):
        _drop(log, later)
    if last.is_sealed or last.next_offset > offset:
        last.truncate(place)
    _forget_after_end(log, now_ms)


def restart(log: PartitionLog, base_offset: int, log_start_offset: int) -> None:
    """Throw everything away; the log goes on empty with a segment at `base_offset`."""
    end = log.log_end_offset
    # First the whole log counts as deleted, so that a crash from here on finds nothing missing. The recovery point
    # stays: what is above it may be torn, though nobody misses it.
    log.directory.write_checkpoint(LogCheckpoint(log.boot_id, log.recovery_point, end, end))
    for segment in list(log.segments):
        _drop(log, segment)
    log.directory.remove_snapshots(keep=())
    log.disk.sync_directory(log.directory.path)
    log.epochs.clear()  # before the log can begin elsewhere: a history from here would refuse what the leader has there
    log.directory.write_checkpoint(LogCheckpoint(log.boot_id, base_offset, log_start_offset, log_start_offset))
    log.segments.add(log.new_segment(base_offset))
    log.producers = ProducerStates()
    log.log_start_offset = log.high_watermark = log_start_offset
    log.recovery_point = base_offset
    log.truncations += 1
    log.name_changes += 1
    cut_progress(log.disk, log.directory.path, base_offset)


def _lower_marks(log: PartitionLog, offset: int) -> None:
    """On disk before anything is cut: what is written there next has not been synced."""
    recovery_point, high_watermark = min(log.recovery_point, offset), min(log.high_watermark, offset)
    if (recovery_point, high_watermark) != (log.recovery_point, log.high_watermark):
        lower = replace(log.marks(), recovery_point=recovery_point, high_watermark=high_watermark)
        log.directory.write_checkpoint(lower)
        log.recovery_point, log.high_watermark = recovery_point, high_watermark
    log.truncations += 1


def _drop(log: PartitionLog, segment: Segment) -> None:
    log.segments.remove(segment)
    for path in segment.retire(DELETED_SUFFIX):
        log.disk.remove(path)
    log.let_go(segment)


def _forget_after_end(log: PartitionLog, now_ms: int) -> None:
    """Whatever speaks of offsets that are gone: epochs, snapshots, producers' state, compaction progress."""
    end = log.log_end_offset
    log.epochs.cut_end(end)
    log.directory.remove_snapshots(keep=log.segments.bases())
    log.disk.sync_directory(log.directory.path)
    log.producers = states_before(log.segments, len(log.segments) - 1, now_ms)
    replay(log.producers, [log.segments.active], now_ms)
    log.producers.settle(log.high_watermark)
    cut_progress(log.disk, log.directory.path, end)
