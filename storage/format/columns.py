"""The columnar payload (magic 16): one msgpack array of columns, compressed as a whole.

    [ key_lengths,      bin: int32 little-endian per record, -1 for null
      value_lengths,    bin: likewise
      keys,             bin: the keys, joined
      values,           bin: the values, joined
      timestamp_deltas, bin: int64 little-endian per record, from base_timestamp
      offset_deltas,    bin: int32 little-endian per record, from base_offset; nil when they are 0, 1, 2, …
      headers ]         nil when no record has any; else per record nil or [name, value, name, value, …]

The magic byte is the version of this layout. No column is per-record Python on the way in or out: lengths
become positions by one running sum, so whole columns turn into Arrow arrays (`arrow_columns.py`) or lists at
C speed.

What must stay true:
- `ColumnPayload.parse` trusts nothing. The holder of a `ColumnPayload` may slice by its lengths.
- Nothing is allocated on the word of a count. msgpack makes a list as long as it is declared, a thousand of
  them inside each other if need be, so the outer array is taken apart here, and headers are read without any.
- What readers would refuse is refused before it is written.
"""

from __future__ import annotations

import io
import struct
import sys
from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, repeat
from operator import add, lt
from typing import Any, Final, NamedTuple, TypeAlias

import msgpack

from raylog.errors import InvalidBatch, InvalidTimestamp
from raylog.storage.format.record_batch import Bytes

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]
Column: TypeAlias = "Bytes | list[bytes]"  # in one, or as pieces that follow each other

_BINARY_COLUMNS: Final = 6  # the seventh holds the headers
_ARRAY_OF_SEVEN: Final = b"\x97"
_NIL: Final = b"\xc0"
_NIL_TAG: Final = 0xC0
_BIN32: Final = struct.Struct(">BI")
_BIN32_TAG: Final = 0xC6
_BIN_LENGTHS: Final = {0xC4: struct.Struct(">B"), 0xC5: struct.Struct(">H"), 0xC6: struct.Struct(">I")}
NULL_LENGTH: Final = b"\xff\xff\xff\xff"
_NO_HEADERS: Final[Headers] = ()
_TOP_OF_SMALL: Final = b"\x00\xff"  # the highest bytes of numbers that are small, positive or negative
_MAX_INT64: Final = 2**63 - 1
_SPLIT_GROUP: Final = 64  # items cut by one struct; `struct` caches its formats, so they stay short
_BIG_ENDIAN: Final = sys.byteorder == "big"


# --- encoding -----------------------------------------------------------------------------------------------


def encode_columns(
    keys: Sequence[bytes | None] | None,
    values: Sequence[bytes | None],
    timestamp_deltas: bytes,
    offset_deltas: Sequence[int] | None = None,
    headers: Sequence[Headers | None] | None = None,
) -> list[Bytes]:
    """The payload as parts to be joined. `keys=None` says that no record has a key."""
    if keys is None:
        key_lengths, joined_keys = NULL_LENGTH * len(values), b""
    else:
        key_lengths, joined_keys = join(keys)
    value_lengths, joined_values = join(values)
    return join_columns(
        key_lengths, value_lengths, joined_keys, joined_values, timestamp_deltas, offset_deltas, headers
    )


def column_size(column: Column) -> int:
    return sum(map(len, column)) if isinstance(column, list) else len(column)


def join_columns(
    key_lengths: Column,
    value_lengths: Column,
    joined_keys: Column,
    joined_values: Column,
    timestamp_deltas: Bytes,
    offset_deltas: Sequence[int] | None = None,
    headers: Sequence[Headers | None] | None = None,
) -> list[Bytes]:
    """The payload of columns that are joined already. Lengths that do not fit are the reader's to refuse."""
    columns: list[Column] = [key_lengths, value_lengths, joined_keys, joined_values, timestamp_deltas]
    if offset_deltas is not None:
        columns.append(pack_int32(offset_deltas))
    parts: list[Bytes] = [_ARRAY_OF_SEVEN]
    for column in columns:
        parts.append(_BIN32.pack(_BIN32_TAG, column_size(column)))
        parts += column if isinstance(column, list) else [column]
    if offset_deltas is None:
        parts.append(_NIL)
    parts.append(_NIL if headers is None else _encode_headers(headers))
    return parts


