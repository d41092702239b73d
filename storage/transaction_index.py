"""The aborted transactions of one segment: what a `read_committed` reader has to skip.

An entry is 34 bytes as in Kafka: version i16, producer id, first offset, last offset (the marker's), and the last
stable offset when the transaction ended, each i64. It stands with the segment that holds the abort marker.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from raylog.storage.disk import Disk
from raylog.storage.sealed_file import map_sealed, write_sealed

SUFFIX: Final = ".txnindex"
_ENTRY: Final = struct.Struct(">hqqqq")
_ENTRY_VERSION: Final = 0
_TAG: Final = b"RLXI"
_VERSION: Final = 1


class AbortedTransaction(NamedTuple):
    """The records of `producer_id` from `first_offset` to `last_offset` never happened."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The aborted transactions whose markers lie in one segment, in the order of their markers."""

    def __init__(self, aborted: list[AbortedTransaction] | None = None) -> None:
        self.aborted = aborted or []

    @classmethod
    def load(cls, disk: Disk, path: str, log_bytes: int) -> TransactionIndex:
        """Raises `SealBroken` where the index does not describe a log file of `log_bytes`."""
        body = map_sealed(disk, path, _TAG, _VERSION, log_bytes, entry_bytes=_ENTRY.size)
        return cls([AbortedTransaction(*fields) for _, *fields in _ENTRY.iter_unpack(body)])

    def save(self, disk: Disk, path: str, log_bytes: int) -> None:
        body = b"".join(_ENTRY.pack(_ENTRY_VERSION, *entry) for entry in self.aborted)
        write_sealed(disk, path, _TAG, _VERSION, log_bytes, body)

    def add(self, transaction: AbortedTransaction) -> None:
        self.aborted.append(transaction)

    def overlapping(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The transactions with records in [start_offset, end_offset)."""
        return [
            entry for entry in self.aborted if entry.last_offset >= start_offset and entry.first_offset < end_offset
        ]

    def complete_for(self, end_offset: int) -> bool:
        """Whether no later segment can hold an abort that matters to a reader below `end_offset`."""
        return any(entry.last_stable_offset >= end_offset for entry in self.aborted)

    def cut(self, offset: int) -> None:
        """Forget transactions whose marker lies at `offset` or after it."""
        self.aborted = [entry for entry in self.aborted if entry.last_offset < offset]
