"""One segment: a log file with its offset, time and transaction indexes.

    growing   the last segment of a log
    sealed    no longer written to

`indexes.py` says when the indexes of either are in memory.

What must stay true: the batches of a segment form a chain from its base offset on (see `batch_scan.py`). What is read
is checked against that chain; where it breaks the log is damaged and says so, and nothing is served (rule 14).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from raylog.errors import DiskBusy, DiskError, DiskFailed, DiskFull, DiskReadOnly, LogDamaged
from raylog.storage.disk.disk import Disk, DiskFile, KeptFile
from raylog.storage.disk.file_to_come import FileToCome
from raylog.storage.disk.sealed_file import SealBroken
from raylog.storage.format.record_batch import HEADER_BYTES, NO_TIMESTAMP, BatchHeader, Bytes, read_header
from raylog.storage.segment import transaction_index
from raylog.storage.segment.batch_scan import ChainBroken, scan_file, walk_chain
from raylog.storage.segment.cutting import cut_file
from raylog.storage.segment.indexes import OffsetIndex, SegmentIndexes, TimeIndex
from raylog.storage.segment.leader_epochs import LeaderEpochs
from raylog.storage.segment.producer_state import SNAPSHOT_SUFFIX, ProducerStates
from raylog.storage.segment.transaction_index import TransactionIndex

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIXES: Final = (OffsetIndex.SUFFIX, TimeIndex.SUFFIX, transaction_index.SUFFIX)
_LOOKUP_BYTES: Final = 8192

_log = logging.getLogger(__name__)


class Place(NamedTuple):
    """The place of a batch."""

    position: int
    base_offset: int


class Reindexed(NamedTuple):
    """The extent to which a segment's batches are sound."""

    valid_bytes: int
    next_offset: int
    broken: ChainBroken | None


def file_name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


