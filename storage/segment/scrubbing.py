"""Reading segments for no other reason than to see whether they are as they were written (rule 1).

    sealed_segments ──► for each: scrub_piece, piece by piece ──► sound to its end, or the offset where it is not

What must stay true: the bytes come from the disk, and not from the page cache, where they may be better than there; and
they do not stay in it, where they would take the place of what consumers read.
What is found is a suspicion. A segment may be compacted, cut or deleted meanwhile, and its replica alone knows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from raylog.storage.disk.disk import Disk, DiskFile
from raylog.storage.segment.batch_scan import ChainBroken, scan_file
from raylog.storage.segment.segment import LOG_SUFFIX, file_name

UNKNOWN_END: Final = -1
_LOG_FILE: Final = re.compile(r"(\d{20})\.log")


@dataclass(frozen=True, slots=True)
class ScrubPlace:
    """The place up to which a segment has been read."""

    base_offset: int
    position: int = 0
    next_offset: int = -1  # of what stands at the position; −1: the segment's first


@dataclass(frozen=True, slots=True)
class Scrubbed:
    """The outcome of a piece. `place` None: there is no more of the segment. `suspect`: an offset that is not sound."""

    place: ScrubPlace | None
    size: int
    suspect: int | None = None


def sealed_segments(disk: Disk, directory: str) -> list[tuple[int, int]]:
    """First and next offset of all segments but the one that grows; none where there is no replica."""
    return list(pairwise(_bases(disk, directory)))


def segments_from(disk: Disk, directory: str, base_offset: int) -> list[tuple[int, int]]:
    """First and next offset of all segments that begin there or later. Of the one that grows `UNKNOWN_END`."""
    bases = [each for each in _bases(disk, directory) if each >= base_offset]
    return list(pairwise([*bases, UNKNOWN_END]))


def _bases(disk: Disk, directory: str) -> list[int]:
    try:
        names = map(_LOG_FILE.fullmatch, disk.list_directory(directory))
    except FileNotFoundError:
        return []
    return sorted(int(name[1]) for name in names if name)


def scrub_piece(disk: Disk, directory: str, place: ScrubPlace, end_offset: int, max_bytes: int) -> Scrubbed:
    """Read on from `place`, about `max_bytes`. `end_offset`: where the next segment begins, if known. DiskError."""
    try:
        file = disk.open(f"{directory}/{file_name(place.base_offset, LOG_SUFFIX)}")
    except FileNotFoundError:
        return Scrubbed(None, 0)
    try:
        return _scrub(file, place, end_offset, max_bytes)
    finally:
        file.close()


def _scrub(file: DiskFile, place: ScrubPlace, end_offset: int, max_bytes: int) -> Scrubbed:
    size, position = file.size(), place.position
    offset = place.base_offset if place.next_offset < 0 else place.next_offset
    length = min(max_bytes, size - position)
    file.drop_cached(length, position)
    try:
        for at, header, _ in scan_file(file, offset, None, position, size):
            position, offset = at + header.size, header.next_offset
            if position - place.position >= length:
                break
    except ChainBroken:
        return Scrubbed(None, position - place.position, offset)
    finally:
        file.drop_cached(max(length, position - place.position), place.position)
    read = position - place.position
    if position < size:
        return Scrubbed(ScrubPlace(place.base_offset, position, offset), read)
    return Scrubbed(None, read, None if end_offset in (offset, UNKNOWN_END) else offset - 1)
