"""Kafka's records as columns, for readers: by a compiled parser where one is installed, else by `kafka_records.py`.

The compiled parser is aiokafka's, which the extra `kafka` brings. Python's is a third as fast, and twice as fast as
`parse_records`: it makes nothing of a record but its key, its value and its headers.

What must stay true: what `parse_records` takes, both take with the same result. What they do not take, and what looks
wrong in what they gave, is parsed again by it, and it says in an `InvalidBatch` what is wrong. Of what it refuses the
compiled one takes a few encodings that no writer makes: a number in more bytes than it has, a length of -2 for a null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from itertools import chain, islice
from operator import lt
from typing import Any, Final, NamedTuple

from raylog.errors import InvalidBatch
from raylog.storage.format.columns import Headers
from raylog.storage.format.kafka_records import parse_headers, parse_records, raw_varint
from raylog.storage.format.record_batch import CODEC_MASK, HEADER, LOG_APPEND_TIME_BIT, BatchHeader, Bytes

_COMPILED: Final = "aiokafka.record._crecords."
_NO_HEADERS: Final[Headers] = ()
# Records live as long as their group. Were they more than 700 with their headers, Python's garbage collector would look
# at all of them again and again, for a third of the time.
_GROUP: Final = 256
_REFUSALS: Final = (RuntimeError, ValueError, IndexError, OverflowError, MemoryError, SystemError, AssertionError)
_NO_WRAP: Final = 2**62  # the compiled parser adds within 64 bits; below this, a sum that did not fit shows


class KafkaColumns(NamedTuple):
    """The records of a batch as parallel columns. Offsets and timestamps are absolute."""

    keys: list[bytes | None]
    values: list[bytes | None]
    timestamps: list[int]
    offsets: list[int]
    headers: list[Headers]


def kafka_columns(payload: Bytes, header: BatchHeader) -> KafkaColumns:
    """The records of an unpacked payload. `header` is that of its batch, its shape and CRC checked. InvalidBatch."""
    parse = compiled_parser()
    found = None if parse is None else _compiled_columns(parse, payload, header)
    return plain_columns(payload, header) if found is None else found


def plain_columns(payload: Bytes, header: BatchHeader) -> KafkaColumns:
    """The same in Python alone."""
    data = bytes(payload)
    try:
        columns = _python_columns(data, header)
    except (IndexError, InvalidBatch):
        columns = None
    if columns is not None and _looks_right(columns, header):
        return columns
    records = parse_records(data, header)
    return KafkaColumns(
        [record.key for record in records],
        [record.value for record in records],
        [header.base_timestamp + record.timestamp_delta for record in records],
        [header.base_offset + record.offset_delta for record in records],
        [record.headers for record in records],
    )


# Each number is read where it is used: a call for it would cost more than all else that is done for a record.
def _python_columns(data: bytes, header: BatchHeader) -> KafkaColumns | None:  # noqa: PLR0912, PLR0915
    """The columns, or None where something is wrong. The lowest bit of a number that is not decoded yet is its sign."""
    columns = KafkaColumns([], [], [], [], [])
    keys, values, timestamps, offsets, headers = columns
    base_timestamp, base_offset = header.base_timestamp, header.base_offset
    position = 0
    for _ in range(header.record_count):
        raw = data[position]
        position += 1
        if raw > 127:
            low, raw = raw, data[position]
            if raw < 128:
                raw, position = low & 0x7F | raw << 7, position + 1
            else:
                raw, position = raw_varint(data, position, low)
        if raw & 1:
            return None
        end = position + (raw >> 1)
        position += 1  # the attributes
        raw = data[position]
        position += 1
        if raw > 127:
            low, raw = raw, data[position]
            if raw < 128:
                raw, position = low & 0x7F | raw << 7, position + 1
            else:
                raw, position = raw_varint(data, position, low, 64)
        timestamps.append(base_timestamp + ((raw >> 1) ^ -(raw & 1)))
        raw = data[position]
        position += 1
        if raw > 127:
            low, raw = raw, data[position]
            if raw < 128:
                raw, position = low & 0x7F | raw << 7, position + 1
            else:
                raw, position = raw_varint(data, position, low)
        offsets.append(base_offset + ((raw >> 1) ^ -(raw & 1)))
        raw = data[position]
        position += 1
        if raw > 127:
            low, raw = raw, data[position]
            if raw < 128:
                raw, position = low & 0x7F | raw << 7, position + 1
            else:
                raw, position = raw_varint(data, position, low)
        if raw & 1:
            keys.append(None)
            odd = raw
        else:
            keys.append(data[position : position + (raw >> 1)])
            position += raw >> 1
            odd = 1
        raw = data[position]
        position += 1
        if raw > 127:
            low, raw = raw, data[position]
            if raw < 128:
                raw, position = low & 0x7F | raw << 7, position + 1
            else:
                raw, position = raw_varint(data, position, low)
        if raw & 1:
            values.append(None)
            odd |= raw
        else:
            values.append(data[position : position + (raw >> 1)])
            position += raw >> 1
        if data[position] == 0:
            headers.append(_NO_HEADERS)
            position += 1
        else:
            found, position = parse_headers(data, position)
            headers.append(found)
        if position != end or odd != 1:  # a null has the length -1, whose encoding is 1
            return None
    return columns if position == len(data) else None


@cache
def compiled_parser() -> Callable[[bytes], Iterable[Any]] | None:
    """Return what takes a whole batch and gives its records; None where nothing compiled is installed."""
    try:
        from aiokafka.record.default_records import DefaultRecordBatch
    except ImportError:
        return None
    parser: Callable[[bytes], Iterable[Any]] = DefaultRecordBatch
    return parser if parser.__module__.startswith(_COMPILED) else None


def _compiled_columns(
    parse: Callable[[bytes], Iterable[Any]], payload: Bytes, header: BatchHeader
) -> KafkaColumns | None:
    """The columns, or None where Python has to have a look."""
    # The payload is unpacked already, within our limits. Log append time is the reader's business, as above.
    plain = header._replace(attributes=header.attributes & ~CODEC_MASK & ~LOG_APPEND_TIME_BIT)
    columns = KafkaColumns([], [], [], [], [])
    try:
        records = chain(parse(b"".join((HEADER.pack(*plain), payload))))
        while group := list(islice(records, _GROUP)):
            _add(columns, group)
    except _REFUSALS:
        return None
    return columns if _looks_right(columns, header) else None


def _add(columns: KafkaColumns, group: list[Any]) -> None:
    keys, values, timestamps, offsets, headers = columns
    keys += [record.key for record in group]
    values += [record.value for record in group]
    timestamps += [record.timestamp for record in group]
    offsets += [record.offset for record in group]
    found = [record.headers for record in group]
    headers += [each or _NO_HEADERS for each in found] if any(found) else [_NO_HEADERS] * len(found)


def _looks_right(columns: KafkaColumns, header: BatchHeader) -> bool:
    """Whether Python would take it too."""
    timestamps, offsets = columns.timestamps, columns.offsets
    if not offsets or offsets[0] < header.base_offset or offsets[-1] > header.last_offset:
        return False
    if len(offsets) <= header.last_offset_delta and not all(map(lt, offsets, offsets[1:])):
        return False
    if len(offsets) > header.last_offset_delta and offsets != list(range(header.base_offset, header.next_offset)):
        return False
    moments = (header.base_timestamp, min(timestamps), max(timestamps))
    return all(-_NO_WRAP < moment < _NO_WRAP for moment in moments)
