"""Reading a replica's log whole before it is left as the only copy. Kinds 192 and 193."""

from __future__ import annotations

from dataclasses import dataclass

from raylog.actors.protocol.messages import Message, message


@message(kind=192)
@dataclass(frozen=True, slots=True)
class CheckCopy(Message):
    """Sent by the controller: read some more of this replica's log, and tell the replica of what is not sound.

    From `position` in the first segment that begins at `base_offset` or later; there `next_offset` is expected, −1: the
    segment's first.
    """

    topic: str
    topic_id: bytes
    partition: int
    base_offset: int
    position: int
    next_offset: int


@message(kind=193)
@dataclass(frozen=True, slots=True)
class CopyChecked(Message):
    """The answer to CheckCopy: where to go on. `is_through`: all of it has been read, and is sound."""

    is_through: bool
    base_offset: int
    position: int
    next_offset: int
