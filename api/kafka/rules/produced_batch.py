"""Checks of the records of a Produce request, before a leader sees them: one whole batch of Kafka's own (magic 2).

Everything else about a batch the leader checks. Two batches for one partition, and those of older formats, are refused
as Kafka refuses them.
"""

from __future__ import annotations

from typing import Final

from raylog.errors import CorruptBatch, InvalidBatch, UnsupportedCodec
from raylog.storage.format.compression import codec_named
from raylog.storage.format.record_batch import HEADER_BYTES, MAGIC_KAFKA, Bytes, read_header

_ZSTD: Final = codec_named("zstd").number
_PRODUCE_WITH_ZSTD: Final = 7
_MAGIC_AT: Final = 16  # in all of Kafka's formats


def check_produced(records: Bytes | None, version: int) -> Bytes:
    """Return the one batch that was sent for a partition. InvalidBatch, CorruptBatch, UnsupportedCodec."""
    if not records:
        raise InvalidBatch("There has to be one record batch for each partition, and here is none.")
    if len(records) > _MAGIC_AT and records[_MAGIC_AT] != MAGIC_KAFKA:
        raise InvalidBatch(f"Record batches of format {records[_MAGIC_AT]} are not taken, only of {MAGIC_KAFKA}.")
    if len(records) < HEADER_BYTES:
        raise CorruptBatch(f"{len(records)} bytes are less than the header of a record batch.")
    header = read_header(records)
    if header.size > len(records) or header.size < HEADER_BYTES:
        raise CorruptBatch(f"A record batch declares {header.size} bytes, and {len(records)} came.")
    if header.size < len(records):
        raise InvalidBatch("There has to be one record batch for each partition, and here are more.")
    if header.codec == _ZSTD and version < _PRODUCE_WITH_ZSTD:
        raise UnsupportedCodec("zstd before Produce 7")
    return records
