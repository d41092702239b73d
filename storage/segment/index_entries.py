"""Sparse sorted pairs of numbers, the stuff that offset and time indexes are made of.

While its segment grows, an index lives in memory; when the segment is sealed or the log closed it is written once, as
a sealed file, and from then on searched as it stands there. So there is no half-written index to repair: one on disk is
whole, or is made again from the log.

What must stay true: the first numbers strictly rise and the second ones do not fall.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import NamedTuple


class Entry(NamedTuple):
    first: int
    second: int


class IndexEntries:
    """Pairs, either growing in memory or as they stand in a sealed file."""

    def __init__(self, layout: struct.Struct) -> None:
        self._layout = layout
        self._firsts, self._seconds = _columns(layout)
        self._sealed: memoryview | None = None

    @classmethod
    def over(cls, layout: struct.Struct, sealed: memoryview) -> IndexEntries:
        entries = cls(layout)
        entries._sealed = sealed
        return entries

    def __len__(self) -> int:
        if self._sealed is not None:
            return len(self._sealed) // self._layout.size
        return len(self._firsts)

    def __getitem__(self, at: int) -> Entry:
        if self._sealed is not None:
            return Entry._make(self._layout.unpack_from(self._sealed, at * self._layout.size))
        return Entry(self._firsts[at], self._seconds[at])

    @property
    def last(self) -> Entry | None:
        return self[len(self) - 1] if len(self) else None

    def append(self, first: int, second: int) -> None:
        self._firsts.append(first)
        self._seconds.append(second)

    def floor(self, first: int) -> Entry | None:
        """The last pair whose first number is at most `first`."""
        if self._sealed is None:
            at = bisect_right(self._firsts, first)
        else:
            at = bisect_right(range(len(self)), first, key=self._number_at(0))
        return self[at - 1] if at else None

    def before(self, first: int) -> Entry | None:
        """The last pair whose first number is less than `first`."""
        return self.floor(first - 1)

    def floor_by_second(self, second: int) -> Entry | None:
        """The last pair whose second number is at most `second`."""
        at = bisect_right(range(len(self)), second, key=self._number_at(1))
        return self[at - 1] if at else None

    def after_second(self, second: int) -> Entry | None:
        """The first pair whose second number is more than `second`."""
        at = bisect_right(range(len(self)), second, key=self._number_at(1))
        return self[at] if at < len(self) else None

    def cut(self, second: int) -> None:
        """Drop the pairs whose second number is `second` or more. They come into memory for it."""
        self.thaw()
        at = bisect_left(self._seconds, second)
        del self._firsts[at:]
        del self._seconds[at:]

    def encoded(self) -> bytes:
        if self._sealed is not None:
            return bytes(self._sealed)
        return _interleaved(self._firsts, self._seconds)

    def thaw(self) -> None:
        """Take the pairs of a sealed file apart, so that the index can grow."""
        if self._sealed is None:
            return
        sealed, self._sealed = self._sealed, None
        _deinterleave(sealed, self._firsts, self._seconds)

    def _number_at(self, column: int) -> Callable[[int], int]:
        if self._sealed is None:
            return (self._firsts, self._seconds)[column].__getitem__
        sealed, unpack, width = self._sealed, self._layout.unpack_from, self._layout.size
        return lambda at: int(unpack(sealed, at * width)[column])


# A segment of 1 GiB has a quarter of a million pairs, and sealing it must not stall the appends that wait. So the
# columns are woven together byte by byte with strided slices, which run in C.


def _columns(layout: struct.Struct) -> tuple[array[int], array[int]]:
    assert layout.format[0] == ">"
    return array(layout.format[1]), array(layout.format[2])


def _interleaved(firsts: array[int], seconds: array[int]) -> bytes:
    width = firsts.itemsize + seconds.itemsize
    woven = bytearray(width * len(firsts))
    start = 0
    for column in (firsts, seconds):
        numbers = _big_endian(column).tobytes()
        for at in range(column.itemsize):
            woven[start + at :: width] = numbers[at :: column.itemsize]
        start += column.itemsize
    return bytes(woven)


def _deinterleave(woven: memoryview, firsts: array[int], seconds: array[int]) -> None:
    width = firsts.itemsize + seconds.itemsize
    start = 0
    for column in (firsts, seconds):
        numbers = bytearray(len(woven) // width * column.itemsize)
        for at in range(column.itemsize):
            numbers[at :: column.itemsize] = bytes(woven[start + at :: width])
        column.frombytes(numbers)
        column[:] = _big_endian(column)
        start += column.itemsize


def _big_endian(column: array[int]) -> array[int]:
    """The same numbers with the bytes of each in file order, or back: swapping is its own inverse."""
    swapped = column[:]
    if sys.byteorder == "little":
        swapped.byteswap()
    return swapped