def join(items: Sequence[bytes | None]) -> tuple[bytes, bytes]:
    """The lengths of the items as int32, −1 for null, and their bytes."""
    present: Sequence[Any] = items
    try:
        lengths = list(map(len, present))
    except TypeError:
        lengths = [-1 if item is None else len(item) for item in items]
        present = [item for item in items if item is not None]
    joined = b"".join(present)
    if len(joined) - (len(items) - len(present)) != sum(lengths):
        raise InvalidBatch("A key or value is a buffer whose length is not its number of bytes.")
    if lengths and lengths.count(lengths[0]) == len(lengths):  # looking costs a fifth of packing each
        return pack_int32(lengths[:1]) * len(lengths), joined
    return pack_int32(lengths), joined


def new_columns(
    count: int,
    key_lengths: Column,
    keys: Column,
    value_lengths: Column,
    values: Column,
    timestamp_deltas: Bytes,
    headers: Sequence[Headers | None] | None,
) -> ColumnPayload:
    """The columns of new records as a reader would have them. Lengths that do not fit are the caller's to refuse."""
    return ColumnPayload(
        count,
        machine_order("i", _in_one(key_lengths)),
        machine_order("i", _in_one(value_lengths)),
        _in_one(keys),
        _in_one(values),
        machine_order("q", timestamp_deltas),
        None,
        None if headers is None or not any(headers) else _checked_headers(headers),
    )


def _in_one(column: Column) -> bytes:
    return b"".join(column) if isinstance(column, list) else bytes(column)


def _checked_headers(headers: Sequence[Headers | None]) -> list[Headers]:
    for record in headers:
        for name, value in record or ():
            _check_header(name, value)
    return [record or _NO_HEADERS for record in headers]


def _encode_headers(headers: Sequence[Headers | None]) -> bytes:
    if not any(headers):
        return _NIL
    try:
        packed: bytes = msgpack.packb([_flat(record) if record else None for record in headers])
    except UnicodeEncodeError as error:
        raise InvalidBatch(f"A record header's name is not text: {error}.") from error
    return packed


def _flat(record: Headers) -> list[str | bytes | None]:
    fields: list[str | bytes | None] = []
    for name, value in record:
        _check_header(name, value)
        fields += (name, value)
    return fields


def _check_header(name: object, value: object) -> None:
    if not isinstance(name, str) or not (value is None or isinstance(value, bytes)):
        raise InvalidBatch("A record header is not a text name with a binary value.")


def pack_timestamps(timestamps: Sequence[int], base: int) -> bytes:
    """The column of timestamp deltas."""
    try:
        column = pack_int64([timestamp - base for timestamp in timestamps])
    except struct.error as error:
        raise InvalidTimestamp(f"A timestamp is not a 64-bit number: {error}.") from error
    if not _sums_fit(base, machine_order("q", column)):
        raise InvalidTimestamp("A timestamp is not a 64-bit number.")
    return column


def pack_int32(numbers: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(numbers)}i", *numbers)


def pack_int64(numbers: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(numbers)}q", *numbers)


# --- decoding -----------------------------------------------------------------------------------------------


class RawColumns(NamedTuple):
    """The columns as they lie in a payload: each of the size it must have, their numbers not looked at."""

    record_count: int
    key_lengths: memoryview
    value_lengths: memoryview
    keys: memoryview
    values: memoryview
    timestamp_deltas: memoryview
    offset_deltas: memoryview | None
    packed_headers: memoryview

    @classmethod
    def take_apart(cls, payload: Bytes, record_count: int) -> RawColumns:
        (key_lengths, value_lengths, keys, values, timestamps, offsets), headers = _take_apart(payload)
        if keys is None or values is None:
            raise InvalidBatch("Joined keys and values are not binary.")
        return cls(
            record_count,
            _sized("key length", key_lengths, 4 * record_count),
            _sized("value length", value_lengths, 4 * record_count),
            keys,
            values,
            _sized("timestamp", timestamps, 8 * record_count),
            None if offsets is None else _sized("offset", offsets, 4 * record_count),
            headers,
        )

    def has_null_key(self) -> bool:
        """Looks at the keys' lengths, and at nothing else of the records."""
        return not _none_negative(_lengths("key", self.key_lengths, len(self.keys)))

    def moments(self, base_timestamp: int, last_offset_delta: int) -> tuple[Iterator[int], Sequence[int]]:
        """The timestamps, and the offsets as deltas, with nothing else looked at."""
        deltas = machine_order("q", self.timestamp_deltas)
        if not _sums_fit(base_timestamp, deltas):
            raise InvalidBatch("A timestamp does not fit 64 bits.")
        offsets = None if self.offset_deltas is None else machine_order("i", self.offset_deltas)
        _check_offsets(offsets, self.record_count, last_offset_delta)
        timestamps = map(add, repeat(base_timestamp), deltas)
        return timestamps, range(self.record_count) if offsets is None else offsets

    def headers(self) -> list[Headers]:
        headers = _parse_headers(self.packed_headers, self.record_count)
        return [_NO_HEADERS] * self.record_count if headers is None else headers


