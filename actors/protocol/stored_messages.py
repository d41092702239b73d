"""Messages as the keys and values of records in the coordinators' topics.

    kind (1 byte), version (1 byte), the fields as a msgpack array

What must stay true: what another program may have left there is told from what a later raylog has written. Only the
first is no loss: nobody was ever answered for it. Neither text nor plain numbers, such as keys mostly are, are taken
for the second: that has a kind from `first_kind` on, and a whole msgpack array behind it.
"""

from __future__ import annotations

import msgpack

from raylog.actors.protocol.messages import Message, pack, unpack
from raylog.errors import FrameInvalid, MessageUnknown


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