class Segment:
    """The batches from `base_offset` up to `next_offset`."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        index_interval: int,
        epochs: LeaderEpochs | None,
        suffix: str = "",
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._suffix = suffix
        self._epochs = epochs
        self._indexes = SegmentIndexes(base_offset, index_interval)
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size = 0
        self.file: DiskFile
        self._kept: KeptFile | None = None  # the same, while the file rests
        self.is_sealed = False
        self.written_ms = NO_TIMESTAMP  # when this process appended to it last
        self.transactions_known = False  # the transaction index is in memory and complete
        self.transactions = TransactionIndex()  # only meaningful once `transactions_known`

    @classmethod
    def create(
        cls,
        disk: Disk,
        directory: str,
        base_offset: int,
        index_interval: int,
        epochs: LeaderEpochs | None,
        suffix: str = "",
    ) -> Segment:
        """A new, empty, growing segment. A left-over file of that name is emptied."""
        segment = cls.without_file(disk, directory, base_offset, index_interval, epochs)
        segment._suffix = suffix
        segment.make_file()
        return segment

    @classmethod
    def without_file(
        cls, disk: Disk, directory: str, base_offset: int, index_interval: int, epochs: LeaderEpochs | None
    ) -> Segment:
        """The same, and its file is made later: by its owner, with the first batch at the latest."""
        segment = cls(disk, directory, base_offset, index_interval, epochs)
        segment.file = FileToCome(segment.path(LOG_SUFFIX))
        segment._indexes.start_anew()
        segment._indexes.is_dated = True
        segment.transactions_known = True
        return segment

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        base_offset: int,
        index_interval: int,
        epochs: LeaderEpochs | None,
        suffix: str = "",
    ) -> Segment:
        """A segment that is on disk, taken as sealed; its indexes are looked at when they are needed."""
        segment = cls(disk, directory, base_offset, index_interval, epochs, suffix)
        segment.file = disk.open(segment.path(LOG_SUFFIX))
        segment.size = segment.file.size()
        segment.is_sealed = True
        return segment

    def make_file(self) -> None:
        """Make the file that was to come."""
        self.file = self._disk.open(self.path(LOG_SUFFIX), create=True)
        self.file.truncate(0)

    def let_file_rest(self) -> bool:
        """Keep the file, which is synced and nobody else's, open only while it is used. False: so it was already."""
        if self._kept is not None or self._suffix:
            return False
        self.file = self._kept = self._disk.open_files.keep(self.file, self._disk.open)
        self._kept.moved_to(self.path(LOG_SUFFIX))  # a compaction's was opened under another name
        return True

    def _wake_file(self) -> None:
        """Keep the file open from now on: it is about to be written to."""
        if self._kept is not None:
            self.file, self._kept = self._kept.taken_out(), None

    def path(self, kind: str) -> str:
        return f"{self._directory}/{file_name(self.base_offset, kind)}{self._suffix}"

    def has_lost_suffix(self) -> None:
        """Note that the owner has renamed the files to what they are to be called."""
        self._suffix = ""

    def index_paths(self) -> list[str]:
        return [self.path(kind) for kind in INDEX_SUFFIXES]

    # --- writing ---

    def append(self, data: Bytes, headers: Sequence[BatchHeader]) -> None:
        """Write `data`, the batches with these stamped headers, at the end. If it raises, the segment is unchanged."""
        position = self.size
        try:
            self.file.write_at(data, position)
        except (DiskFull, DiskReadOnly, DiskBusy):
            self._take_back(position)
            raise
        self.size = position + len(data)
        self.next_offset = headers[-1].next_offset
        for header in headers:
            self._indexes.note(header, position)
            position += header.size

    def _take_back(self, position: int) -> None:
        """Cut off what a refused write has left behind; it would be taken for damage later."""
        if self.file.size() > position:
            try:
                self.file.truncate(position)
            except DiskError as error:
                raise DiskFailed(f"A part of a refused write stays: {error.describe()}") from error

    def seal(self) -> None:
        """Write the indexes, let go of their memory, and take no more appends."""
        self.save_indexes()
        self._indexes.drop()
        self.is_sealed = True

    def save_indexes(self) -> None:
        """Write the indexes of a growing segment, so that it need not be scanned when it is opened again."""
        self._save_places()
        self.transactions.save(self._disk, self.path(transaction_index.SUFFIX), self.size)

    def _save_places(self) -> None:
        self._indexes.save(self._disk, self.path(OffsetIndex.SUFFIX), self.path(TimeIndex.SUFFIX), self.size)

    def resume(self) -> None:
        """Turn a sealed segment into a growing one again: the last one, after a clean stop."""
        self._wake_file()
        offsets, times = self._keep_indexes()
        offsets.thaw()
        times.thaw()
        self._resume_noting(offsets, times)

    @property
    def end(self) -> Place:
        return Place(self.size, self.next_offset)

    def truncate(self, place: Place) -> None:
        """Cut off the batch at `place` and all after it, durably, and grow from there."""
        self._wake_file()
        offsets, times = self._keep_indexes()  # loaded while the file has the size they describe
        offsets.cut(place.position)
        times.cut(place.base_offset)
        self.transactions.cut(place.base_offset)
        replaced = cut_file(self._disk, self.file, self.path(LOG_SUFFIX), self.index_paths(), place.position)
        if replaced is not None:
            self.file.close()
            self.file = replaced
        self.size, self.next_offset = place
        self._resume_noting(offsets, times)

    def end_at(self, place: Place, indexes: SegmentIndexes, transactions: TransactionIndex) -> None:
        """Grow from `place` on, with what is known of the batches before it. The file is still to be cut there."""
        self._wake_file()
        self._indexes = indexes
        self.set_transactions(transactions)
        self.size, self.next_offset = place
        self.is_sealed = False

    def _resume_noting(self, offsets: OffsetIndex, times: TimeIndex) -> None:
        """Take up the index intervals where the last entries left them."""
        base_offset, position = self._indexes.resume_noting(offsets, times, self.size)
        self.is_sealed = False
        if self.size == 0:
            return
        self._indexes.first_timestamp = self.oldest_timestamp()
        for header in self._headers_from(Place(position, base_offset)):
            self._indexes.note_timestamp(header)

    def _headers_from(self, place: Place) -> Iterator[BatchHeader]:
        position, offset = place
        while position < self.size:
            header = self._header_at(Place(position, offset))
            yield header
            position += header.size
            offset = header.next_offset

    # --- indexes ---

    @property
    def offset_index(self) -> OffsetIndex:
        index = self._indexes.offsets
        return self._load_indexes()[0] if index is None else index

    @property
    def time_index(self) -> TimeIndex:
        index = self._indexes.times
        return self._load_indexes()[1] if index is None else index

    def load_snapshot(self) -> ProducerStates:
        """The producers' state at the beginning of this segment. Raises `SealBroken` where there is none to believe."""
        return ProducerStates.load(self._disk, self.path(SNAPSHOT_SUFFIX), self.base_offset)

    def save_snapshot(self, states: ProducerStates) -> None:
        states.save(self._disk, self.path(SNAPSHOT_SUFFIX), self.base_offset)

    def load_transactions(self) -> None:
        """Raises `SealBroken` where the log has to rebuild the index."""
        self.transactions = TransactionIndex.load(self._disk, self.path(transaction_index.SUFFIX), self.size)
        self.transactions_known = True

    def set_transactions(self, transactions: TransactionIndex) -> None:
        self.transactions = transactions
        self.transactions_known = True

    def _load_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        indexes = self._indexes
        try:
            indexes.load(self._disk, self.path(OffsetIndex.SUFFIX), self.path(TimeIndex.SUFFIX), self.size)
        except SealBroken as broken:
            _log.warning("%s; the indexes of %s are made again from it.", broken, self.path(LOG_SUFFIX))
            result = self.reindex()
            if result.broken is not None:
                raise self.damaged(result.broken.position, result.broken.reason) from broken
            if self.is_sealed:
                self._save_made_again()
        offsets, times = indexes.offsets, indexes.times
        assert offsets is not None
        assert times is not None
        if self.is_sealed:
            indexes.may_be_dropped()
        return offsets, times

    def _save_made_again(self) -> None:
        """Spare the next one who asks the scan. Reading goes on where the disk has no room for that."""
        try:
            self._save_places()
        except (DiskFull, DiskReadOnly) as error:
            _log.warning("The indexes of %s stay in memory only: %s", self.path(LOG_SUFFIX), error)

    def _keep_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        """The indexes, in memory to stay: the segment is about to grow."""
        offsets, times = self.offset_index, self.time_index
        self._indexes.keep(offsets, times)
        return offsets, times

    def drop_indexes(self) -> None:
        """Let go of what can be read again."""
        self._indexes.drop()

    def reindex(self, visit: Callable[[BatchHeader, memoryview], None] | None = None) -> Reindexed:
        """Make the indexes again by scanning every batch, showing each to `visit`, as far as they are sound."""
        self._indexes.start_anew()
        valid_bytes, next_offset, broken = 0, self.base_offset, None
        try:
            for position, header, batch in self.scan():
                self._indexes.note(header, position)
                if visit is not None:
                    visit(header, batch)
                valid_bytes, next_offset = position + header.size, header.next_offset
        except ChainBroken as error:
            broken = error
        self._indexes.is_dated = True
        return Reindexed(valid_bytes, next_offset, broken)

    # --- timestamps ---

    @property
    def first_timestamp(self) -> int:
        """The timestamp of the first batch that has been noted and has one."""
        return self._indexes.first_timestamp

    @property
    def is_dated(self) -> bool:
        """Whether the largest timestamp is in memory."""
        return self._indexes.is_dated

    @property
    def largest_timestamp(self) -> int:
        if not self._indexes.is_dated:
            self.date(self.time_index.largest_timestamp)
        return self._indexes.largest_timestamp

    def date(self, largest_timestamp: int) -> None:
        """Take in what `find_largest_timestamp` has found."""
        self._indexes.date(largest_timestamp)

    def find_largest_timestamp(self) -> int:
        """Return the largest timestamp of a sealed segment, from its files alone: it takes a while, and may be done on
        another thread.

        FileNotFoundError: the segment has gone meanwhile. LogDamaged: or it was cut, or it is damaged.
        """
        try:
            path = self.path(TimeIndex.SUFFIX)
            return TimeIndex.load(self._disk, path, self.base_offset, self.size).largest_timestamp
        except SealBroken:
            file = self._disk.open(self.path(LOG_SUFFIX))
        try:
            batches = scan_file(file, self.base_offset, None, end=self.size)
            return max((header.max_timestamp for _, header, _ in batches), default=NO_TIMESTAMP)
        except ChainBroken as broken:
            raise self.damaged(broken.position, broken.reason) from broken
        finally:
            file.close()

    def oldest_timestamp(self) -> int:
        """The largest timestamp of the first batch that has any: fillers have none."""
        headers = self._headers_from(Place(0, self.base_offset))
        return next((header.max_timestamp for header in headers if header.max_timestamp != NO_TIMESTAMP), NO_TIMESTAMP)

    # --- reading ---

    def scan(self) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """Every batch with its CRC checked; `ChainBroken` where they end to be sound."""
        return scan_file(self.file, self.base_offset, self._epochs, end=self.size)

    def locate(self, offset: int) -> Place:
        """The batch that holds `offset`."""
        place = self._walk(self.indexed_before(offset), lambda header: header.next_offset > offset)
        if place is None:
            raise self.damaged(self.size, f"the file ends before offset {offset}, which its index promises")
        return place

    def boundary_before(self, position: int) -> Place:
        """A batch boundary at or before `position`, near it."""
        base_offset, at = self.offset_index.place_before_position(position)
        return Place(at, base_offset)

    def indexed_before(self, offset: int) -> Place:
        """A batch boundary at or before the batch of `offset`, near it."""
        base_offset, position = self.offset_index.place(offset)
        return Place(position, base_offset)

    def indexed_after(self, position: int) -> int:
        """The first offset behind `position` that the index knows; the end of the segment, if there is none."""
        later = self.offset_index.offset_after_position(position)
        return self.next_offset if later is None else later

    def find_timestamp(self, timestamp: int, start: Place | None = None) -> Place | None:
        """The first batch with a record of `timestamp` or later, from `start` on."""
        if self.largest_timestamp < timestamp:
            return None
        if start is None:
            start = self.indexed_before(self.time_index.start_for(timestamp))
        return self._walk(start, lambda header: header.max_timestamp >= timestamp)

    def _walk(self, start: Place, found: Callable[[BatchHeader], bool]) -> Place | None:
        """Follow the chain from `start` to the first batch that is `found`."""
        position, offset = start
        while position < self.size:
            window = self.file.read_at(min(_LOOKUP_BYTES, self.size - position), position)
            at = 0
            while at + HEADER_BYTES <= len(window):
                header = read_header(window, at)
                self._check_link(header, offset, position + at)
                if found(header):
                    return Place(position + at, offset)
                at += header.size
                offset = header.next_offset
            if at == 0:
                raise self.damaged(position, f"{len(window)} bytes are less than a batch header")
            position += at
        return None

    def place_after(self, place: Place) -> Place:
        """Return where the batch behind the one at `place` stands, or would stand."""
        header = self._header_at(place)
        return Place(place.position + header.size, header.next_offset)

    def read_batch(self, place: Place) -> bytes:
        """The one batch at `place`."""
        return self.file.read_at(self._header_at(place).size, place.position)

    def _header_at(self, place: Place) -> BatchHeader:
        data = self.file.read_at(HEADER_BYTES, place.position)
        if len(data) < HEADER_BYTES:
            raise self.damaged(place.position, "the file is shorter than it was")
        header = read_header(data)
        self._check_link(header, place.base_offset, place.position)
        return header

    def _check_link(self, header: BatchHeader, offset: int, position: int) -> None:
        sound = header.base_offset == offset and header.size >= HEADER_BYTES and header.last_offset_delta >= 0
        if not sound or position + header.size > self.size or header.next_offset > self.next_offset:
            raise self.damaged(position, f"expected the batch of offset {offset}")

    def read(self, place: Place, max_bytes: int, end_offset: int) -> tuple[bytes, int]:
        """Whole batches from `place` on, below `end_offset`: (bytes, offset after them).

        At most `max_bytes`, but always one batch, so that a reader with a small buffer gets on.
        """
        data = self.file.read_at(min(max_bytes, self.size - place.position), place.position)
        try:
            length, next_offset = walk_chain(data, place.base_offset, self._epochs, end_offset)
            if length == 0:
                data = self.read_batch(place)
                length, next_offset = walk_chain(data, place.base_offset, self._epochs, end_offset)
        except ChainBroken as broken:
            raise self.damaged(place.position + broken.position, broken.reason) from broken
        at_end = place.position + length == self.size
        if next_offset > self.next_offset or at_end != (next_offset == self.next_offset):
            raise self.damaged(place.position, f"its batches end at offset {next_offset}, not {self.next_offset}")
        return data if length == len(data) else data[:length], next_offset

    def check_tail(self) -> None:
        """See that the file ends where the next segment begins. Raises `LogDamaged`."""
        if self.size == 0 and self.next_offset == self.base_offset:
            return
        self.locate(self.next_offset - 1)
        place = self.boundary_before(self.size)
        data = self.file.read_at(self.size - place.position, place.position)
        try:
            length, next_offset = walk_chain(data, place.base_offset, self._epochs)
        except ChainBroken as broken:
            raise self.damaged(place.position + broken.position, broken.reason) from broken
        if length != len(data) or next_offset != self.next_offset:
            raise self.damaged(place.position + length, f"it ends at offset {next_offset}, not {self.next_offset}")

    def damaged(self, position: int, reason: str) -> LogDamaged:
        return LogDamaged(self.path(LOG_SUFFIX), position, reason)

    def retire(self, suffix: str) -> list[str]:
        """Rename all files of this segment out of the log's sight; returns their new names, the log file's last."""
        retired = []
        for kind in (*INDEX_SUFFIXES, SNAPSHOT_SUFFIX, LOG_SUFFIX):
            path = self.path(kind)
            if self._disk.exists(path):
                self._disk.rename(path, path + suffix)
                retired.append(path + suffix)
        self.was_retired(suffix)
        return retired

    def was_retired(self, suffix: str) -> None:
        """Note that the owner has renamed the files: readers find the log file until it is removed."""
        if self._kept is not None:
            self._kept.moved_to(self.path(LOG_SUFFIX) + suffix)

    def close(self) -> None:
        self.file.close()
