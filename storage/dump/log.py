"""Dump of a log file: its batches, their records, and where it is damaged."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from raylog.errors import BatchError, RaylogError
from raylog.storage.directory.partition_directory import DELETED_SUFFIX
from raylog.storage.disk.disk import DiskFile
from raylog.storage.disk.sealed_file import SealBroken
from raylog.storage.dump.checks import IndexCheck
from raylog.storage.dump.events import BatchSeen, Event, FileBegun, LogEnded, Note, Problem, RecordSeen, as_sentence
from raylog.storage.dump.files import Replica, SegmentFile
from raylog.storage.dump.formats import describe_record
from raylog.storage.dump.walk import FoundBatch, LogWalk, LostBytes
from raylog.storage.format.batch_codec import DecodedBatch, decode_checked
from raylog.storage.format.control_records import Marker, decode_marker
from raylog.storage.format.record_batch import HEADER_BYTES, read_header
from raylog.storage.segment.indexes import OffsetIndex

_MAYBE_APPENDING = (
    "If the replica is running, look again: an append may be under way. If not, its next start tells tail from damage."
)


@dataclass(frozen=True)
class DumpOptions:
    """The part of a log that is wanted. `max_batches` counts over all files of a run."""

    records: bool = False
    from_offset: int = 0
    max_batches: int | None = None
    verify: bool = False

    @property
    def wants_all(self) -> bool:
        return self.from_offset == 0 and self.max_batches is None


class Walked(NamedTuple):
    """A log file that has been walked to its end: the offset after its last batch, and which file it was."""

    path: str
    next_offset: int
    inode: int


class LogDump:
    """The log files of one run."""

    def __init__(self, options: DumpOptions) -> None:
        self._options = options
        self._batches_left = options.max_batches

    @property
    def is_done(self) -> bool:
        return self._batches_left == 0

    def events(
        self, replica: Replica, file: SegmentFile, checks: Sequence[IndexCheck] = ()
    ) -> Generator[Event, None, Walked | None]:
        """Tell what is in `file`, and in `checks` compare it with its indexes.

        Returns None where not all of it was looked at.
        """
        path = replica.path(file.name)
        opened = replica.disk.open(path)
        try:
            yield FileBegun(path, opened.size(), file.holds, file.base_offset)
            epochs = replica.epochs if file.suffix != DELETED_SUFFIX else None
            position, offset = self._start(replica, file, opened)
            walk = LogWalk(opened, offset, epochs, position)
            reading = _Reading(self._options, path, replica.topic, replica.is_growing(file.base_offset))
            for piece in walk:
                if self.is_done:
                    return None
                for check in checks:
                    reading.misfits += check.see(piece)
                if not self._is_before_start(piece):
                    yield from reading.tell(piece)
                    self._count_down(piece)
            if self.is_done:
                return None
            yield from self._check_results(replica, opened, reading, checks)
            yield LogEnded(path, reading.batches, reading.records, walk.offset, reading.problems)
            return Walked(path, walk.offset, opened.inode())
        finally:
            opened.close()

    def _start(self, replica: Replica, file: SegmentFile, opened: DiskFile) -> tuple[int, int]:
        """Return where to begin: near the wanted offset, if the index leads to a batch that is what it says."""
        beginning = (0, file.base_offset)
        if self._options.from_offset <= file.base_offset:
            return beginning
        try:
            path = replica.path(file.beside(OffsetIndex.SUFFIX).name)
            index = OffsetIndex.load(replica.disk, path, file.base_offset, opened.size())
        except (SealBroken, RaylogError):
            return beginning
        offset, position = index.place(self._options.from_offset)
        head = opened.read_at(HEADER_BYTES, position)
        is_there = len(head) == HEADER_BYTES and read_header(head).base_offset == offset
        return (position, offset) if is_there else beginning

    def _is_before_start(self, piece: FoundBatch | LostBytes) -> bool:
        return piece.next_offset is not None and piece.next_offset <= self._options.from_offset

    def _count_down(self, piece: FoundBatch | LostBytes) -> None:
        if self._batches_left is not None and isinstance(piece, FoundBatch):
            self._batches_left -= 1

    def _check_results(
        self, replica: Replica, opened: DiskFile, reading: _Reading, checks: Sequence[IndexCheck]
    ) -> Iterator[Event]:
        found = reading.misfits + [problem for check in checks for problem in check.finish()]
        if found and replica.inode(reading.path) != opened.inode():
            yield Note(reading.path, "It was replaced while it was read, so its indexes were not compared with it.")
        else:
            yield from found


class _Reading:
    """One log file, piece by piece."""

    def __init__(self, options: DumpOptions, path: str, topic: str | None, is_growing: bool) -> None:
        self._options = options
        self.path = path
        self._topic = topic
        self._is_growing = is_growing
        self.batches = 0
        self.records = 0
        self.problems = 0
        self.misfits: list[Problem] = []

    def tell(self, piece: FoundBatch | LostBytes) -> Iterator[Event]:
        for event in self._batch(piece) if isinstance(piece, FoundBatch) else self._lost(piece):
            self.problems += isinstance(event, Problem)
            yield event

    def _lost(self, lost: LostBytes) -> Iterator[Event]:
        yield Problem(
            self.path,
            as_sentence(lost.reason),
            position=lost.position,
            offset=lost.expected_offset,
            lost_bytes=lost.end - lost.position,
            resumes_at=None if lost.is_tail else lost.end,
            resumes_offset=lost.next_offset,
            remedy=_MAYBE_APPENDING if lost.is_tail and self._is_growing else "",
        )

    def _batch(self, batch: FoundBatch) -> Iterator[Event]:
        self.batches += 1
        self.records += batch.header.record_count
        marker, decoded, refusal = self._content(batch)
        yield BatchSeen.of(self.path, batch.position, batch.header, marker, crc_ok=batch.crc_ok)
        reason = " ".join((*batch.faults, *([refusal] if refusal else [])))
        if reason:
            yield Problem(self.path, reason, position=batch.position, offset=batch.expected_offset)
        if decoded is not None and self._options.records:
            yield from self._records(decoded, marker)

    def _content(self, batch: FoundBatch) -> tuple[Marker | None, DecodedBatch | None, str | None]:
        """The marker or the records in a batch, as far as they are asked for, or why they cannot be had."""
        marker = decoded = None
        if batch.is_readable:
            try:
                if batch.header.is_control:
                    marker = decode_marker(batch.header, batch.data)
                if self._options.records or self._options.verify:
                    decoded = decode_checked(batch.header, batch.data)
            except BatchError as error:
                return marker, None, f"The CRC fits, but the records cannot be decoded: {error.describe()}"
        return marker, decoded, None

    def _records(self, batch: DecodedBatch, marker: Marker | None) -> Iterator[RecordSeen]:
        columns = (batch.offsets, batch.timestamps, batch.keys, batch.values, batch.headers)
        for offset, timestamp, key, value, headers in zip(*columns, strict=True):
            if offset >= self._options.from_offset:
                if marker is None:
                    says = describe_record(self._topic, key, value)
                else:
                    says = f"{marker.type.name}, coordinator epoch {marker.coordinator_epoch}"
                yield RecordSeen(self.path, offset, timestamp, key, value, headers, says)
