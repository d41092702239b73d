"""Kafka's own record encoding: the payload of a magic 2 batch once it is unpacked.

    length            varint    bytes after this field
    attributes        i8        no meaning yet
    timestamp_delta   varlong   from base_timestamp
    offset_delta      varint    from base_offset
    key               varint    length, -1 for null; the bytes
    value             varint    length, -1 for null; the bytes
    headers           varint    count; for each of them:
                      varint    length; the name in UTF-8
                      varint    length, -1 for null; the value

Varints are zigzag: the lowest bit is the sign, seven bits to a byte, lowest first.

What must stay true: a payload is taken as a whole or refused as a whole, with an `InvalidBatch`. No count or
length in it is believed before the bytes it speaks of have been met, so nothing is allocated on its word.
Python's slices end quietly where the payload ends; a field cut short that way shows when its record does not
end where it said it would.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from raylog.errors import InvalidBatch
from raylog.storage.format.columns import Headers
from raylog.storage.format.record_batch import BatchHeader, Bytes

_VARINT_BITS: Final = 32
_VARLONG_BITS: Final = 64
_ONE_BYTE: Final = 0x80  # below it, a byte is a whole varint: the case worth inlining
_ZIGZAG: Final = tuple((byte >> 1) ^ -(byte & 1) for byte in range(_ONE_BYTE))
_NO_HEADERS: Final[Headers] = ()
_MIN_INT64: Final = -(2**63)
_MAX_INT64: Final = 2**63 - 1


class KafkaRecord(NamedTuple):
    """One record; `raw` is its encoding with the length in front, as it stood in the payload."""

    offset_delta: int
    timestamp_delta: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    raw: bytes


def parse_records(payload: Bytes, header: BatchHeader) -> list[KafkaRecord]:
    """The records of an unpacked payload. `header` is that of its batch, its shape and CRC checked."""
    data = bytes(payload)
    records: list[KafkaRecord] = []
    position, last_delta = 0, -1
    try:
        for _ in range(header.record_count):
            record, position = _parse_record(data, position)
            if record.offset_delta <= last_delta:
                raise InvalidBatch(f"Offset delta {record.offset_delta} comes after {last_delta}.")
            last_delta = record.offset_delta
            records.append(record)
    except IndexError:
        raise InvalidBatch(f"The payload ends in record {len(records)} of {header.record_count}.") from None
    if position != len(data):
        raise InvalidBatch(f"{len(data) - position} bytes follow the last of {len(records)} records.")
    # Deltas rise strictly, so this one bound also makes those of a dense batch 0, 1, 2, …
    if last_delta > header.last_offset_delta:
        raise InvalidBatch(f"Offset delta {last_delta} is over the batch's last, {header.last_offset_delta}.")
    _check_timestamps(records, header.base_timestamp)
    return records


def has_null_key(payload: Bytes, record_count: int) -> bool:
    """Whether some record has no key. Only what stands before a record's value is looked at."""
    data = bytes(payload)
    position, found = 0, False
    try:
        for _ in range(record_count):
            length, position = _varint(data, position)
            end = position + length
            position += 1  # the attributes
            _, position = _varint(data, position, _VARLONG_BITS)
            _, position = _varint(data, position)
            key_length, position = _varint(data, position)
            found = found or key_length < 0
            if not position + max(0, key_length) <= end <= len(data):
                raise InvalidBatch(f"The record that ends at byte {end} does not hold its key of {key_length} bytes.")
            position = end
    except IndexError:
        raise InvalidBatch(f"The payload ends before {record_count} records have.") from None
    if position != len(data):
        raise InvalidBatch(f"{len(data) - position} bytes follow the last of {record_count} records.")
    return found


def join_retained(records: Sequence[KafkaRecord]) -> bytes:
    """The payload of some of a batch's records. Their deltas hold while the batch keeps its base fields."""
    return b"".join([record.raw for record in records])


def _parse_record(data: bytes, start: int) -> tuple[KafkaRecord, int]:
    """The record at `start`, and where the next one begins."""
    length, position = _varint(data, start)
    end = position + length
    position += 1  # the attributes
    byte = data[position]
    if byte < _ONE_BYTE:
        timestamp_delta = _ZIGZAG[byte]
        position += 1
    else:
        timestamp_delta, position = _varint(data, position, _VARLONG_BITS)
    byte = data[position]
    if byte < _ONE_BYTE:
        offset_delta = _ZIGZAG[byte]
        position += 1
    else:
        offset_delta, position = _varint(data, position)
    key, position = _nullable_bytes(data, position)
    value, position = _nullable_bytes(data, position)
    headers = _NO_HEADERS
    if data[position] == 0:
        position += 1
    else:
        headers, position = parse_headers(data, position)
    if position != end or end > len(data):
        raise InvalidBatch(f"The record at byte {start} does not end after the {length} bytes it declares.")
    return KafkaRecord(offset_delta, timestamp_delta, key, value, headers, data[start:end]), end


def _nullable_bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    byte = data[position]
    if byte < _ONE_BYTE:
        length = _ZIGZAG[byte]
        position += 1
    else:
        length, position = _varint(data, position)
    if length >= 0:
        end = position + length
        return data[position:end], end
    if length == -1:
        return None, position
    raise InvalidBatch(f"A key, value or header has length {length}.")


def parse_headers(data: bytes, position: int) -> tuple[Headers, int]:
    """The headers of a record, whose count is at `position`, and where they end."""
    count, position = _varint(data, position)
    if count < 0:
        raise InvalidBatch(f"A record counts {count} headers.")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, position = _nullable_bytes(data, position)
        value, position = _nullable_bytes(data, position)
        if name is None:
            raise InvalidBatch("A record header has no name.")
        try:
            headers.append((name.decode(), value))
        except UnicodeDecodeError as error:
            raise InvalidBatch(f"A record header's name is not UTF-8: {error}.") from error
    return headers, position


def raw_varint(data: bytes, position: int, first: int, bits: int = _VARINT_BITS) -> tuple[int, int]:
    """The rest of a varint after its first byte, the sign still in its lowest bit, and where it ends."""
    number = first & 0x7F
    for shift in range(7, bits, 7):
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < _ONE_BYTE and number >> bits == 0:
            return number, position
    raise InvalidBatch(f"A varint that ends at byte {position} or later does not fit {bits} bits.")


def _varint(data: bytes, position: int, bits: int = _VARINT_BITS) -> tuple[int, int]:
    """The zigzag number at `position`, and where it ends."""
    low = data[position]
    if low < _ONE_BYTE:
        return _ZIGZAG[low], position + 1
    high = data[position + 1]
    if high < _ONE_BYTE:  # most lengths and offset deltas have two bytes
        number = (low & 0x7F) | (high << 7)
        return (number >> 1) ^ -(number & 1), position + 2
    number, position = raw_varint(data, position + 1, low, bits)
    return (number >> 1) ^ -(number & 1), position


def _check_timestamps(records: Sequence[KafkaRecord], base: int) -> None:
    deltas = [record.timestamp_delta for record in records]
    if deltas and not _MIN_INT64 <= base + min(deltas) <= base + max(deltas) <= _MAX_INT64:
        raise InvalidBatch("A timestamp does not fit 64 bits.")