def _sized(what: str, column: memoryview | None, size: int) -> memoryview:
    if column is None or len(column) != size:
        raise InvalidBatch(f"The {what} column is not {size} bytes long.")
    return column


class ColumnPayload(NamedTuple):
    """A payload whose columns are known to fit each other. The numbers are in the machine's byte order."""

    record_count: int
    key_lengths: array[int]
    value_lengths: array[int]
    joined_keys: bytes
    joined_values: bytes
    timestamp_deltas: array[int]
    offset_deltas: array[int] | None
    record_headers: list[Headers] | None

    @classmethod
    def parse(cls, payload: Bytes, record_count: int, last_offset_delta: int) -> ColumnPayload:
        raw = RawColumns.take_apart(payload, record_count)
        offsets = raw.offset_deltas
        parsed = cls(
            record_count,
            _lengths("key", raw.key_lengths, len(raw.keys)),
            _lengths("value", raw.value_lengths, len(raw.values)),
            bytes(raw.keys),
            bytes(raw.values),
            machine_order("q", raw.timestamp_deltas),
            None if offsets is None else machine_order("i", offsets),
            _parse_headers(raw.packed_headers, record_count),
        )
        _check_offsets(parsed.offset_deltas, record_count, last_offset_delta)
        return parsed

    def keys(self) -> list[bytes | None]:
        return list(self.each_key())

    def values(self) -> list[bytes | None]:
        return list(self.each_value())

    def timestamps(self, base: int) -> list[int]:
        if self._is_of_one_time():
            return [base] * self.record_count
        self._check_timestamps(base)
        return [base + delta for delta in self.timestamp_deltas]

    # One by one, without a list: what is made and dropped again at once costs no memory, and Python's garbage
    # collector, which walks whole lists, sees nothing of it.

    def each_key(self) -> Iterator[bytes | None]:
        return _cut(self.joined_keys, self.key_lengths)

    def each_value(self) -> Iterator[bytes | None]:
        return _cut(self.joined_values, self.value_lengths)

    def each_timestamp(self, base: int) -> Iterator[int]:
        if self._is_of_one_time():
            return repeat(base, self.record_count)
        self._check_timestamps(base)
        return map(add, repeat(base), self.timestamp_deltas)

    def _is_of_one_time(self) -> bool:
        deltas = self.timestamp_deltas
        return deltas.tobytes() == bytes(len(deltas) * deltas.itemsize)

    def _check_timestamps(self, base: int) -> None:
        if not _sums_fit(base, self.timestamp_deltas):
            raise InvalidBatch("A timestamp does not fit 64 bits.")

    def offsets(self, base: int) -> Sequence[int]:
        if self.offset_deltas is None:
            return range(base, base + self.record_count)
        return [base + delta for delta in self.offset_deltas]

    def headers(self) -> list[Headers]:
        return [_NO_HEADERS] * self.record_count if self.record_headers is None else self.record_headers


def _take_apart(payload: Bytes) -> tuple[list[memoryview | None], memoryview]:
    """The binary columns, None where one is nil, and the rest of the payload: the packed headers."""
    view = memoryview(payload)
    if bytes(view[:1]) != _ARRAY_OF_SEVEN:
        raise InvalidBatch("Columnar payload is not an array of seven columns.")
    columns: list[memoryview | None] = []
    position = 1
    try:
        while len(columns) < _BINARY_COLUMNS:
            tag = view[position]
            position += 1
            if tag == _NIL_TAG:
                columns.append(None)
                continue
            field = _BIN_LENGTHS[tag]
            (length,) = field.unpack_from(view, position)
            start = position + field.size
            position = start + length
            columns.append(view[start:position])
    except KeyError:
        raise InvalidBatch(f"Column {len(columns)} is not binary.") from None
    except (IndexError, struct.error):
        raise InvalidBatch(f"Columnar payload ends before column {len(columns)}.") from None
    return columns, view[position:]


def machine_order(typecode: str, column: Bytes) -> array[int]:
    """The numbers of a little-endian column."""
    numbers = array(typecode)
    numbers.frombytes(column)
    if _BIG_ENDIAN:
        numbers.byteswap()
    return numbers


