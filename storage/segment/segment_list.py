"""The segments of a log, in order of their offsets.

What must stay true: there is at least one; each ends where the next begins; only the last one grows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise

from raylog.storage.segment.segment import Segment


class SegmentList:
    """Finds the segment of an offset by binary search."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self.active: Segment
        self._segments = list(segments)
        self._bases = [segment.base_offset for segment in segments]
        self._find_active()

    def _find_active(self) -> None:
        """Every append asks for it several times. There is none for moments only, while a log starts over."""
        if self._segments:
            self.active = self._segments[-1]

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    def __getitem__(self, at: int) -> Segment:
        return self._segments[at]

    @property
    def sealed(self) -> list[Segment]:
        return self._segments[:-1]

    def bases(self) -> list[int]:
        return self._bases.copy()

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    def containing(self, offset: int) -> Segment:
        """The segment that holds `offset`, or would hold it; the first one for offsets before the log."""
        return self._segments[max(0, bisect_right(self._bases, offset) - 1)]

    def from_offset(self, offset: int) -> list[Segment]:
        """The segment that holds `offset`, and all after it."""
        return self._segments[max(0, bisect_right(self._bases, offset) - 1) :]

    def broken_invariants(self) -> Iterator[str]:
        """Say in words what contradicts the top of this file."""
        for before, after in pairwise(self._segments):
            if before.next_offset != after.base_offset:
                yield f"the segment {before.base_offset} ends at {before.next_offset}, the next is {after.base_offset}"
            if not before.is_sealed:
                yield f"the segment {before.base_offset} grows, and is not the last one"
        if not self._segments or self.active is not self._segments[-1] or self.active.is_sealed:
            yield "the last segment is not the one that grows"

    def add(self, segment: Segment) -> None:
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self._find_active()

    def remove(self, segment: Segment) -> None:
        at = self._segments.index(segment)
        del self._segments[at]
        del self._bases[at]
        self._find_active()

    def replace(self, old: Sequence[Segment], new: Segment) -> None:
        """Put `new` in the place of the neighbours `old`, whose offsets it spans."""
        at = self._segments.index(old[0])
        self._segments[at : at + len(old)] = [new]
        self._bases[at : at + len(old)] = [new.base_offset]
        self._find_active()
