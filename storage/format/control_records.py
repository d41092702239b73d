"""Control batches: the transaction markers that brokers write between the data.

A marker is a batch with the control bit and one record, as in Kafka: key = (version i16, type i16), value =
(version i16, coordinator epoch i32). Its header carries the producer's id and epoch.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from raylog.errors import InvalidBatch
from raylog.storage.format.batch_codec import decode_checked, encode_batch
from raylog.storage.format.record_batch import BatchHeader, Bytes

_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")
_KEY_VERSION: Final = 0
_VALUE_VERSION: Final = 0


class MarkerType(IntEnum):
    ABORT = 0
    COMMIT = 1


class Marker(NamedTuple):
    """The end of a transaction, and the coordinator epoch under which it was decided."""

    type: MarkerType
    coordinator_epoch: int


def encode_marker(marker: Marker, producer_id: int, producer_epoch: int, timestamp: int) -> bytearray:
    return encode_batch(
        [_VALUE.pack(_VALUE_VERSION, marker.coordinator_epoch)],
        keys=[_KEY.pack(_KEY_VERSION, marker.type)],
        timestamps=timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def decode_marker(header: BatchHeader, batch: Bytes) -> Marker | None:
    """The marker in a checked control batch; None where compaction has emptied it."""
    if header.record_count == 0:
        return None
    records = decode_checked(header, batch)
    key, value = records.keys[0], records.values[0]
    # Later versions only ever add fields behind these.
    if key is None or value is None or len(key) < _KEY.size or len(value) < _VALUE.size:
        raise InvalidBatch("Control record is too short to be a transaction marker.")
    _, kind = _KEY.unpack_from(key)
    _, coordinator_epoch = _VALUE.unpack_from(value)
    try:
        return Marker(MarkerType(kind), coordinator_epoch)
    except ValueError:
        raise InvalidBatch(f"Control record has the unknown type {kind}.") from None
