"""Walking a log file that may be damaged: everything that is still there, and what stands between.

`scan_file` stops at the first thing that is wrong; a dump wants to see the rest too. So where it stops, this walk finds
out how far the damage goes and starts it again behind that. Either the extent of the batch there can still be told,
because its CRC fits or because the next batch stands where its length says; then it is shown with its faults. Or it
cannot; then bytes are lost up to the next sound batch.

What must stay true: every byte of the file is in exactly one of the things a walk yields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from raylog.errors import BatchError
from raylog.storage.disk.disk import DiskFile
from raylog.storage.format.record_batch import HEADER_BYTES, BatchHeader, check_crc, check_shape, read_header
from raylog.storage.segment.batch_scan import SCAN_CHUNK, ChainBroken, EpochCheck, next_sound_batch, scan_file
from raylog.storage.segment.leader_epochs import LeaderEpochs


@dataclass(frozen=True)
class FoundBatch:
    """A batch whose extent is known. With `faults` it is not what the log must have there.

    `expected_offset` is where the batch before it ended; `base_offset` is what it is taken to begin with, by itself and
    by the batch after it. Its header may say a third thing.
    """

    position: int
    header: BatchHeader
    data: memoryview
    expected_offset: int
    base_offset: int
    crc_ok: bool = True
    shape_ok: bool = True
    faults: tuple[str, ...] = ()

    @property
    def is_readable(self) -> bool:
        """Whether its records can be looked at; it may still stand where it does not belong."""
        return self.crc_ok and self.shape_ok

    @property
    def end(self) -> int:
        return self.position + self.header.size

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.header.last_offset_delta + 1


@dataclass(frozen=True)
class LostBytes:
    """Bytes that are no batch any more, up to the next sound one or the end of the file."""

    position: int
    end: int
    expected_offset: int
    reason: str
    next_offset: int | None  # of that sound one

    @property
    def is_tail(self) -> bool:
        return self.next_offset is None


class LogWalk:
    """One pass over a log file, from the batch of `offset` at `position` on.

    `position` and `offset` move along: where the next batch has to begin, and with which offset.
    """

    def __init__(self, file: DiskFile, offset: int, epochs: LeaderEpochs | None, position: int = 0) -> None:
        self._file = file
        self._end = file.size()
        self._epochs = EpochCheck(epochs)
        self._before = max(0, offset - 1)
        self.position = position
        self.offset = offset

    def __iter__(self) -> Iterator[FoundBatch | LostBytes]:
        while self.position < self._end:
            try:
                yield from self._sound_batches()
            except ChainBroken as broken:
                if not (broken.incomplete and self._has_grown()):
                    yield self._what_is_there(broken)

    def _sound_batches(self) -> Iterator[FoundBatch]:
        for position, header, data in scan_file(self._file, self.offset, None, self.position, self._end):
            self.position, self.offset = position + header.size, header.next_offset
            offset, faults = header.base_offset, self._epoch_faults(header)
            yield FoundBatch(position, header, data, offset, offset, faults=faults)

    def _has_grown(self) -> bool:
        """Whether the last batch was only being appended; then it is taken in, and nothing after it."""
        head = self._file.read_at(HEADER_BYTES, self.position)
        if len(head) < HEADER_BYTES:
            return False
        header = read_header(head)
        grown = header.base_offset == self.offset and self._end < self.position + header.size <= self._file.size()
        if grown:
            self._end = self.position + header.size
        return grown

    def _what_is_there(self, broken: ChainBroken) -> FoundBatch | LostBytes:
        found = self._faulty_batch()
        return self._lost_bytes(broken.reason) if found is None else found

    # --- a batch with faults ---

    def _faulty_batch(self) -> FoundBatch | None:
        """The batch here, if it can be told where it ends."""
        head = self._file.read_at(HEADER_BYTES, self.position)
        if len(head) < HEADER_BYTES:
            return None
        header = read_header(head)
        if header.size < HEADER_BYTES or self.position + header.size > self._end:
            return None
        data = memoryview(self._file.read_at(header.size, self.position))
        wrong_crc = _refusal(check_crc, header, data)
        goes_on = self._offset_after(header)
        if wrong_crc is not None and goes_on is None:
            return None
        wrong_shape = _refusal(check_shape, header)
        # Where the CRC is wrong, what else the header seems to say follows from that.
        faults = tuple(fault for fault in (self._wrong_offset(header), wrong_crc or wrong_shape) if fault)
        position, expected = self.position, self.offset
        self.position += header.size
        if goes_on is None:
            # Nothing tells whether offsets are missing or the field is damaged; the lower number misleads less.
            goes_on = max(0, min(header.base_offset, expected) + header.last_offset_delta + 1)
        self.offset = goes_on
        base_offset = self.offset - header.last_offset_delta - 1
        return FoundBatch(
            position, header, data, expected, base_offset, wrong_crc is None, wrong_shape is None, faults
        )

    def _offset_after(self, header: BatchHeader) -> int | None:
        """The offset that comes after the batch here, going by what stands behind it; None where that says nothing."""
        after = self.position + header.size
        in_sequence = self.offset + header.last_offset_delta + 1
        if after == self._end:
            return in_sequence
        head = self._file.read_at(HEADER_BYTES, after)
        if len(head) < HEADER_BYTES:
            return None
        following = read_header(head)
        if _refusal(check_shape, following) is not None:
            return None
        if following.base_offset == in_sequence:
            return in_sequence
        if following.base_offset <= self.offset or after + following.size > self._end:
            return None
        data = self._file.read_at(following.size, after)
        return following.base_offset if _refusal(check_crc, following, data) is None else None

    def _wrong_offset(self, header: BatchHeader) -> str | None:
        if header.base_offset == self.offset:
            return None
        return f"The batch claims offset {header.base_offset} where {self.offset} comes next."

    def _epoch_faults(self, header: BatchHeader) -> tuple[str, ...]:
        if self._epochs.accepts(header.base_offset, header.leader_epoch):
            return ()
        return (f"The batch is of epoch {header.leader_epoch}, but epoch {self._epochs.epoch} wrote that offset.",)

    # --- no batch at all ---

    def _lost_bytes(self, reason: str) -> LostBytes:
        start, expected = self.position, self.offset
        # Damage may have misled the walk about the offset, so any sound batch of this file is good enough.
        resumes_at = next_sound_batch(self._file, start, self._before)
        resumes_offset = None
        self.position = self._end
        if resumes_at is not None and resumes_at < self._end:
            self.position = resumes_at
            self.offset = resumes_offset = read_header(self._file.read_at(HEADER_BYTES, resumes_at)).base_offset
        zeros = self._zeros_before(start, self.position)
        if zeros == self.position - start:
            reason = "there are only zeros, as a power cut can leave them"
        elif zeros >= HEADER_BYTES:
            reason = f"{reason.rstrip('.')}; the last {zeros} bytes are zeros, as a power cut can leave them"
        return LostBytes(start, self.position, expected, reason, resumes_offset)

    def _zeros_before(self, start: int, end: int) -> int:
        """Return how many bytes up to `end` are zeros, at most back to `start`."""
        zeros = 0
        while end > start:
            length = min(SCAN_CHUNK, end - start)
            kept = len(self._file.read_at(length, end - length).rstrip(b"\0"))
            zeros += length - kept
            if kept:
                break
            end -= length
        return zeros


def _refusal(check: Callable[..., None], *args: object) -> str | None:
    try:
        check(*args)
    except BatchError as error:
        return error.describe()
    return None
