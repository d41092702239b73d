"""Opening a log: what is believed, what is checked, what is cut, and what is damage (rule 14).

    the log was closed cleanly        the marker lists every segment's size; nothing is scanned
    its process died, machine lived   the page cache is whole: only the growing segment is scanned, and only an
                                      incomplete last batch is tail
    the machine rebooted              all from the recovery point on is scanned; the first thing wrong there, and all
                                      behind it, is tail

Tail is cut with a warning. After a reboot it may have been acknowledged:

    flush.policy=replicated   what was in the page caches of several machines counted
    flush.policy=fsync        all that counted was synced; but a bit that flipped in it looks like a torn tail. Only a
                              last batch that the file does not hold wholly cannot have been synced

Then the log stays `unproven` until its owner has told the controller (rule 7). Anything else that is wrong is damage:
`LogDamaged`, and the caller quarantines the replica. An index or snapshot that is not to be believed is made again from
the batches.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise

from raylog.config import TopicConfig
from raylog.errors import LogDamaged
from raylog.storage.compaction.progress import cut_progress
from raylog.storage.compaction.swap import finish_swaps
from raylog.storage.directory.doubts import BLANK, REBOOTED
from raylog.storage.directory.partition_directory import (
    DELETED_SUFFIX,
    CleanShutdown,
    LogCheckpoint,
    PartitionDirectory,
    emptied,
)
from raylog.storage.disk.checkpoints import TEMPORARY_SUFFIX
from raylog.storage.disk.sealed_file import SealBroken
from raylog.storage.format.record_batch import BatchHeader
from raylog.storage.segment.batch_scan import (
    SCAN_CHUNK,
    ChainBroken,
    has_batch_after,
    is_whole_but_for_its_length,
    scan_file,
)
from raylog.storage.segment.leader_epochs import EpochStart, LeaderEpochs
from raylog.storage.segment.producer_replay import know_transactions, replay, states_before
from raylog.storage.segment.producer_state import SNAPSHOT_SUFFIX, ProducerStates, take_in
from raylog.storage.segment.segment import INDEX_SUFFIXES, LOG_SUFFIX, Place, Reindexed, Segment, file_name
from raylog.storage.segment.segment_list import SegmentList
from raylog.storage.segment.transaction_index import TransactionIndex

_log = logging.getLogger(__name__)


class OpenedAfter(Enum):
    """The way that the log was left the last time."""

    CREATION = BLANK
    CLEAN_CLOSE = "clean close"
    PROCESS_CRASH = "process crash"
    MACHINE_CRASH = REBOOTED


def finish_restart(directory: PartitionDirectory, epochs: LeaderEpochs, marks: LogCheckpoint) -> LogCheckpoint:
    """Leave nothing of the old log; returns the marks of the empty one, which are then on disk."""
    assert marks.restart is not None
    directory.remove_segment_files()
    directory.disk.sync_directory(directory.path)
    epochs.clear()  # before the log can begin elsewhere: a history from here would refuse what the leader has there
    cut_progress(directory, marks.restart[0])
    directory.write_checkpoint(emptied(marks))
    return emptied(marks)


@dataclass(frozen=True)
class RecoveredLog:
    segments: SegmentList
    epochs: LeaderEpochs
    producers: ProducerStates
    checkpoint: LogCheckpoint
    opened_after: OpenedAfter


class LogRecovery:
    """One opening of one log."""

    def __init__(self, directory: PartitionDirectory, config: TopicConfig, now_ms: int) -> None:
        self._directory = directory
        self._disk = directory.disk
        self._config = config
        self._now_ms = now_ms
        self._epochs = LeaderEpochs(self._disk, directory.path)
        self._checkpoint = LogCheckpoint("")
        self._segments = SegmentList([])
        self._opened: list[Segment] = []
        self._producers = ProducerStates()

    def run(self, created: bool) -> RecoveredLog:
        try:
            return self._run(created)
        except BaseException:
            for segment in self._opened:
                segment.close()
            raise

    def _run(self, created: bool) -> RecoveredLog:
        self._checkpoint = self._directory.read_checkpoint()
        if self._directory.was_empty:
            return self._begin_blank()
        shutdown = self._read_clean_shutdown()
        self._finish_restart()
        finish_swaps(self._directory)
        self._sweep()
        opened_after = self._opened_after(created, shutdown)
        bases = self._directory.segment_bases()
        if opened_after is OpenedAfter.MACHINE_CRASH:
            bases = self._without_deleted(bases)
        self._epochs = self._load_epochs(bases)
        self._open_segments(bases)
        if self._joins_its_start(opened_after):
            if shutdown is not None:
                self._trust(shutdown)
            else:
                self._scan(opened_after)
                self._check_end(opened_after)
        else:
            self._begin_empty(shutdown)
        self._settle(opened_after)
        if opened_after is OpenedAfter.PROCESS_CRASH and self._may_have_dropped_pages():
            self._write_unsynced_again()
        self._directory.forget_failed_disk()
        return RecoveredLog(self._segments, self._epochs, self._producers, self._checkpoint, opened_after)

    def _begin_blank(self) -> RecoveredLog:
        """Begin in a directory that was made just now. A topic of a thousand partitions has three thousand of them."""
        segments = SegmentList([self._segment_to_come(self._checkpoint.log_start_offset)])
        return RecoveredLog(segments, self._epochs, self._producers, self._checkpoint, OpenedAfter.CREATION)

    def _finish_restart(self) -> None:
        if self._checkpoint.restart is not None:
            _log.warning("%s was being thrown away; that is finished now.", self._directory.path)
            self._checkpoint = finish_restart(self._directory, self._epochs, self._checkpoint)

    def _read_clean_shutdown(self) -> CleanShutdown | None:
        try:
            return self._directory.read_clean_shutdown()
        except LogDamaged as damage:
            _log.warning("%s The log is checked as after a crash.", damage.describe())
            return None

    def _opened_after(self, created: bool, shutdown: CleanShutdown | None) -> OpenedAfter:
        if created:
            return OpenedAfter.CREATION
        if shutdown is not None:
            return OpenedAfter.CLEAN_CLOSE
        same_boot = self._checkpoint.boot_id == self._disk.boot_id()
        return OpenedAfter.PROCESS_CRASH if same_boot else OpenedAfter.MACHINE_CRASH

    def _sweep(self) -> None:
        """Remove what an interrupted operation left and nobody will come back for."""
        for name in self._disk.list_directory(self._directory.path):
            if name.endswith((DELETED_SUFFIX, TEMPORARY_SUFFIX)):
                self._disk.remove(self._directory.file(name))

    def _without_deleted(self, bases: list[int]) -> list[int]:
        """Remove the segments that lie wholly before the log's start. A power cut in the middle of their deletion may
        have brought back any of them, torn or with gaps between them."""
        while len(bases) > 1 and bases[1] <= self._checkpoint.log_start_offset:
            for kind in (*INDEX_SUFFIXES, SNAPSHOT_SUFFIX, LOG_SUFFIX):
                self._disk.remove(self._directory.file(file_name(bases[0], kind)))
            bases = bases[1:]
        return bases

    # --- epochs ---

    def _load_epochs(self, bases: list[int]) -> LeaderEpochs:
        try:
            return LeaderEpochs.load(self._disk, self._directory.path)
        except (FileNotFoundError, LogDamaged) as error:
            if isinstance(error, FileNotFoundError) and not bases:
                return LeaderEpochs(self._disk, self._directory.path)  # of a new log: the first epoch makes the file
            _log.warning("%s: the leader epochs are made again from the batches' headers.", error)
            epochs = LeaderEpochs(self._disk, self._directory.path, self._epochs_of_batches(bases))
            epochs.save()
            return epochs

    def _epochs_of_batches(self, bases: list[int]) -> list[EpochStart]:
        history: list[EpochStart] = []
        for base in bases:
            file = self._disk.open(self._directory.file(file_name(base, ".log")))
            try:
                for position, header, _ in scan_file(file, base, None):
                    latest = history[-1].epoch if history else -1
                    if header.leader_epoch < latest:
                        raise LogDamaged(file.path, position, f"epoch {header.leader_epoch} comes after {latest}")
                    if header.leader_epoch > latest:
                        history.append(EpochStart(header.leader_epoch, header.base_offset))
            except ChainBroken:
                break  # tail or damage: the scan that follows tells
            finally:
                file.close()
        return history

    # --- segments ---

    def _open_segments(self, bases: list[int]) -> None:
        for base in bases:
            self._opened.append(
                Segment.open(self._disk, self._directory.path, base, self._config.index_interval_bytes, self._epochs)
            )
        for before, after in pairwise(self._opened):
            before.next_offset = after.base_offset
        self._segments = SegmentList(self._opened)

    def _joins_its_start(self, opened_after: OpenedAfter) -> bool:
        """Whether the files begin where the log does. False: nothing of them counts, so they are removed.

        The first file comes with the first batch, and its name may be gone after a power cut, though that of the next
        one is not. No mark had counted on it then.
        """
        start = self._checkpoint.log_start_offset
        if not self._opened:
            return False
        first = self._segments[0]
        if first.base_offset <= start:
            return True
        if opened_after is not OpenedAfter.MACHINE_CRASH or self._promised > start:
            raise first.damaged(0, f"the log starts at offset {start}, so a segment is missing")
        self._doubt_before_cut(opened_after)
        size = sum(segment.size for segment in self._segments)
        path, why = self._directory.path, opened_after.value
        _log.warning("%s: its first file is gone after a %s, and with it %d bytes of others.", path, why, size)
        self._discard_all()
        self._disk.sync_directory(self._directory.path)
        return False

    @property
    def _promised(self) -> int:
        return max(self._checkpoint.recovery_point, self._checkpoint.high_watermark)

    def _begin_empty(self, shutdown: CleanShutdown | None) -> None:
        start, promised = self._checkpoint.log_start_offset, self._promised
        if shutdown is not None or promised > start:
            raise LogDamaged(self._directory.path, 0, f"no segment is left of a log that reached offset {promised}")
        self._segments = SegmentList([self._segment_to_come(start)])

    def _segment_to_come(self, base_offset: int) -> Segment:
        """Return a segment whose file comes with the first batch: most of many partitions are empty for long."""
        return Segment.without_file(
            self._disk, self._directory.path, base_offset, self._config.index_interval_bytes, self._epochs
        )

    def _trust(self, shutdown: CleanShutdown) -> None:
        found = tuple((segment.base_offset, segment.size) for segment in self._segments)
        if found != shutdown.segments:
            differing = sorted(set(found) ^ set(shutdown.segments))[0]
            raise LogDamaged(
                self._directory.file(file_name(differing[0], ".log")),
                differing[1],
                "the segments are not those of the clean close",
            )
        active = self._segments.active
        active.next_offset = shutdown.log_end_offset
        active.resume()
        know_transactions(self._segments, active, self._now_ms)
        try:
            path = self._directory.file(file_name(shutdown.log_end_offset, SNAPSHOT_SUFFIX))
            self._producers = ProducerStates.load(self._disk, path, shutdown.log_end_offset)
        except SealBroken as broken:
            _log.warning("%s; the producers' state is made again from the log.", broken)
            self._producers = states_before(self._segments, len(self._segments) - 1, self._now_ms)
            replay(self._producers, [active], self._now_ms)

    # --- scanning after a crash ---

    def _scan(self, opened_after: OpenedAfter) -> None:
        first = len(self._segments) - 1
        if opened_after is OpenedAfter.MACHINE_CRASH:
            first = list(self._segments).index(self._segments.containing(self._checkpoint.recovery_point))
        for segment in list(self._segments)[:first]:
            segment.check_tail()
        self._producers = states_before(self._segments, first, self._now_ms)
        for at in range(first, len(self._segments)):
            segment = self._segments[at]
            if at > first:
                segment.save_snapshot(self._producers)
            result = self._scan_segment(segment)
            missing = at + 1 < len(self._segments) and result.next_offset != self._segments[at + 1].base_offset
            if result.broken is not None or missing:
                self._cut_or_refuse(segment, result, opened_after)
                break
            if at + 1 < len(self._segments):
                segment.seal()
        else:
            segment = self._segments.active
            segment.next_offset = result.next_offset
            segment.is_sealed = False

    def _scan_segment(self, segment: Segment) -> Reindexed:
        transactions = TransactionIndex()

        def visit(header: BatchHeader, batch: memoryview) -> None:
            aborted = take_in(self._producers, header, batch, self._now_ms)
            if aborted is not None:
                transactions.add(aborted)

        result = segment.reindex(visit)
        segment.set_transactions(transactions)
        return result

    def _cut_or_refuse(self, segment: Segment, result: Reindexed, opened_after: OpenedAfter) -> None:
        broken = result.broken or ChainBroken(segment.size, "the next segment does not join on")
        if not self._is_tail(segment, result.next_offset, broken, opened_after):
            raise segment.damaged(broken.position, broken.reason)
        if opened_after is OpenedAfter.MACHINE_CRASH and not self._was_never_whole(segment, result.next_offset, broken):
            self._doubt_before_cut(opened_after)
        _log.warning(
            "%s: cut at byte %d, offset %d, after a %s: %s. %d bytes are gone.",
            segment.path(".log"),
            result.valid_bytes,
            result.next_offset,
            opened_after.value,
            broken.reason,
            segment.size - result.valid_bytes + sum(later.size for later in self._after(segment)),
        )
        for later in reversed(self._after(segment)):
            self._segments.remove(later)
            self._discard(later)
        self._disk.sync_directory(self._directory.path)
        segment.truncate(Place(result.valid_bytes, result.next_offset))

    def _is_tail(
        self, segment: Segment, offset: int, broken: ChainBroken, opened_after: OpenedAfter
    ) -> bool:
        if offset < self._checkpoint.recovery_point:
            return False
        return opened_after is OpenedAfter.MACHINE_CRASH or self._was_never_whole(segment, offset, broken)

    def _was_never_whole(self, segment: Segment, offset: int, broken: ChainBroken) -> bool:
        """Whether only the last batch is cut, and the file never held all of it."""
        if not broken.incomplete or any(later.size for later in self._after(segment)):
            return False
        if has_batch_after(segment.file, broken.position, offset):
            return False
        return not is_whole_but_for_its_length(segment.file, broken.position)

    def _doubt_before_cut(self, opened_after: OpenedAfter) -> None:
        """Acknowledged records may be cut (rule 7). An opening after the cut would not see that, so this comes first.

        The boot id stays that of before the reboot: until `_settle` is through, an opening is one after a reboot.
        """
        if not self._checkpoint.unproven:
            self._checkpoint = replace(self._checkpoint, unproven=opened_after.value)
            self._directory.write_checkpoint(self._checkpoint)

    def _after(self, segment: Segment) -> list[Segment]:
        return [later for later in self._segments if later.base_offset > segment.base_offset]

    def _check_end(self, opened_after: OpenedAfter) -> None:
        end = self._segments.active.next_offset
        promised, high_watermark = self._checkpoint.recovery_point, self._checkpoint.high_watermark
        # A log that begins inside a batch has nothing yet when its marks are at its start.
        if opened_after is not OpenedAfter.MACHINE_CRASH and high_watermark > self._checkpoint.log_start_offset:
            promised = max(promised, high_watermark)
        if end < promised:
            raise self._segments.active.damaged(
                self._segments.active.size, f"the log ends at offset {end}, but had reached {promised}"
            )

    # --- what holds however the log was left ---

    def _settle(self, opened_after: OpenedAfter) -> None:
        end, start = self._segments.active.next_offset, self._checkpoint.log_start_offset
        if start > end:
            self._start_over(start)
            end = start
        self._epochs.cut_end(end)
        self._epochs.cut_start(start)
        self._epochs.take_back()
        before = self._checkpoint
        self._checkpoint = LogCheckpoint(
            boot_id=self._disk.boot_id(),
            recovery_point=min(before.recovery_point, end),
            high_watermark=min(max(before.high_watermark, start), end),
            log_start_offset=start,
            unproven=before.unproven or self._reason_to_doubt(opened_after),
            created_as=before.created_as,
        )
        if self._checkpoint != before:
            self._directory.write_checkpoint(self._checkpoint)
        if self._directory.flush_policy != self._config.flush_policy and self._checkpoint.recovery_point >= end:
            self._directory.write_config(self._config, all_synced=True)
        cut_progress(self._directory, end)
        self._directory.forget_clean_shutdown()
        self._directory.remove_snapshots(keep=self._segments.bases())  # the one that the clean close left, above all

    def _reason_to_doubt(self, opened_after: OpenedAfter) -> str:
        """Rule 7: after a reboot a log that counted what is in the page cache may have less than it acknowledged.

        It did unless its policy was fsync already then; what the topic says now is not the question.
        That stays written down until the controller has heard of it, however often the process dies before.
        """
        policies = {self._config.flush_policy, self._directory.flush_policy}
        doubtful = opened_after is OpenedAfter.MACHINE_CRASH and policies != {"fsync"}
        return opened_after.value if doubtful else ""

    def _may_have_dropped_pages(self) -> bool:
        """Whether pages of the log may be missing. With fsync always, since what counts next rests on it. Else where
        the process before left a note: it would cost up to a segment at each restart, and a reboot raises doubt anyway.
        """
        return self._config.flush_policy == "fsync" or self._directory.has_failed_disk()

    def _write_unsynced_again(self) -> None:
        """A sync of the process before may have failed (rule 2). The kernel then takes those pages for clean, and the
        next sync would succeed without writing them; written once more, they are dirty again."""
        point = self._checkpoint.recovery_point
        for segment in self._segments.from_offset(point):
            if segment.next_offset <= point:
                continue
            position = segment.locate(point).position if point > segment.base_offset else 0
            while position < segment.size:
                data = segment.file.read_at(min(SCAN_CHUNK, segment.size - position), position)
                segment.file.write_at(data, position)
                position += len(data)

    def _start_over(self, start: int) -> None:
        """All that is left was deleted already: the log goes on empty from its start."""
        self._discard_all()
        self._segments = SegmentList([self._segment_to_come(start)])
        self._producers = ProducerStates()

    def _discard_all(self) -> None:
        for segment in self._segments:
            self._discard(segment)
        self._directory.remove_snapshots(keep=())

    def _discard(self, segment: Segment) -> None:
        for path in segment.retire(DELETED_SUFFIX):
            self._disk.remove(path)
        segment.close()
