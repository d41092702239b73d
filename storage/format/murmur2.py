"""murmur2 as Kafka's Java client computes it, so that a key finds the same partition from any client.

    murmur2(key)             one key
    murmur2_of_equal(keys)   many keys of one length at once
    partition_of_hash        hash to partition: the sign bit off, then the remainder
    partitions_of_equal      many keys of one length to their partitions, of which there are at most 256
    partitions_of_joined     the same for keys that lie side by side

What must stay true: both functions give the same numbers, and those of Java (`test_murmur2.py`).
The hash is the unsigned 32-bit number.

How many at once work: each key has a lane of 64 bits in one integer of Python. A product of two 32-bit numbers
stays inside its lane, and so do exclusive or and shifts, if a mask follows. Thousands of keys then cost a handful
of operations on long integers instead of as many turns of a loop: measured a seventh of the time.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_LANES: Final = 4096  # keys at once; longer integers fall out of the nearest cache
_WORDS: Final = [struct.Struct(f"<{count}I") for count in range(65)]  # to read the first bytes of a key as numbers


def murmur2(key: bytes) -> int:
    """The hash of one key, from 0 to 2^32 - 1.

    >>> murmur2(b"21")
    3321034988
    """
    length = len(key)
    hashed = _SEED ^ length
    whole = length & ~3
    words = _WORDS[whole >> 2] if whole <= 256 else struct.Struct(f"<{whole >> 2}I")
    for word in words.unpack_from(key):
        mixed = word * _M & _MASK
        hashed = (hashed * _M ^ (mixed ^ mixed >> 24) * _M) & _MASK
    if length > whole:
        hashed = (hashed ^ int.from_bytes(key[whole:], "little")) * _M & _MASK
    hashed = (hashed ^ hashed >> 13) * _M & _MASK
    return hashed ^ hashed >> 15


def partition_of_hash(hashed: int, partitions: int) -> int:
    return (hashed & 0x7FFFFFFF) % partitions


def murmur2_of_equal(keys: Sequence[bytes]) -> list[int]:
    """The hashes of keys that all have the same length."""
    if len(keys) <= _LANES:
        return _in_lanes(keys) if keys else []
    hashes: list[int] = []
    for start in range(0, len(keys), _LANES):
        hashes += _in_lanes(keys[start : start + _LANES])
    return hashes


def partitions_of_equal(keys: Sequence[bytes], partitions: int) -> bytes:
    """The partition of each key, as one byte each."""
    parts = []
    for start in range(0, len(keys), _LANES):
        some = keys[start : start + _LANES]
        parts.append(_partitions(b"".join(some), len(some), len(some[0]), partitions))
    return b"".join(parts)


def partitions_of_joined(keys: memoryview, count: int, length: int, partitions: int) -> bytes:
    """The same for so many keys of this length, whose bytes are joined."""
    parts = []
    for start in range(0, count, _LANES):
        some = bytes(keys[length * start : length * (start + _LANES)])
        parts.append(_partitions(some, min(_LANES, count - start), length, partitions))
    return b"".join(parts)


def _partitions(joined: bytes, count: int, length: int, partitions: int) -> bytes:
    """The remainder of a division, in lanes: a quotient of 31 bits is a product with a rounded up reciprocal and a
    shift, which is exact with that many bits (Granlund and Montgomery), and the product just fits into a lane.
    """
    shift = 31 + (partitions - 1).bit_length()
    reciprocal = -(-(1 << shift) // partitions)
    ones = _ones(count)
    hashed = _hashed(joined, count, length) & ones * 0x7FFFFFFF
    quotients = (hashed * reciprocal >> shift) & ones * ((1 << 64 - shift) - 1)
    return (hashed - quotients * partitions).to_bytes(8 * count, "little")[0::8]


def _in_lanes(keys: Sequence[bytes]) -> list[int]:
    hashed = _hashed(b"".join(keys), len(keys), len(keys[0]))
    return memoryview(hashed.to_bytes(8 * len(keys), "little")).cast("Q").tolist()


def _hashed(joined: bytes, count: int, length: int) -> int:
    """The hashes of keys of this length, each in its lane."""
    ones = _ones(count)
    mask = ones * _MASK
    hashed = ones * (_SEED ^ length)
    whole = length & ~3
    for start in range(0, whole, 4):
        mixed = _word(joined, count, length, start, 4) * _M & mask
        mixed = (mixed ^ (mixed >> 24 & mask)) * _M & mask  # the mask takes off what comes down from the next lane
        hashed = (hashed * _M & mask) ^ mixed
    if length > whole:
        hashed = (hashed ^ _word(joined, count, length, whole, length - whole)) * _M & mask
    hashed = (hashed ^ (hashed >> 13 & mask)) * _M & mask
    return hashed ^ (hashed >> 15 & mask)


def _word(joined: bytes, count: int, length: int, start: int, size: int) -> int:
    """Bytes `start` on of every key, as the lanes of one integer."""
    lanes = bytearray(8 * count)
    for offset in range(size):
        lanes[offset::8] = joined[start + offset :: length]
    return int.from_bytes(lanes, "little")


@lru_cache(maxsize=64)
def _ones(count: int) -> int:
    """The number 1 in so many lanes."""
    return int.from_bytes(b"\x01\0\0\0\0\0\0\0" * count, "little")
