"""Events of a dump, as data: one small type for each thing it can say, and their form as JSON.

The reading half (`replica.py`) makes these, the printing half (`text.py`, or `as_json` here) turns them into
lines. In JSON every object has its `kind` and all of its keys, whether there is something to say or not; bytes are
base64.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeAlias

from raylog.storage.format.columns import Headers
from raylog.storage.format.compression import CODECS
from raylog.storage.format.control_records import Marker
from raylog.storage.format.record_batch import BatchHeader


@dataclass(frozen=True)
class Event:
    """Anything that a dump says about the file or directory at `path`."""

    kind: ClassVar[str]
    path: str


# --- replicas and files ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReplicaSeen(Event):
    """A replica's directory; what its own files say of it, as far as they can be read."""

    kind = "replica"
    topic: str | None
    partition: int | None
    segments: int
    log_bytes: int
    log_start_offset: int | None
    high_watermark: int | None
    recovery_point: int | None
    closed_cleanly: bool
    quarantined: bool


@dataclass(frozen=True)
class FileListed(Event):
    """One line of a directory's summary."""

    kind = "listed"
    bytes: int
    modified_ms: int
    holds: str


@dataclass(frozen=True)
class FileBegun(Event):
    """The beginning of a file: the events up to the next of these are about it."""

    kind = "file"
    bytes: int
    holds: str
    base_offset: int | None = None


# --- the log file ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BatchSeen(Event):
    """One batch. `crc_ok` is false where its bytes are not those that were summed: none of this is certain then."""

    kind = "batch"
    position: int
    base_offset: int
    last_offset: int
    records: int
    bytes: int
    leader_epoch: int
    magic: int
    codec: str
    log_append_time: bool
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    transactional: bool
    control: bool
    marker: str | None
    coordinator_epoch: int | None
    filler: bool
    emptied: bool
    crc: int
    crc_ok: bool

    @classmethod
    def of(cls, path: str, position: int, header: BatchHeader, marker: Marker | None, *, crc_ok: bool) -> BatchSeen:
        return cls(
            path=path,
            position=position,
            base_offset=header.base_offset,
            last_offset=header.last_offset,
            records=header.record_count,
            bytes=header.size,
            leader_epoch=header.leader_epoch,
            magic=header.magic,
            codec=CODECS[header.codec].name if header.codec < len(CODECS) else str(header.codec),
            log_append_time=header.is_log_append_time,
            base_timestamp=header.base_timestamp,
            max_timestamp=header.max_timestamp,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            last_sequence=header.last_sequence,
            transactional=header.is_transactional,
            control=header.is_control,
            marker=marker.type.name if marker else None,
            coordinator_epoch=marker.coordinator_epoch if marker else None,
            filler=header.is_filler,
            emptied=header.record_count == 0 and not header.is_filler,
            crc=header.crc,
            crc_ok=crc_ok,
        )


@dataclass(frozen=True)
class RecordSeen(Event):
    """One record. `decoded` is what its topic's format makes of it, for topics that have one."""

    kind = "record"
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    decoded: str | None


@dataclass(frozen=True)
class LogEnded(Event):
    """The whole of a log file has been walked."""

    kind = "log_end"
    batches: int
    records: int
    next_offset: int
    problems: int


# --- the files beside it --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OffsetEntrySeen(Event):
    kind = "offset_entry"
    offset: int
    position: int


@dataclass(frozen=True)
class TimeEntrySeen(Event):
    kind = "time_entry"
    timestamp: int
    offset: int


@dataclass(frozen=True)
class AbortedSeen(Event):
    kind = "aborted_transaction"
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(frozen=True)
class ProducerSeen(Event):
    """One producer of a snapshot. `batches`: (first sequence, last sequence, first offset, last offset, append ms)."""

    kind = "producer"
    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    coordinator_epoch: int
    transaction_start: int | None
    last_seen_ms: int
    batches: Sequence[tuple[int, int, int, int, int]]


@dataclass(frozen=True)
class CheckpointSeen(Event):
    kind = "checkpoint"
    body: Mapping[str, Any]


# --- what is to be said of them -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Problem(Event):
    """A finding that is not as it has to be.

    `position` and `offset` say where, and which offset was expected there; `lost_bytes` how much from there on is no
    batch any more, and `resumes_at` and `resumes_offset` where the next sound one is, if one follows.
    """

    kind = "problem"
    reason: str
    position: int | None = None
    offset: int | None = None
    lost_bytes: int | None = None
    resumes_at: int | None = None
    resumes_offset: int | None = None
    remedy: str = ""


@dataclass(frozen=True)
class Note(Event):
    """Worth knowing, and no reason to worry."""

    kind = "note"
    text: str


@dataclass(frozen=True)
class Unreadable(Event):
    """The path names nothing that could be read."""

    kind = "unreadable"
    reason: str


@dataclass(frozen=True)
class Total(Event):
    """The last word."""

    kind = "total"
    files: int
    batches: int
    records: int
    problems: int
    unreadable: int


def as_sentence(reason: str) -> str:
    return f"{reason[:1].upper()}{reason[1:].rstrip('.')}."


# --- JSON -----------------------------------------------------------------------------------------------------------

_Json: TypeAlias = Any


def as_json(event: Event) -> str:
    """One line, its keys in the order of the fields."""
    values = {field.name: _plain(getattr(event, field.name)) for field in fields(event)}
    return json.dumps({"kind": event.kind, **values})


def _plain(value: object) -> _Json:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return value
