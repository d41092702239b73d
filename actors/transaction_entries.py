"""What is known of a transactional id, as a record of `__transaction_state`: its name is the key, as is a family's."""

from __future__ import annotations

from typing import Final

from raylog.actors.coordinator_log import Entry
from raylog.actors.messages import pack
from raylog.actors.transaction_messages import TransactionRecord

TRANSACTION_PREFIX: Final = b"t"
FAMILY_PREFIX: Final = b"f"


def transaction_key(name: str) -> bytes:
    return TRANSACTION_PREFIX + name.encode()


def transaction_entry(record: TransactionRecord) -> Entry:
    kind, version, data = pack(record)
    return transaction_key(record.transactional_id), bytes((kind, version)) + data
