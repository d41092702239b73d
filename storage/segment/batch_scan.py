"""Walking the batches of a log file, and seeing where the chain breaks.

Two walks: `walk_chain` looks at headers in bytes already read and is cheap enough for every fetch; `scan_file` reads a
whole file, sums every CRC, and is what recovery, index building and compaction use.

What must stay true: whatever a walk yields joins on to what it yielded before - next offset, known epoch, whole
length. The header fields outside the CRC are proved by that and by nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from raylog.errors import BatchError
from raylog.storage.disk.disk import DiskFile
from raylog.storage.format.record_batch import (
    CHAIN_FIELDS,
    HEADER_BYTES,
    KNOWN_MAGICS,
    LENGTH_PREFIX_BYTES,
    MAX_OFFSET_DELTA,
    NO_LEADER_EPOCH,
    BatchHeader,
    Bytes,
    check_crc,
    check_shape,
    read_header,
)
from raylog.storage.segment.leader_epochs import LeaderEpochs

SCAN_CHUNK: Final = 1024 * 1024


class ChainBroken(Exception):
    """The batch at `position` is not the one that must stand there. Internal: callers say what it means."""

    def __init__(self, position: int, reason: str, *, incomplete: bool = False) -> None:
        super().__init__(position, reason, incomplete)
        self.position = position
        self.reason = reason
        self.incomplete = incomplete  # the file ends before the batch does


@dataclass
class EpochCheck:
    """Compares batches' epochs with the log's history, at the price of one comparison a batch."""

    epochs: LeaderEpochs | None
    epoch: int = -1
    until: int = -1

    def accepts(self, base_offset: int, epoch: int) -> bool:
        if self.epochs is None:
            return True
        if base_offset >= self.until:
            self.epoch, self.until = self.epochs.span_at(base_offset)
        # Before the history there are only batches that retention is about to remove; nobody is served those.
        return self.epoch in (epoch, NO_LEADER_EPOCH)


def walk_chain(
    data: Bytes, first_offset: int, epochs: LeaderEpochs | None, end_offset: int = -1
) -> tuple[int, int]:
    """Walk the whole batches of `data`, the first of which begins at `first_offset`.

    Returns (bytes of whole batches, offset after them). Stops before a batch that `data` does not hold wholly, and
    before one that does not end by `end_offset`, if that is given. Raises `ChainBroken` (positions within `data`).
    """
    check = EpochCheck(epochs)
    unpack = CHAIN_FIELDS.unpack_from
    position, offset, end = 0, first_offset, len(data)
    while position + HEADER_BYTES <= end and (end_offset < 0 or offset < end_offset):
        base, length, epoch, magic, delta = unpack(data, position)
        size = length + LENGTH_PREFIX_BYTES
        if base != offset or size < HEADER_BYTES or delta < 0 or magic not in KNOWN_MAGICS:
            raise ChainBroken(position, f"expected the batch of offset {offset}")
        if not check.accepts(base, epoch):
            raise ChainBroken(position, f"batch of epoch {epoch} where epoch {check.epoch} wrote offset {offset}")
        next_offset = base + delta + 1
        if position + size > end or 0 <= end_offset < next_offset:
            break
        position += size
        offset = next_offset
    return position, offset


def scan_file(
    file: DiskFile, first_offset: int, epochs: LeaderEpochs | None, start: int = 0, end: int | None = None
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Yield (position, header, batch) for the batches in [start, end), each with its CRC checked.

    The memory of a yielded batch stays valid only as long as the caller holds it; nothing is reused. Raises
    `ChainBroken` at the first batch that is not right.
    """
    end = file.size() if end is None else end
    check = EpochCheck(epochs)
    offset = first_offset
    position = start
    while position < end:
        chunk = memoryview(file.read_at(min(SCAN_CHUNK, end - position), position))
        at = 0
        while at + HEADER_BYTES <= len(chunk):
            header = read_header(chunk, at)
            _check_link(header, offset, position + at, end, check)
            if at + header.size > len(chunk):
                break
            batch = chunk[at : at + header.size]
            _check_content(header, batch, position + at)
            yield position + at, header, batch
            at += header.size
            offset = header.next_offset
        if at == 0:
            batch = _read_large(file, position, end, len(chunk))
            header = read_header(batch)
            _check_content(header, batch, position)
            yield position, header, batch
            at = header.size
            offset = header.next_offset
        position += at


