"""Records of coordinators in their topics: messages as keys and values of records, and the claim before them.

A message in a record is its kind (1 byte), its version (1 byte), and its fields as a msgpack array. A coordinator's
first batch in its partition is its claim: it says that this coordinator may write there (rule 25).

    a batch for an internal topic                 is
    ----------------------------------------------+------------------------------------------------------------
    of a producer id and epoch that wrote before  | checked as any other: sequences, and older epochs are fenced
    of an unknown producer id, or a newer epoch   | taken if it is a claim: one record with that key, at sequence 0
    of no producer id                             | refused

What must stay true:
- Only a coordinator that has claimed a partition of an internal topic adds to it. An ordinary producer cannot, however
  its batch arrives. Otherwise every later coordinator would find that batch on replay.
- Bytes of another program are told from records of a later raylog. Leaving out the former loses nothing, since no
  coordinator has ever acknowledged them. Text and plain numbers, as most keys are, never look like the latter: those
  have a kind from `first_kind` on, and a whole msgpack array behind it.
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
    """Raise InternalTopic where this batch is not a coordinator's; CorruptBatch, InvalidBatch: it is unreadable."""
    if len(batch) < HEADER_BYTES:
        return  # the log says what is wrong with it
    header = read_header(batch)
    known = producers.get(header.producer_id)
    if known is not None and header.producer_epoch <= known.epoch:
        return
    if not _may_be_claim(header, batch) or decode_batch(batch).keys != [CLAIM_KEY]:
        raise InternalTopic(topic)


def _may_be_claim(header: BatchHeader, batch: Bytes) -> bool:
    """Return whether header and size allow a claim, which is never compressed. Others are not unpacked (rule 34)."""
    is_first = header.has_producer and header.base_sequence == 0
    return is_first and header.record_count == 1 and header.codec == 0 and len(batch) <= _MOST_BYTES


def stored(part: Message) -> bytes:
    kind, version, body = pack(part)
    return bytes((kind, version)) + body


def read_stored(data: bytes, first_kind: int) -> Message:
    """Return the message. FrameInvalid: raylog did not write these bytes. MessageUnknown: a later version did."""
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
