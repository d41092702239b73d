"""Columns as Kafka's own records: the payload of a magic 2 batch, made of that of a columnar one.

`kafka_records.py` has the layout. Nothing here is done for each record in Python: the parts of all records (lengths,
offsets, keys, values) are made as columns, and one join puts them in order. Parts that are the same in each record, as
the length of ids is, become part of what stands before them.

A record ends in its headers. Where there are none that is one zero byte, which is joined to the length of the next
record: so it costs nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, repeat
from operator import add
from typing import Final, NamedTuple, cast

from raylog.errors import InvalidBatch
from raylog.storage.format.columns import ColumnPayload, Headers

_TABLED: Final = 8192  # numbers whose encoding is looked up
_NO_ATTRIBUTES: Final = b"\0"
_NO_HEADERS: Final = b"\0"
_HEADS_KEPT: Final = 16  # lists of them, each for batches of one shape
_RECORDS_OF_KEPT: Final = 10_000  # so all lists together have some ten megabytes at most
_ONE_BYTE: Final = 0x80


def varint(number: int) -> bytes:
    """The zigzag encoding of a number: its lowest bit is the sign; seven bits to a byte, lowest first."""
    rest = number << 1 if number >= 0 else (-number << 1) - 1
    found = bytearray()
    while rest >= _ONE_BYTE:
        found.append(rest & 0x7F | _ONE_BYTE)
        rest >>= 7
    found.append(rest)
    return bytes(found)


# The last one stands for -1, a null: it is where Python's lists find their item -1.
_VARINTS: Final = [*map(varint, range(_TABLED)), varint(-1)]
_SIZED: Final = [*(n + len(_VARINTS[n]) for n in range(_TABLED)), len(_VARINTS[-1])]
_ENDS_AND_LENGTHS: Final = [_NO_HEADERS + encoded for encoded in _VARINTS[:-1]]


class _Part(NamedTuple):
    """One part of all records: the same bytes in each (`fixed`), or columns to take in turn.

    `sizes` has the bytes that the columns are in each record; None if all have as many as `fixed_size` says.
    """

    fixed: bytes = b""
    columns: tuple[Iterable[bytes], ...] = ()
    fixed_size: int = 0
    sizes: Iterable[int] | None = None


def encode_records(columns: ColumnPayload) -> Iterator[bytes]:
    """The records, as bytes to be joined. There is at least one. InvalidBatch: a header's name is not text."""
    count = columns.record_count
    moments = _moments(columns.timestamp_deltas)
    offsets = columns.offset_deltas
    key = _nullable(columns.key_lengths, columns.each_key)
    value = _nullable(columns.value_lengths, columns.each_value)
    headers = None if columns.record_headers is None else _headers(columns.record_headers)
    parts = [_Part(fixed=_NO_ATTRIBUTES), moments, _offsets(offsets, count), key, value]
    if headers is None:
        parts.append(_Part(fixed_size=len(_NO_HEADERS)))
    else:
        parts.append(_Part(columns=(headers,), sizes=map(len, headers)))
    fixed_size = sum(len(part.fixed) + part.fixed_size for part in parts)
    if offsets is None and headers is None and all(part.sizes is None for part in (moments, key, value)):
        before = _NO_ATTRIBUTES + moments.fixed, key.fixed if key.columns else key.fixed + value.fixed
        streams = [_even_heads(count, fixed_size, *before), *key.columns]
        streams += [repeat(value.fixed), *value.columns] if key.columns else value.columns
    else:
        streams = _streams(parts, fixed_size, ends_before=headers is None)
    joined = chain.from_iterable(zip(*streams, strict=False))  # what repeats has no end
    if headers is not None:
        return joined
    first = next(joined)
    return chain((first[len(_NO_HEADERS) :],), joined, (_NO_HEADERS,))


def _even_heads(count: int, fixed_size: int, before: bytes, behind: bytes) -> list[bytes]:
    """All up to the first content, for records whose size depends on their offset's only."""
    make = _kept_heads if count <= _RECORDS_OF_KEPT else _new_heads
    return make(count, fixed_size, before, behind)


