"""What is known of a transactional id, or of a family, as a record of `__transaction_state`: its name is the key."""

from __future__ import annotations

from typing import Final, TypeVar

from raylog.actors.protocol.coordinator_claims import Entry
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.stored_messages import read_stored, stored
from raylog.actors.protocol.transaction_messages import TransactionRecord
from raylog.errors import FrameInvalid

TRANSACTION_PREFIX: Final = b"t"
FAMILY_PREFIX: Final = b"f"
_FIRST_KIND: Final = 120
_M = TypeVar("_M", bound=Message)


def transaction_key(name: str) -> bytes:
    return TRANSACTION_PREFIX + name.encode()


def transaction_entry(record: TransactionRecord) -> Entry:
    return transaction_key(record.transactional_id), stored(record)


def read_entry(kind: type[_M], prefix: bytes, key: bytes, value: bytes | None) -> tuple[str, _M | None]:
    """The name in the key, and the record; None: it is no more.

    FrameInvalid where no coordinator wrote this, MessageUnknown where one of a later version did.
    """
    record = None if value is None else read_stored(value, _FIRST_KIND)
    if record is not None and not isinstance(record, kind):
        raise FrameInvalid(f"A {type(record).__name__} is no record of this key.")
    if not key.startswith(prefix):
        raise FrameInvalid(f"A key that begins with {key[:1]!r} is none of a transaction coordinator.")
    try:
        return key[len(prefix) :].decode(), record
    except UnicodeDecodeError as error:
        raise FrameInvalid(f"The key holds no name: {error}.") from None
