"""Dump of the files beside a log file: indexes, producer snapshots, checkpoints and marker files."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from raylog.errors import LogDamaged, UnsupportedFormat
from raylog.storage.directory.partition_directory import LOCK_FILE, QUARANTINE_FILE
from raylog.storage.disk.sealed_file import SealBroken
from raylog.storage.dump.checks import MADE_AGAIN
from raylog.storage.dump.events import (
    AbortedSeen,
    CheckpointSeen,
    Event,
    FileBegun,
    Note,
    OffsetEntrySeen,
    Problem,
    ProducerSeen,
    TimeEntrySeen,
    as_sentence,
)
from raylog.storage.dump.files import CHECKPOINTS, Replica, SealedIndex, SegmentFile, what_holds
from raylog.storage.segment import leader_epochs
from raylog.storage.segment.indexes import OffsetIndex, TimeIndex
from raylog.storage.segment.leader_epochs import LeaderEpochs
from raylog.storage.segment.producer_state import ProducerStates

_RAW_BYTES = 400  # of a damaged checkpoint: they are mostly shorter

# --- indexes --------------------------------------------------------------------------------------------------------


def index_events(replica: Replica, file: SegmentFile) -> Iterator[Event]:
    path = replica.path(file.name)
    yield FileBegun(path, replica.size(file.name) or 0, file.holds, file.base_offset)
    index = yield from believed_index(replica, file)
    if index is None:
        return
    for row in index.rows:
        if file.kind == OffsetIndex.SUFFIX:
            yield OffsetEntrySeen(path, *row)
        elif file.kind == TimeIndex.SUFFIX:
            yield TimeEntrySeen(path, *row)
        else:
            yield AbortedSeen(path, *row)
    if not index.rows:
        yield Note(path, "It has no entries.")


def believed_index(replica: Replica, file: SegmentFile) -> Generator[Event, None, SealedIndex | None]:
    """The index if its seal is whole; whatever there is to say of it comes on the way."""
    path = replica.path(file.name)
    try:
        index = replica.load_index(file)
    except (SealBroken, UnsupportedFormat) as error:
        yield Problem(path, _why(path, error), remedy=MADE_AGAIN)
        return None
    if index.log_bytes is None:
        yield Note(path, "The log file that it describes is not here.")
    elif not index.fits:
        described = f"It describes {index.covers} bytes of log, but {index.log_bytes} are there."
        if replica.is_growing(file.base_offset):
            yield Note(path, f"{described} It is left from an earlier stop, and not in use.")
        else:
            yield Problem(path, described, remedy=MADE_AGAIN)
    return index


def _why(path: str, error: Exception) -> str:
    """Return an error's text without the path, which is said already."""
    if isinstance(error, UnsupportedFormat):
        return error.describe()
    return f"The file {str(error).removeprefix(path).strip()}."


# --- snapshots ------------------------------------------------------------------------------------------------------


def snapshot_events(replica: Replica, file: SegmentFile) -> Iterator[Event]:
    path = replica.path(file.name)
    yield FileBegun(path, replica.size(file.name) or 0, file.holds, file.base_offset)
    try:
        states = ProducerStates.load(replica.disk, path, file.base_offset)
    except (SealBroken, UnsupportedFormat) as error:
        yield Problem(path, _why(path, error), remedy=MADE_AGAIN)
        return
    except LogDamaged as damage:
        yield Problem(path, as_sentence(damage.reason))
        return
    for producer_id in sorted(states.ids()):
        entry = states.get(producer_id)
        if entry is not None:
            yield ProducerSeen(
                path,
                producer_id,
                entry.epoch,
                entry.last_sequence,
                entry.last_offset,
                entry.coordinator_epoch,
                entry.transaction_start,
                entry.last_seen_ms,
                entry.batches,
            )
    if not len(states):
        yield Note(path, "It knows no producer.")
    unstable = states.first_unstable_offset()
    if unstable is not None:
        reason = "a transaction was open, or its marker not replicated yet"
        yield Note(path, f"The last stable offset was {unstable}: {reason}.")


# --- checkpoints ----------------------------------------------------------------------------------------------------


def checkpoint_events(replica: Replica, name: str) -> Iterator[Event]:
    path = replica.path(name)
    yield FileBegun(path, replica.size(name) or 0, CHECKPOINTS[name])
    try:
        body = replica.checkpoint(name)
    except LogDamaged as damage:
        raw = replica.disk.read_file(path)[:_RAW_BYTES].decode("ascii", "backslashreplace")
        yield Problem(path, as_sentence(damage.reason))
        yield Note(path, f"It reads: {raw.strip()}")
        return
    except UnsupportedFormat as error:
        yield Problem(path, error.describe())
        return
    yield CheckpointSeen(path, body)
    if name == QUARANTINE_FILE:
        yield Problem(path, f"The replica is quarantined: {body['path']}, byte {body['position']}: {body['reason']}.")
    if name == leader_epochs.FILE_NAME:
        try:
            LeaderEpochs.load(replica.disk, replica.directory)
        except LogDamaged as damage:
            yield Problem(path, as_sentence(damage.reason))


def other_file_events(replica: Replica, name: str) -> Iterator[Event]:
    """The lock, or what an interrupted write has left."""
    path = replica.path(name)
    yield FileBegun(path, replica.size(name) or 0, what_holds(name) or "")
    if name == LOCK_FILE:
        owner = replica.disk.read_file(path)[:100].decode("ascii", "backslashreplace").strip()
        yield Note(path, f"Last taken by {owner or 'a process that left no name'}, which may have ended since.")
    else:
        yield Note(path, "The next opening removes it.")
