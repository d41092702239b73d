"""The newest offset of each key, in 24 bytes a slot: 16 of hash and 8 of offset, whatever the key's length.

Open addressing with linear probing over three number columns. The two halves of the hash are Python's own keyed hash
(SipHash, secret per process), taken with and without a prefix that is random per map: nobody can choose keys that
collide, and by chance two of a billion keys meet with a probability of 10^-20. Slots are filled to 80 %, so a key costs
30 bytes, from a budget that all compactions of a broker share.
"""

from __future__ import annotations

import secrets
import threading
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from raylog.errors import CompactionMemoryTaken, CompactionMemoryTooSmall

SLOT_BYTES: Final = 24
FILL_LIMIT: Final = 0.8
DEFAULT_BUDGET_BYTES: Final = 128 * 1024 * 1024
_FREE: Final = -1


def bytes_for(keys: int) -> int:
    """Return the bytes that a map for so many keys takes."""
    return (int(keys / FILL_LIMIT) + 1) * SLOT_BYTES


def keys_for(memory_bytes: int) -> int:
    """Return how many keys a map of this size takes."""
    return int(memory_bytes // SLOT_BYTES * FILL_LIMIT)


class MemoryBudget:
    """Memory for key maps, shared by the compactions of one broker."""

    def __init__(self, total_bytes: int = DEFAULT_BUDGET_BYTES) -> None:
        self._total = total_bytes
        self._free = total_bytes
        self._lock = threading.Lock()

    @property
    def total_bytes(self) -> int:
        return self._total

    @property
    def free_bytes(self) -> int:
        return self._free

    @contextmanager
    def grant(self, wanted: int, least: int) -> Iterator[int]:
        """Yield up to `wanted` bytes for the length of the block; raises where `least` are not to be had just now."""
        with self._lock:
            granted = min(wanted, self._free)
            if granted < least:
                raise self.refusal(least, granted)
            self._free -= granted
        try:
            yield granted
        finally:
            with self._lock:
                self._free += granted

    def refusal(self, needed: int, available: int) -> CompactionMemoryTooSmall:
        """Waiting helps only where the whole budget would be enough."""
        refused = CompactionMemoryTaken if needed <= self._total else CompactionMemoryTooSmall
        return refused(needed, available)


class KeyMap:
    """Keys to their newest offsets, for as many keys as fit in `memory_bytes`."""

    def __init__(self, memory_bytes: int) -> None:
        self._slots = max(1, memory_bytes // SLOT_BYTES)
        self._limit = int(self._slots * FILL_LIMIT)
        self._prefix = secrets.token_bytes(8)
        self._first = array("q", bytes(8 * self._slots))
        self._second = array("q", bytes(8 * self._slots))
        self._offsets = array("q", [_FREE]) * self._slots
        self._used = 0

    def __len__(self) -> int:
        return self._used

    @property
    def memory_bytes(self) -> int:
        return self._slots * SLOT_BYTES

    @property
    def room(self) -> int:
        """The number of keys that still fit."""
        return self._limit - self._used

    def put_all(self, keys: Sequence[bytes], offsets: Sequence[int]) -> None:
        """Note each key's offset; offsets never fall. The caller has made sure that there is room."""
        newest = dict(zip(keys, offsets, strict=True))  # a batch often repeats its keys, and this is quick to find out
        firsts, seconds, slots = self._first, self._second, self._slots
        all_offsets, prefix, used = self._offsets, self._prefix, 0
        for key, offset in newest.items():
            first, second = hash(key), hash(prefix + key)
            slot = first % slots
            while all_offsets[slot] != _FREE and not (firsts[slot] == first and seconds[slot] == second):
                slot = slot + 1 if slot + 1 < slots else 0
            if all_offsets[slot] == _FREE:
                firsts[slot], seconds[slot] = first, second
                used += 1
            all_offsets[slot] = offset
        self._used += used

    def newest_of_all(self, keys: Sequence[bytes]) -> list[int]:
        """Each key's newest offset, -1 where the map does not have the key."""
        firsts, seconds, slots = self._first, self._second, self._slots
        all_offsets, prefix = self._offsets, self._prefix
        found = []
        for key in keys:
            first, second = hash(key), hash(prefix + key)
            slot = first % slots
            while (offset := all_offsets[slot]) != _FREE and not (firsts[slot] == first and seconds[slot] == second):
                slot = slot + 1 if slot + 1 < slots else 0
            found.append(offset)
        return found
