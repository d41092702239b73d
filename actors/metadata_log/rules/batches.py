"""Records of the metadata log as batches, and back.

One change is one batch, so that it is in a log as a whole or not at all. Each record's value is the record's kind and
version, a byte each, and its fields as `messages.pack` makes them. A snapshot is batches likewise, all from offset 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Final

from raylog.actors.protocol.messages import Message, pack, unpack
from raylog.actors.protocol.metadata_records import as_of_today
from raylog.errors import FrameInvalid, InvalidBatch, MessageUnknown, MetadataRecordUnknown
from raylog.storage.format.batch_codec import decode_batch, encode_batch
from raylog.storage.format.record_batch import Bytes, split_batches, stamp

_FRONT_BYTES: Final = 2  # kind, version
_RECORDS_PER_SNAPSHOT_BATCH: Final = 10_000


def encode_change(records: Sequence[Message], base_offset: int, epoch: int, now_ms: int) -> bytes:
    """One batch, stamped. InvalidBatch where there are no records."""
    batch = encode_batch([_encode_record(record) for record in records], timestamps=now_ms)
    stamp(batch, base_offset, epoch)
    return bytes(batch)


def decode_change(batch: Bytes) -> tuple[Message, ...]:
    """The records of one batch. MetadataRecordUnknown: a newer raylog wrote it; a BatchError: it is damaged."""
    return tuple(_decode_record(value) for value in decode_batch(batch).values)


def encode_state(records: Sequence[Message], epoch: int, now_ms: int) -> bytes:
    """A snapshot's records as bytes."""
    return b"".join(
        encode_change(part, base, epoch, now_ms)
        for base, part in zip(count(0, _RECORDS_PER_SNAPSHOT_BATCH), _parts(records), strict=False)
    )


def decode_state(data: Bytes) -> tuple[Message, ...]:
    """The records of a snapshot."""
    return tuple(record for batch in split_batches(data) for record in decode_change(batch))


def _parts(records: Sequence[Message]) -> Iterator[Sequence[Message]]:
    for start in range(0, len(records), _RECORDS_PER_SNAPSHOT_BATCH):
        yield records[start : start + _RECORDS_PER_SNAPSHOT_BATCH]


def _encode_record(record: Message) -> bytes:
    kind, version, data = pack(record)
    return bytes((kind, version)) + data


def _decode_record(value: bytes | None) -> Message:
    if value is None or len(value) < _FRONT_BYTES:
        raise InvalidBatch("A record of the metadata log has no kind.")
    kind, version = value[0], value[1]
    try:
        return as_of_today(unpack(kind, version, value[_FRONT_BYTES:]))
    except MessageUnknown:
        raise MetadataRecordUnknown(kind, version) from None
    except FrameInvalid as error:
        raise InvalidBatch(f"A record of the metadata log cannot be read: {error.describe()}") from error