def _lengths(what: str, column: memoryview, joined_size: int) -> array[int]:
    lengths = machine_order("i", column)
    if _are_even(lengths):
        least, total = lengths[0], max(0, lengths[0]) * len(lengths)
    elif _none_negative(lengths):
        least, total = 0, sum(lengths)
    else:
        least, total = min(lengths), sum(lengths) + lengths.count(-1)
    if least < -1:
        raise InvalidBatch(f"A {what} has length {least}.")
    if total != joined_size:
        raise InvalidBatch(f"The {what} lengths add up to {total}, but {joined_size} bytes are there.")
    return lengths


def _are_even(lengths: array[int]) -> bool:
    """Whether there are some, all the same, as ids are. To compare bytes costs next to nothing."""
    return len(lengths) > 0 and lengths.tobytes() == lengths[:1].tobytes() * len(lengths)


def _check_offsets(deltas: array[int] | None, count: int, last_offset_delta: int) -> None:
    if deltas is None:
        if count and count != last_offset_delta + 1:
            offsets = last_offset_delta + 1
            raise InvalidBatch(f"{count} records without an offset column cannot span {offsets} offsets.")
        return
    rising = all(map(lt, deltas, deltas[1:]))
    if not rising or (count and not (deltas[0] >= 0 and deltas[-1] <= last_offset_delta)):
        raise InvalidBatch("The offset column does not rise within the batch.")


def _parse_headers(packed: memoryview, count: int) -> list[Headers] | None:
    if bytes(packed[:2]) == _NIL:
        return None
    # No list, map or extension may be made while unpacking: the arrays are walked by their headers alone.
    unpacker = msgpack.Unpacker(max_buffer_size=len(packed), max_array_len=0, max_map_len=0, max_ext_len=0)
    unpacker.feed(packed)
    try:
        if unpacker.read_array_header() != count:
            raise InvalidBatch(f"The header column does not hold {count} entries.")
        headers = [_record_headers(unpacker, packed) for _ in range(count)]
    except (ValueError, IndexError, msgpack.UnpackException) as error:
        raise InvalidBatch(f"The header column is damaged: {error or type(error).__name__}.") from error
    if unpacker.tell() != len(packed):
        raise InvalidBatch("Columnar payload goes on after its last column.")
    return headers


def _record_headers(unpacker: Any, packed: memoryview) -> Headers:
    if packed[unpacker.tell()] == _NIL_TAG:
        unpacker.skip()
        return _NO_HEADERS
    pairs, odd = divmod(unpacker.read_array_header(), 2)
    if odd:
        raise InvalidBatch("A record's headers are not pairs.")
    headers = []
    for _ in range(pairs):
        name, value = unpacker.unpack(), unpacker.unpack()
        _check_header(name, value)
        headers.append((name, value))
    return headers


def _top_bytes(numbers: array[int]) -> bytes:
    """The highest byte of each number. Asking these bytes costs a tenth of asking each number."""
    size = numbers.itemsize
    return numbers.tobytes()[0 if _BIG_ENDIAN else size - 1 :: size]


def _none_negative(numbers: array[int]) -> bool:
    return _top_bytes(numbers).isascii()


def _sums_fit(base: int, deltas: array[int]) -> bool:
    """Whether each `base + delta` is a 64-bit number."""
    all_small = not _top_bytes(deltas).translate(None, _TOP_OF_SMALL)
    if all_small and abs(base) <= _MAX_INT64 // 2:
        return True
    return base + min(deltas) >= -_MAX_INT64 - 1 and base + max(deltas) <= _MAX_INT64


def _cut(joined: bytes, lengths: array[int]) -> Iterator[bytes | None]:
    """The items of `joined`. Every path but the last runs in C per item: this is what iterating a consumer costs."""
    if len(lengths) >= _SPLIT_GROUP and _are_even(lengths):
        if lengths[0] < 0:
            return repeat(None, len(lengths))
        if lengths[0] > 0:
            return _cut_evenly(joined, lengths[0])
    read: Callable[[int], bytes] = io.BytesIO(joined).read
    if _none_negative(lengths):
        return map(read, lengths)
    return (None if length < 0 else read(length) for length in lengths)


def _cut_evenly(joined: bytes, length: int) -> Iterator[bytes]:
    view = memoryview(joined)
    whole = len(view) - len(view) % (length * _SPLIT_GROUP)
    groups = struct.iter_unpack(f"{length}s" * _SPLIT_GROUP, view[:whole])
    rest = struct.iter_unpack(f"{length}s", view[whole:])
    return chain.from_iterable(chain(groups, rest))
