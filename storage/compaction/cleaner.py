"""Compaction: of each key only the newest value stays, under its old offset.

    plan (owner)  →  map the dirty keys, write the new segments (anywhere)  →  install (owner)

What must stay true: a record goes only if a newer one of its key lies further on in the log and below the limit, if
it is a tombstone whose time is over, or if its transaction was aborted. What goes whole leaves a filler, so the offsets
of the new segments are exactly those of the old ones, without a gap in the chain. The original files stay until the
new ones are synced (see `compaction/swap.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from raylog.errors import BatchError, CompactionAbandoned, CompactionOutdated, DiskError, LogDamaged
from raylog.storage.compaction.aborts import aborted_transactions
from raylog.storage.compaction.key_map import KeyMap, MemoryBudget, bytes_for, keys_for
from raylog.storage.compaction.plan import CompactionPlan, PlannedSegment
from raylog.storage.compaction.swap import draft_suffix
from raylog.storage.disk.disk import Disk
from raylog.storage.disk.sealed_file import sync_sealed
from raylog.storage.format.batch_codec import DecodedBatch, decode_checked
from raylog.storage.format.batch_filter import emptied, only_records
from raylog.storage.format.control_records import decode_marker
from raylog.storage.format.record_batch import MAX_OFFSET_DELTA, BatchHeader, Bytes, filler, read_header
from raylog.storage.segment.batch_scan import ChainBroken, scan_file
from raylog.storage.segment.segment import INDEX_SUFFIXES, LOG_SUFFIX, Segment, file_name
from raylog.storage.segment.transaction_filter import TransactionFilter
from raylog.storage.segment.transaction_index import AbortedTransaction

_log = logging.getLogger(__name__)

_WRITE_BYTES: Final = 1024 * 1024
_LEAST_KEYS: Final = 1024


@dataclass
class CompactionReport:
    """The figures of one compaction."""

    cleaned_to: int = 0
    replaced: list[tuple[int, int]] = field(default_factory=list)  # (base offset, end offset) of each new segment
    bytes_before: int = 0
    bytes_after: int = 0
    records_before: int = 0
    records_after: int = 0
    keys: int = 0
    map_bytes: int = 0
    made_for: tuple[str, int] = ("", 0)  # as the plan says, so that it can be told whether it is outdated
    run: str = ""

    @property
    def bytes_of_map_per_key(self) -> float:
        return self.map_bytes / max(1, self.keys)


def run_compaction(
    disk: Disk, plan: CompactionPlan, budget: MemoryBudget, is_wanted: Callable[[], bool] = lambda: True
) -> CompactionReport:
    """Write the compacted segments beside the old ones. Touches nothing else, so it can stop at any point.

    CompactionAbandoned: `is_wanted`, which is asked at every batch, has said no.
    """
    try:
        return _run(_Source(disk, plan, is_wanted, keys_for(budget.total_bytes)), budget)
    except FileNotFoundError:  # the whole directory is gone: its topic was deleted
        raise CompactionOutdated(plan.segments[0].base_offset, plan.limit) from None


def _run(source: _Source, budget: MemoryBudget) -> CompactionReport:
    disk, plan = source.disk, source.plan
    report = CompactionReport(made_for=plan.made_for, run=plan.run)
    aborted = aborted_transactions(disk, plan)
    with budget.grant(bytes_for(plan.dirty_offsets), bytes_for(min(plan.dirty_offsets, _LEAST_KEYS))) as granted:
        keys = KeyMap(granted)
        report.cleaned_to = _map_dirty_keys(source, aborted, keys, budget)
        report.keys, report.map_bytes = len(keys), keys.memory_bytes
        cleaner = _Cleaner(source, aborted, keys, report)
        for group in _groups(plan, report.cleaned_to):
            cleaner.clean(group)
    return report


@dataclass(frozen=True)
class _Source:
    """The reading of a compaction: its plan, and what bounds it."""

    disk: Disk
    plan: CompactionPlan
    is_wanted: Callable[[], bool]
    most_keys: int  # of one batch: more would never fit into the map

    def opens(self, header: BatchHeader) -> bool:
        """Whether its records are looked at. A batch of too many for any map stays whole; others go on without it."""
        if header.record_count <= self.most_keys:
            return True
        _log.warning(
            "The batch at offset %d of %s cannot be compacted and stays whole: it has %d records, and %d keys fit.",
            header.base_offset, self.plan.directory, header.record_count, self.most_keys,
        )  # fmt: skip
        return False

    def records(self, header: BatchHeader, batch: memoryview) -> DecodedBatch | None:
        """None where the payload is not what its writer should have sent, or is too large: the batch stays as it is."""
        try:
            return decode_checked(header, batch, self.plan.unpack_limit)
        except BatchError as error:
            _log.warning(
                "The batch at offset %d of %s cannot be compacted and stays whole: %s",
                header.base_offset, self.plan.directory, error,
            )  # fmt: skip
            return None

    def batches(self, segment: PlannedSegment) -> Iterator[tuple[BatchHeader, memoryview]]:
        try:
            file = self.disk.open(f"{self.plan.directory}/{file_name(segment.base_offset, LOG_SUFFIX)}")
        except FileNotFoundError:  # retention or a truncation was quicker
            raise CompactionOutdated(segment.base_offset, segment.next_offset) from None
        try:
            for _, header, batch in scan_file(file, segment.base_offset, None, end=segment.size):
                if not self.is_wanted():
                    raise CompactionAbandoned(self.plan.directory)
                yield header, batch
        except ChainBroken as broken:
            if file.size() < segment.size:
                raise CompactionOutdated(segment.base_offset, segment.next_offset) from broken
            raise LogDamaged(file.path, broken.position, broken.reason) from broken
        finally:
            file.close()


def _map_dirty_keys(
    source: _Source, aborted: Sequence[AbortedTransaction], keys: KeyMap, budget: MemoryBudget
) -> int:
    """Fill the map with as much of the dirty part as fits; returns the offset after it."""
    plan = source.plan
    dirty = [segment for segment in plan.segments if segment.next_offset > plan.first_dirty_offset]
    # This walk would never see the end of a transaction whose marker lies before.
    transactions = TransactionFilter([each for each in aborted if each.last_offset >= dirty[0].base_offset])
    mapped_to = plan.first_dirty_offset
    for segment in dirty:
        for header, batch in source.batches(segment):
            if header.is_control:
                transactions.ends(header, decode_marker(header, batch))
            elif not transactions.is_aborted(header) and header.base_offset >= plan.first_dirty_offset:
                if not source.opens(header):
                    mapped_to = max(mapped_to, header.next_offset)
                    continue
                if keys.room < header.record_count:
                    if mapped_to == plan.first_dirty_offset:
                        raise budget.refusal(bytes_for(header.record_count), keys.memory_bytes)
                    return mapped_to  # this time the log is cleaned up to here, and next time further
                _map_batch(source, header, batch, keys)
            mapped_to = max(mapped_to, header.next_offset)
    return mapped_to


def _map_batch(source: _Source, header: BatchHeader, batch: memoryview, keys: KeyMap) -> None:
    records = source.records(header, batch)
    if records is None:
        return
    keyed = [(key, offset) for key, offset in zip(records.keys, records.offsets, strict=True) if key is not None]
    if keyed:
        keys.put_all(*zip(*keyed, strict=True))


def _groups(plan: CompactionPlan, cleaned_to: int) -> list[list[PlannedSegment]]:
    """Neighbours that fit into one new segment even if nothing of them goes."""
    groups: list[list[PlannedSegment]] = []
    size = 0
    for segment in plan.segments:
        if segment.base_offset >= cleaned_to:
            break
        size += segment.size
        if not groups or size > plan.segment_bytes or (
            segment.next_offset - groups[-1][0].base_offset > MAX_OFFSET_DELTA
        ):
            groups.append([])
            size = segment.size
        groups[-1].append(segment)
    return groups


class _Cleaner:
    """Writes the new segments of one compaction, in order."""

    def __init__(
        self, source: _Source, aborted: Sequence[AbortedTransaction], keys: KeyMap, report: CompactionReport
    ) -> None:
        self._source = source
        self._disk = source.disk
        self._plan = source.plan
        self._suffix = draft_suffix(source.plan.run)
        self._keys = keys
        self._report = report
        self._transactions = TransactionFilter(aborted)

    def clean(self, group: list[PlannedSegment]) -> None:
        try:
            self._write_segment(group)
        except Exception:
            self._discard([*(base for base, _ in self._report.replaced), group[0].base_offset])
            raise

    def _discard(self, bases: list[int]) -> None:
        """Remove the files of a compaction that did not end: nobody installs a part of it, and on a full disk they are
        in the way.
        """
        for name in [file_name(base, kind) for base in bases for kind in (*INDEX_SUFFIXES, LOG_SUFFIX)]:
            try:
                self._disk.remove(f"{self._plan.directory}/{name}{self._suffix}")
            except DiskError as error:
                _log.warning("A file of a failed compaction stays until the next opening: %s", error)

    def _write_segment(self, group: list[PlannedSegment]) -> None:
        base_offset, end_offset = group[0].base_offset, group[-1].next_offset
        target = Segment.create(
            self._disk, self._plan.directory, base_offset, self._plan.index_interval_bytes, None, self._suffix
        )
        try:
            writer = _ChainWriter(target)
            for segment in group:
                self._report.bytes_before += segment.size
                for header, batch in self._source.batches(segment):
                    self._put(writer, header, batch)
            writer.finish()
            if target.next_offset != end_offset:
                found = f"its batches end at offset {target.next_offset}, not {end_offset}"
                raise LogDamaged(target.path(LOG_SUFFIX), target.size, found)
            target.seal()
            target.file.sync()
            sync_sealed(self._disk, target.index_paths())
        finally:
            target.close()
        self._report.bytes_after += target.size
        self._report.replaced.append((base_offset, end_offset))

    def _put(self, writer: _ChainWriter, header: BatchHeader, batch: memoryview) -> None:
        self._report.records_before += header.record_count
        kept = self._what_stays(writer, header, batch)
        if kept is None and self._is_last_of_producer(header):
            kept = emptied(header)
        if kept is None:
            writer.drop(header)
        else:
            kept_header = read_header(kept)
            self._report.records_after += kept_header.record_count
            writer.keep(kept_header, kept)

    def _what_stays(self, writer: _ChainWriter, header: BatchHeader, batch: memoryview) -> Bytes | None:
        """The batch, a part of it, or None."""
        if header.is_control:
            return batch if self._marker_stays(writer, header, batch) else None
        if self._transactions.is_aborted(header):
            return None
        if header.record_count == 0:
            return None
        if header.base_offset >= self._report.cleaned_to:
            return batch
        return self._newest_records(header, batch)

    def _marker_stays(self, writer: _ChainWriter, header: BatchHeader, batch: memoryview) -> bool:
        had_data, aborted = self._transactions.ends(header, decode_marker(header, batch))
        last = self._plan.last_writes.get(header.producer_id)
        fences = last is not None and last.epoch == header.producer_epoch
        stays = had_data or fences or header.last_offset >= self._plan.removable_below
        if stays and aborted is not None:
            writer.note_aborted(aborted)
        return stays

    def _newest_records(self, header: BatchHeader, batch: memoryview) -> Bytes | None:
        records = self._source.records(header, batch) if self._source.opens(header) else None
        if records is None:
            return batch
        # A record without a key dates from before the topic was compacted; there is no newest of it to keep.
        newest = self._keys.newest_of_all([key if key is not None else b"" for key in records.keys])
        stays = [
            key is not None and offset >= latest and (value is not None or offset >= self._plan.removable_below)
            for key, value, offset, latest in zip(records.keys, records.values, records.offsets, newest, strict=True)
        ]
        if all(stays):
            return batch
        return only_records(header, batch, records, stays) if any(stays) else None

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """Whether this is its producer's last batch. Without its header the next one could not be told from a repeat
        after a restart.
        """
        if not header.has_producer or header.is_control:
            return False
        last = self._plan.last_writes.get(header.producer_id)
        return last is not None and last.last_offset == header.last_offset


class _ChainWriter:
    """Appends batches to the new segment in large writes, with fillers for what is dropped."""

    def __init__(self, target: Segment) -> None:
        self._target = target
        self._headers: list[BatchHeader] = []
        self._waiting = bytearray()
        self._hole: tuple[int, int, int] | None = None  # first offset, offset after it, leader epoch

    def note_aborted(self, transaction: AbortedTransaction) -> None:
        self._target.transactions.add(transaction)

    def keep(self, header: BatchHeader, batch: Bytes) -> None:
        self._fill_hole()
        self._add(header, batch)

    def drop(self, header: BatchHeader) -> None:
        start, _, epoch = self._hole or (header.base_offset, 0, header.leader_epoch)
        if epoch != header.leader_epoch or header.last_offset - start > MAX_OFFSET_DELTA:
            self._fill_hole()
            start = header.base_offset
        self._hole = (start, header.next_offset, header.leader_epoch)

    def finish(self) -> None:
        self._fill_hole()
        self._write()

    def _fill_hole(self) -> None:
        if self._hole is not None:
            batch = filler(*self._hole)
            self._hole = None
            self._add(read_header(batch), batch)

    def _add(self, header: BatchHeader, batch: Bytes) -> None:
        self._headers.append(header)
        self._waiting += batch
        if len(self._waiting) >= _WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        if self._headers:
            self._target.append(self._waiting, self._headers)
            self._headers, self._waiting = [], bytearray()
