"""Converted batches kept in memory, so that a batch is converted once and not for each group that reads it.

What must stay true: a batch is given only for the very bytes that it was made of. Compaction rewrites a batch under
the same offset and leader epoch, and may take the aborted records of a transaction out of it together with the list
that says which they are. So the stored batch's CRC is part of what it is found by.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from raylog.storage.format.record_batch import BatchHeader, Bytes

DEFAULT_ROOM: Final = 256 * 1024 * 1024


class ConvertedBatch(NamedTuple):
    """Name of a converted batch: the stored one, and the codec that it was given."""

    topic_id: bytes
    partition: int
    base_offset: int
    leader_epoch: int
    crc: int
    codec: int

    @classmethod
    def of(cls, topic_id: bytes, partition: int, header: BatchHeader, codec: int) -> ConvertedBatch:
        """The name of what this stored batch is converted to."""
        return cls(topic_id, partition, header.base_offset, header.leader_epoch, header.crc, codec)


class ConvertedBatches:
    """The batches that were asked for last, up to so many bytes."""

    def __init__(self, room: int = DEFAULT_ROOM) -> None:
        self._room = room
        self._kept: OrderedDict[ConvertedBatch, Bytes] = OrderedDict()
        self._size = 0
        self.hits = 0
        self.misses = 0

    @property
    def size(self) -> int:
        """Bytes of all batches that are kept."""
        return self._size

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, name: ConvertedBatch) -> Bytes | None:
        """Return the batch, which is the last one to go from now on; None if it is not kept."""
        found = self._kept.get(name)
        if found is None:
            self.misses += 1
            return None
        self._kept.move_to_end(name)
        self.hits += 1
        return found

    def keep(self, name: ConvertedBatch, batch: Bytes) -> None:
        """Keep a batch, and let those go that nobody has asked for the longest. One that is too large is not kept."""
        self._drop(name)
        if len(batch) > self._room:
            return
        self._kept[name] = batch
        self._size += len(batch)
        while self._size > self._room:
            self._drop(next(iter(self._kept)))

    def _drop(self, name: ConvertedBatch) -> None:
        batch = self._kept.pop(name, None)
        if batch is not None:
            self._size -= len(batch)

    def broken_invariants(self) -> list[str]:
        """Return what does not hold of it, in words."""
        total = sum(map(len, self._kept.values()))
        found = [f"{self._size} bytes are counted where {total} are kept"] if total != self._size else []
        if total > self._room:
            found.append(f"{total} bytes are kept in a room of {self._room}")
        return found