def _check_link(header: BatchHeader, offset: int, position: int, end: int, check: EpochCheck) -> None:
    if header.base_offset != offset:
        raise ChainBroken(position, f"batch of offset {header.base_offset} where {offset} comes next")
    try:
        check_shape(header)
    except BatchError as error:
        raise ChainBroken(position, error.describe()) from error
    if not check.accepts(offset, header.leader_epoch):
        raise ChainBroken(
            position, f"batch of epoch {header.leader_epoch} where epoch {check.epoch} wrote offset {offset}"
        )
    if position + header.size > end:
        raise ChainBroken(
            position, f"batch of {header.size} bytes where {end - position} are left", incomplete=True
        )


def _check_content(header: BatchHeader, batch: memoryview, position: int) -> None:
    try:
        check_crc(header, batch)
    except BatchError as error:
        raise ChainBroken(position, error.describe()) from error


def _read_large(file: DiskFile, position: int, end: int, available: int) -> memoryview:
    """A batch larger than a chunk; its link has been checked if there was a header to check."""
    if available < HEADER_BYTES:
        raise ChainBroken(position, f"{end - position} bytes are less than a header", incomplete=True)
    header = read_header(file.read_at(HEADER_BYTES, position))
    batch = memoryview(file.read_at(header.size, position))
    if len(batch) < header.size:
        raise ChainBroken(position, "the file became shorter while it was read")
    return batch


def has_batch_after(file: DiskFile, position: int, after_offset: int) -> bool:
    """Whether a sound batch with an offset over `after_offset` begins somewhere after `position`.

    Tells a torn tail, behind which there is nothing, from a damaged length field, behind which the log goes on.
    """
    return next_sound_batch(file, position, after_offset) is not None


def is_whole_but_for_its_length(file: DiskFile, position: int) -> bool:
    """Whether all that is left of the file is one batch, as its CRC has it, whatever length it declares.

    The CRC does not cover the length. Damaged in the last batch, it looks as if that had been torn; but then not all of
    what the CRC counts would be there.
    """
    size = file.size() - position
    if size < HEADER_BYTES:
        return False
    batch = file.read_at(size, position)
    try:
        check_crc(read_header(batch), batch)
    except BatchError:
        return False
    return True


def next_sound_batch(file: DiskFile, position: int, after_offset: int) -> int | None:
    """The first position after `position` where a sound batch with an offset over `after_offset` begins."""
    end = file.size()
    highs = {(offset >> 32).to_bytes(4, "big") for offset in (after_offset, after_offset + MAX_OFFSET_DELTA)}
    magics = b"".join(re.escape(bytes([magic])) for magic in KNOWN_MAGICS)
    # Zero-width, so that candidates may overlap: high half of the offset, 12 bytes of anything, a magic.
    candidate = re.compile(b"(?=(?:" + b"|".join(map(re.escape, highs)) + b").{12}[" + magics + b"])", re.DOTALL)
    start = position + 1
    while start + HEADER_BYTES <= end:
        window = file.read_at(min(SCAN_CHUNK + HEADER_BYTES, end - start), start)
        for match in candidate.finditer(window):
            if match.start() + HEADER_BYTES <= len(window) and _is_sound_batch(
                file, start + match.start(), read_header(window, match.start()), after_offset, end
            ):
                return start + match.start()
        start += SCAN_CHUNK
    return None


def _is_sound_batch(file: DiskFile, position: int, header: BatchHeader, after_offset: int, end: int) -> bool:
    if not after_offset < header.base_offset <= after_offset + MAX_OFFSET_DELTA + 1 or position + header.size > end:
        return False
    try:
        check_shape(header)
        check_crc(header, file.read_at(header.size, position))
    except BatchError:
        return False
    return True
