"""The claim of a coordinator: its first batch in its partition, and what says that it may write there (rule 25).

    a batch for an internal topic                 is
    ----------------------------------------------+------------------------------------------------------------
    of a producer id and epoch that wrote before  | looked at as any other: sequences, and older epochs are fenced
    of an unknown producer id, or a newer epoch   | taken if it is a claim: one record with that key, at sequence 0
    of no producer id                             | refused

What must stay true: whoever has not claimed a partition of an internal topic adds nothing to it. An ordinary producer
never does, by whatever way its batch has come; and what it left there would meet every later coordinator on replay.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from raylog.errors import InternalTopic
from raylog.storage.format.batch_codec import decode_batch
from raylog.storage.format.record_batch import HEADER_BYTES, BatchHeader, Bytes, read_header
from raylog.storage.segment.producer_state import ProducerStates

CLAIM_KEY: Final = b"\x00claim"  # no coordinator's own keys begin with a zero byte
Entry: TypeAlias = tuple[bytes, "bytes | None"]
_MOST_BYTES: Final = 1024  # of a claim; one takes 130


def claim_entry(epoch: int) -> Entry:
    return CLAIM_KEY, b"%d" % epoch


def check_claimed(topic: str, batch: Bytes, producers: ProducerStates) -> None:
    """InternalTopic where this batch is none of a coordinator; CorruptBatch, InvalidBatch where that cannot be told."""
    if len(batch) < HEADER_BYTES:
        return  # the log says what is wrong with it
    header = read_header(batch)
    known = producers.get(header.producer_id)
    if known is not None and header.producer_epoch <= known.epoch:
        return
    if not _may_be_claim(header, batch) or decode_batch(batch).keys != [CLAIM_KEY]:
        raise InternalTopic(topic)


def _may_be_claim(header: BatchHeader, batch: Bytes) -> bool:
    """By its header and size: what cannot be one is not unpacked, and a claim is not compressed (rule 34)."""
    is_first = header.has_producer and header.base_sequence == 0
    return is_first and header.record_count == 1 and header.codec == 0 and len(batch) <= _MOST_BYTES
