"""Records of `__transaction_state` and `__cluster_metadata` as lines of text, for the dump of a segment.

`python -m raylog.groups.dump PATH` and `raylog log dump` import this, and decode the records of all internal topics.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from raylog.actors.protocol import metadata_quorum_records, metadata_records, security_records
from raylog.actors.protocol.coordinator_records import CLAIM_KEY
from raylog.actors.protocol.messages import Message, unpack
from raylog.actors.protocol.names import METADATA_TOPIC, TRANSACTIONS_TOPIC
from raylog.actors.protocol.transaction_family_messages import FamilyRecord
from raylog.actors.protocol.transaction_messages import TransactionRecord
from raylog.actors.transactions.rules.transaction import FAMILY_PREFIX, TRANSACTION_PREFIX, Phase
from raylog.errors import FrameInvalid
from raylog.storage.dump.formats import RECORD_FORMATS

_OF_METADATA: Final = (metadata_quorum_records, metadata_records, security_records)  # where its kinds register
_FRONT_BYTES: Final = 2  # kind, version
_ID_BYTES_SHOWN: Final = 4


def describe_transaction_record(key: bytes | None, value: bytes | None) -> str:
    """Describe a record of `__transaction_state`. FrameInvalid, MessageUnknown where it is none."""
    if key == CLAIM_KEY:
        return f"claimed under producer epoch {(value or b'?').decode()}"
    subject = _subject(key or b"")
    if value is None:
        return f"{subject}: no more"
    record = _message(value)
    if isinstance(record, TransactionRecord):
        return f"{subject}: {_transaction(record)}"
    if isinstance(record, FamilyRecord):
        return f"{subject}: {_family(record)}"
    raise FrameInvalid(f"A {type(record).__name__} is no record of {TRANSACTIONS_TOPIC}.")


def describe_metadata_record(_key: bytes | None, value: bytes | None) -> str:
    """Describe a record of `__cluster_metadata`. FrameInvalid, MessageUnknown where it is none."""
    record = _message(value or b"")
    if type(record).__module__ not in {module.__name__ for module in _OF_METADATA}:
        raise FrameInvalid(f"A {type(record).__name__} is no record of {METADATA_TOPIC}.")
    # What a class keeps out of its `repr` is secret.
    told = (f"{field.name} {_text(getattr(record, field.name))}" for field in fields(record) if field.repr)  # type: ignore[arg-type]
    return f"{type(record).__name__}: {', '.join(told)}"


def _message(value: bytes) -> Message:
    if len(value) < _FRONT_BYTES:
        raise FrameInvalid("A record has no kind.")
    return unpack(value[0], value[1], value[_FRONT_BYTES:])


def _subject(key: bytes) -> str:
    if key.startswith(FAMILY_PREFIX):
        return f"family {key.removeprefix(FAMILY_PREFIX).decode()!r}"
    if key.startswith(TRANSACTION_PREFIX):
        return f"transactional id {key.removeprefix(TRANSACTION_PREFIX).decode()!r}"
    raise FrameInvalid(f"{key!r} is no key of {TRANSACTIONS_TOPIC}.")


def _transaction(record: TransactionRecord) -> str:
    phase = Phase(record.phase)
    parts = [f"{phase.words}, producer {record.producer_id} epoch {record.epoch}, time-out {record.timeout_ms} ms"]
    if record.partitions:
        parts.append("partitions " + ", ".join(f"{topic}-{number}" for topic, _, number in record.partitions))
    if record.groups:
        parts.append("groups " + ", ".join(record.groups))
    if record.begun_ms >= 0 and not phase.is_idle:
        parts.append(f"begun at {record.begun_ms}")
    if phase.is_prepared:
        parts.append(f"markers of producer {record.marker_id} epoch {record.marker_epoch}")
    if record.ended_id >= 0:
        parts.append(f"ended last: producer {record.ended_id} epoch {record.ended_epoch}")
    if record.timed_out:
        parts.append("timed out")
    return "; ".join([*parts, f"at {record.changed_ms}"])


def _family(record: FamilyRecord) -> str:
    batch = "none" if record.last_batch < 0 else record.last_batch
    keep = "for ever" if record.keep_ms < 0 else f"for {record.keep_ms} ms"
    return (
        f"epoch {record.epoch} of driver {_text(record.holder)}, last batch {batch}; "
        f"time-out {record.timeout_ms} ms, kept {keep}; at {record.changed_ms}"
    )


def _text(value: object) -> str:
    """Ids by their ends, as everywhere in a dump; lists in brackets; an empty text so that it is seen."""
    if isinstance(value, bytes):
        return value[-_ID_BYTES_SHOWN:].hex()
    if isinstance(value, tuple):
        return f"[{', '.join(map(_text, value))}]"
    return repr(value) if value == "" else str(value)


RECORD_FORMATS[TRANSACTIONS_TOPIC] = describe_transaction_record
RECORD_FORMATS[METADATA_TOPIC] = describe_metadata_record
