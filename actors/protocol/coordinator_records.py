"""What coordinators write into their topics: messages as keys and values of records, and the claim before them.

A message in a record is its kind (1 byte), its version (1 byte), and its fields as a msgpack array. A coordinator's
first batch in its partition is its claim: it says that this coordinator may write there (rule 25).

    a batch for an internal topic                 is
    ----------------------------------------------+------------------------------------------------------------
    of a producer id and epoch that wrote before  | looked at as any other: sequences, and older epochs are fenced
    of an unknown producer id, or a newer epoch   | taken if it is a claim: one record with that key, at sequence 0
    of no producer id                             | refused

What must stay true:
- A writer that has not claimed a partition of an internal topic adds nothing to it. An ordinary producer never does, by
  whatever way its batch has come; what it left there would meet every later coordinator on replay.
- What another program may have left there is told from what a later raylog has written. Only the first is no loss:
  no request was ever answered for it. Neither text nor plain numbers, such as keys mostly are, are taken for the
  second: that has a kind from `first_kind` on, and a whole msgpack array behind it.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgpack

from raylog.actors.protocol.messages import Message, pack, unpack
from raylog.errors import FrameInvalid, InternalTopic, MessageUnknown
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


def stored(part: Message) -> bytes:
    kind, version, body = pack(part)
    return bytes((kind, version)) + body


def read_stored(data: bytes, first_kind: int) -> Message:
    """FrameInvalid where no raylog wrote these bytes, MessageUnknown where a later one did."""
    if len(data) < 2:
        raise FrameInvalid(f"A record of a coordinator begins with a kind and a version; here are {len(data)} bytes.")
    if data[0] < first_kind:
        raise FrameInvalid(f"A record of kind {data[0]} in version {data[1]} is none of this topic's coordinators.")
    try:
        return unpack(data[0], data[1], data[2:])
    except MessageUnknown:
        if not _is_array(data[2:]):
            raise FrameInvalid("The record is none of a coordinator: it holds no message.") from None
        raise


def _is_array(body: bytes) -> bool:
    try:
        return isinstance(msgpack.unpackb(body), list)
    except (ValueError, TypeError, msgpack.UnpackException):
        return False
