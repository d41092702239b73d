"""The aborted transactions of one segment: what a `read_committed` reader has to skip.

An entry is 34 bytes as in Kafka: version i16, producer id, first offset, last offset (the marker's), and the last
stable offset when the transaction ended, each i64. It stands with the segment that holds the abort marker.

What must stay true: the entries stand in the order of their markers, so last offsets rise and last stable offsets do
not fall. A look-up relies on both. A segment may hold a million aborts, so it must not visit all of them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from raylog.config import INT64_MAX
from raylog.storage.disk.disk import Disk
from raylog.storage.disk.sealed_file import map_sealed, write_sealed
from raylog.storage.format.record_batch import Bytes

SUFFIX: Final = ".txnindex"
_ENTRY: Final = struct.Struct(">hqqqq")
_ENTRY_VERSION: Final = 0
_TAG: Final = b"RLXI"
_VERSION: Final = 1
_BLOCK: Final = 256  # entries that are visited or passed over together


class AbortedTransaction(NamedTuple):
    """The records of `producer_id` from `first_offset` to `last_offset` never happened."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass
class AbortedRange:
    """The aborted transactions with records in [`start_offset`, `end_offset`), `at_most` of them.

    Where there are more, the range ends before the first record of the one that is too many.
    """

    start_offset: int
    end_offset: int
    at_most: int = INT64_MAX
    of_producer: int | None = None
    found: list[AbortedTransaction] = field(default_factory=list)

    def take(self, entries: Iterable[AbortedTransaction]) -> None:
        start, end, producer = self.start_offset, self.end_offset, self.of_producer
        self.found += [
            entry
            for entry in entries
            if entry.first_offset < end
            and entry.last_offset >= start
            and (producer is None or entry.producer_id == producer)
        ]
        if len(self.found) > 2 * self.at_most:  # not at each one too many: each time costs a sort
            self.shorten()

    def shorten(self) -> None:
        """Keep `at_most` of what was found."""
        if len(self.found) > self.at_most:
            self.found.sort(key=lambda entry: entry.first_offset)
            self.end_offset = self.found[self.at_most].first_offset
            del self.found[self.at_most :]


class TransactionIndex:
    """The aborted transactions whose markers lie in one segment, in the order of their markers."""

    def __init__(self, aborted: Iterable[AbortedTransaction] = (), entries: Bytes = b"") -> None:
        self._entries = bytearray(entries)
        self.size_bytes = len(entries)  # each append asks for it
        self._earliest: dict[int, int] = {}  # block number to its smallest first offset, of the blocks looked at
        for each in aborted:
            self.add(each)

    @classmethod
    def load(cls, disk: Disk, path: str, log_bytes: int) -> TransactionIndex:
        """Raises `SealBroken` where the index does not describe a log file of `log_bytes`."""
        return cls(entries=map_sealed(disk, path, _TAG, _VERSION, log_bytes, entry_bytes=_ENTRY.size))

    def save(self, disk: Disk, path: str, log_bytes: int) -> None:
        write_sealed(disk, path, _TAG, _VERSION, log_bytes, self._entries)

    def __len__(self) -> int:
        return len(self._entries) // _ENTRY.size

    @property
    def aborted(self) -> list[AbortedTransaction]:
        """All of them."""
        return list(self._between(0, len(self)))

    def add(self, transaction: AbortedTransaction) -> None:
        block = len(self) // _BLOCK
        if block in self._earliest:
            self._earliest[block] = min(self._earliest[block], transaction.first_offset)
        self._entries += _ENTRY.pack(_ENTRY_VERSION, *transaction)
        self.size_bytes = len(self._entries)

    def overlapping(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The transactions with records in [start_offset, end_offset)."""
        wanted = AbortedRange(start_offset, end_offset)
        self.look_up(wanted)
        return wanted.found

    def look_up(self, wanted: AbortedRange) -> None:
        """Let `wanted` take what it is about."""
        at, count = self._first_ending_at(wanted.start_offset), len(self)
        while at < count:
            behind = min(count, (at // _BLOCK + 1) * _BLOCK)
            if self._earliest_of(at // _BLOCK) < wanted.end_offset:
                wanted.take(self._between(at, behind))
            if self._stable_offset(behind - 1) >= wanted.end_offset:
                break  # what was aborted later began later
            at = behind

    def complete_for(self, end_offset: int) -> bool:
        """Whether no later segment can hold an abort that matters to a reader below `end_offset`."""
        return len(self) > 0 and self._stable_offset(len(self) - 1) >= end_offset

    def cut(self, offset: int) -> None:
        """Forget transactions whose marker lies at `offset` or after it."""
        left = self._first_ending_at(offset)
        del self._entries[left * _ENTRY.size :]
        self.size_bytes = len(self._entries)
        self._earliest = {block: first for block, first in self._earliest.items() if block < left // _BLOCK}

    def _first_ending_at(self, offset: int) -> int:
        """The number of the first entry whose marker lies at `offset` or after it."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self._at(middle).last_offset < offset:
                low = middle + 1
            else:
                high = middle
        return low

    def _stable_offset(self, at: int) -> int:
        return self._at(at).last_stable_offset

    def _at(self, at: int) -> AbortedTransaction:
        return AbortedTransaction(*_ENTRY.unpack_from(self._entries, at * _ENTRY.size)[1:])

    def _between(self, first: int, behind: int) -> Iterator[AbortedTransaction]:
        entries = bytes(self._entries[first * _ENTRY.size : behind * _ENTRY.size])
        return (AbortedTransaction(*fields) for _, *fields in _ENTRY.iter_unpack(entries))

    def _earliest_of(self, block: int) -> int:
        earliest = self._earliest.get(block)
        if earliest is None:
            first = block * _BLOCK
            entries = self._between(first, min(len(self), first + _BLOCK))
            earliest = self._earliest[block] = min(entry.first_offset for entry in entries)
        return earliest
