"""Functions that the compiled ones call for the rarer parts of a message: long varints, tagged fields, many numbers.

Unsigned varints have seven bits to a byte, lowest first; the highest bit says that more follow. They hold 32 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from struct import Struct
from typing import Any, Final

from raylog.storage.format.record_batch import Bytes

ONE_BYTE: Final = 0x80  # below it, a byte is a whole varint
ONE_BYTE_VARINTS: Final = [bytes((number,)) for number in range(ONE_BYTE)]
_VARINT_BITS: Final = 32
COPIED_BELOW: Final = 4096  # records this short are joined with what stands around them


class Refused(Exception):
    """Bytes that are no message. Carries the reason, and never leaves the codec."""


def uvarint(data: Bytes, position: int, first: int) -> tuple[int, int]:
    """The rest of a varint whose first byte, which says that more follow, has just been read; and where it ends."""
    number, shift = first & 0x7F, 7
    while shift < _VARINT_BITS:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < ONE_BYTE:
            if number >> _VARINT_BITS:
                break
            return number, position
        shift += 7
    raise Refused("a varint is over 32 bits")


def packed_uvarint(number: int) -> bytes:
    """The bytes of an unsigned varint."""
    if 1 << 14 <= number < 1 << 21:  # the length of an ordinary batch
        return bytes((number & 0x7F | ONE_BYTE, number >> 7 & 0x7F | ONE_BYTE, number >> 14))
    found = bytearray()
    while number >= ONE_BYTE:
        found.append(number & 0x7F | ONE_BYTE)
        number >>= 7
    found.append(number)
    return bytes(found)


def split_tags(data: Bytes, position: int, count: int, size: int) -> tuple[list[tuple[int, int, int]], int]:
    """(tag, begin, end) of each tagged field that begins at `position`, and where they all end."""
    if count >= ONE_BYTE:
        count, position = uvarint(data, position, count)
    if 2 * count > size - position:  # each has a tag and a length
        raise Refused(f"{count} tagged fields in {size - position} bytes")
    found: list[tuple[int, int, int]] = []
    newest = -1
    for _ in range(count):
        tag, position = _uvarint_at(data, position)
        length, position = _uvarint_at(data, position)
        if tag <= newest or length > size - position:
            raise Refused(f"a tagged field {tag} after {newest}, of {length} bytes where {size - position} are left")
        found.append((tag, position, position + length))
        newest, position = tag, position + length
    return found, position


def _uvarint_at(data: Bytes, position: int) -> tuple[int, int]:
    byte = data[position]
    return (byte, position + 1) if byte < ONE_BYTE else uvarint(data, position + 1, byte)


def packed_tags(fields: Sequence[tuple[int, bytes]]) -> bytes:
    """Tagged fields as they stand behind a structure: their number; for each its tag, its length and its bytes."""
    parts = [packed_uvarint(len(fields))]
    for tag, content in fields:
        parts += (packed_uvarint(tag), packed_uvarint(len(content)), content)
    return b"".join(parts)


@cache
def packer(form: str) -> Callable[..., bytes]:
    """Return what packs this run of fields."""
    return Struct(f">{form}").pack


class Packers(dict[int, Callable[..., bytes]]):
    """Functions that pack so many numbers of one kind. Long lists are packed anew each time, so this stays small."""

    _MOST = 64

    def __init__(self, form: str) -> None:
        super().__init__()
        self._form = form

    def __missing__(self, count: int) -> Callable[..., bytes]:
        pack = Struct(f">{count}{self._form}").pack
        if count <= self._MOST:
            self[count] = pack
        return pack


class Unpackers(dict[int, Callable[[Any, int], tuple[int, ...]]]):
    """Functions that unpack so many numbers of one kind."""

    _MOST = 64

    def __init__(self, form: str) -> None:
        super().__init__()
        self._form = form

    def __missing__(self, count: int) -> Callable[[Any, int], tuple[int, ...]]:
        unpack = Struct(f">{count}{self._form}").unpack_from
        if count <= self._MOST:
            self[count] = unpack
        return unpack


def records_size(pieces: list[Bytes]) -> int:
    """Bytes of records that are given in several pieces."""
    return sum(map(len, pieces))


def add_records(parts: list[Bytes], pending: list[Bytes], records: Bytes | list[Bytes]) -> None:
    """Put records behind what is pending, without copying them if they are long."""
    for piece in records if isinstance(records, list) else (records,):
        if len(piece) < COPIED_BELOW:
            pending.append(piece)
        else:
            parts += (b"".join(pending), piece)
            pending.clear()