def _new_heads(count: int, fixed_size: int, before: bytes, behind: bytes) -> list[bytes]:
    offsets = _varints(range(count))
    lengths = {width: _NO_HEADERS + varint(fixed_size + width) + before for width in set(map(len, offsets))}
    return [lengths[len(offset)] + offset + behind for offset in offsets]


_kept_heads: Final = lru_cache(_HEADS_KEPT)(_new_heads)


def _streams(parts: Sequence[_Part], fixed_size: int, *, ends_before: bool) -> list[Iterable[bytes]]:
    """The columns of all parts in order, the records' lengths before them."""
    sizes: Iterable[int] | None = None
    for part in parts:
        if part.sizes is not None:
            sizes = part.sizes if sizes is None else map(add, sizes, part.sizes)
    assert sizes is not None  # those of offsets are always there
    lengths = [fixed_size + size for size in sizes]
    streams: list[Iterable[bytes]] = [_ends_and_lengths(lengths) if ends_before else _varints(lengths)]
    fixed = b""
    for part in parts:
        fixed += part.fixed
        if part.columns:
            if fixed:
                streams.append(repeat(fixed))
                fixed = b""
            streams += part.columns
    if fixed:
        streams.append(repeat(fixed))
    return streams


def _ends_and_lengths(lengths: Sequence[int]) -> list[bytes]:
    try:
        return list(map(_ENDS_AND_LENGTHS.__getitem__, lengths))
    except IndexError:
        return list(map({n: _NO_HEADERS + varint(n) for n in set(lengths)}.__getitem__, lengths))


def _moments(deltas: array[int]) -> _Part:
    if deltas.tobytes() == deltas[:1].tobytes() * len(deltas):
        return _Part(fixed=varint(deltas[0]))
    encoded = _varints(deltas)
    return _Part(columns=(encoded,), sizes=map(len, encoded))


def _offsets(deltas: array[int] | None, count: int) -> _Part:
    encoded = _varints(range(count) if deltas is None else deltas)
    return _Part(columns=(encoded,), sizes=map(len, encoded))


def _varints(numbers: Sequence[int]) -> list[bytes]:
    if min(numbers) >= -1 and max(numbers) < _TABLED:
        return list(map(_VARINTS.__getitem__, numbers))
    return list(map({number: varint(number) for number in set(numbers)}.__getitem__, numbers))


def _nullable(lengths: array[int], each: Callable[[], Iterator[bytes | None]]) -> _Part:
    """The keys or the values, their lengths before them."""
    if lengths.tobytes() == lengths[:1].tobytes() * len(lengths):
        content = cast(tuple[Iterable[bytes], ...], (each(),)) if lengths[0] > 0 else ()
        return _Part(fixed=varint(lengths[0]), columns=content, fixed_size=max(0, lengths[0]))
    if max(lengths) < _TABLED:
        sizes: Iterable[int] = map(_SIZED.__getitem__, lengths)
        encoded: Iterable[bytes] = map(_VARINTS.__getitem__, lengths)
    else:
        table = {length: varint(length) for length in set(lengths)}
        encoded = map(table.__getitem__, lengths)
        sizes = (max(0, length) + len(table[length]) for length in lengths)
    present = cast(Iterable[bytes], each())
    if min(lengths) < 0:
        present = (item or b"" for item in present)
    return _Part(columns=(encoded, present), sizes=sizes)


def _headers(of_records: Sequence[Headers]) -> list[bytes]:
    try:
        return list(map(_encoded_headers, of_records))
    except UnicodeEncodeError as error:
        raise InvalidBatch(f"A record header's name is not text: {error}.") from error


def _encoded_headers(headers: Headers) -> bytes:
    if not headers:
        return _NO_HEADERS
    parts = [_length(len(headers))]
    for name, value in headers:
        encoded = name.encode()
        parts += (_length(len(encoded)), encoded)
        parts += (_VARINTS[-1],) if value is None else (_length(len(value)), value)
    return b"".join(parts)


def _length(number: int) -> bytes:
    return _VARINTS[number] if number < _TABLED else varint(number)
