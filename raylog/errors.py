"""Every error raylog raises, as one tree.

What stays true here:
- An error crosses process boundaries: whatever its constructor takes goes to the base constructor, so that
  `pickle` can build it again (`tests/unit/test_errors.py` pickles each class).
- `retriable` says whether the same call may succeed later without anybody changing anything.
- `advice` is one sentence for the person who meets the error: what to do next. It is part of `str(error)`.

    RaylogError
    ├── ConfigError               UnknownConfig, InvalidConfig
    ├── BatchError                CorruptBatch, InvalidBatch (UnsupportedMagic, UnsupportedCodec, NullKey,
    │                             InvalidTimestamp), BatchTooLarge, PayloadTooLarge
    ├── OffsetError               OffsetOutOfRange, OffsetsNotContiguous
    ├── EpochError                StaleLeaderEpoch, InvalidLeaderEpoch
    ├── ProducerError             OutOfOrderSequence, ProducerFenced, CoordinatorFenced, InvalidTransactionState
    ├── StorageError
    │   ├── DiskError             DiskFull, DiskBusy, DiskFailed, DiskReadOnly
    │   ├── DirectoryError        DirectoryLocked, DirectoryNotOurs, WrongCluster, WrongPartition
    │   ├── UnsupportedFormat
    │   ├── LogDamaged
    │   └── LogOffline
    ├── CompactionError           CompactionMemoryTooSmall (CompactionMemoryTaken), CompactionOutdated
    ├── StreamError
    │   ├── FrameInvalid          FrameTooLarge, UnsupportedFrameVersion
    │   ├── MessageUnknown
    │   ├── PeerNotAdmitted, PeerUnreachable, StreamNotOpen, TooManyBytesInFlight      nothing was done
    │   ├── StreamClosed, RequestTimedOut                                              outcome unknown
    │   └── RemoteFailed
    └── RuntimeUnavailable        RayUnreachable
"""

from __future__ import annotations

from typing import ClassVar


class RaylogError(Exception):
    """Base of everything raylog raises on purpose."""

    retriable: ClassVar[bool] = False
    advice: ClassVar[str] = ""

    def describe(self) -> str:
        """What happened, without the advice."""
        return super().__str__()

    def __str__(self) -> str:
        return f"{self.describe()} {self.advice}".rstrip()


# --- configuration ------------------------------------------------------------------------------------------------


class ConfigError(RaylogError, ValueError):
    """A setting cannot be used."""


class UnknownConfig(ConfigError):
    """A setting of this name does not exist."""

    def __init__(self, name: str, suggestion: str | None = None) -> None:
        super().__init__(name, suggestion)
        self.name = name
        self.suggestion = suggestion

    def describe(self) -> str:
        hint = f" Did you mean {self.suggestion!r}?" if self.suggestion else ""
        return f"There is no setting {self.name!r}.{hint}"


class InvalidConfig(ConfigError):
    """A setting has a value it cannot have."""

    def __init__(self, name: str, value: object, expected: str) -> None:
        super().__init__(name, value, expected)
        self.name = name
        self.value = value
        self.expected = expected

    def describe(self) -> str:
        return f"Setting {self.name!r} cannot be {self.value!r}: expected {self.expected}."


# --- record batches -----------------------------------------------------------------------------------------------


class BatchError(RaylogError):
    """A record batch was refused; the log is unchanged."""


class CorruptBatch(BatchError):
    """The bytes are not those their writer checksummed."""

    retriable = True
    advice = "The bytes were damaged on their way: send or fetch them again."


class InvalidBatch(BatchError):
    """The bytes arrived whole, but what they say is not allowed."""

    advice = "Sending the same bytes again cannot help: the writer of this batch has to change."


class UnsupportedMagic(InvalidBatch):
    """The payload layout is one this version does not know."""

    def __init__(self, magic: int) -> None:
        super().__init__(magic)
        self.magic = magic

    def describe(self) -> str:
        return f"Record batch has magic {self.magic}; known are 2 (Kafka records) and 16 (raylog columns)."


class UnsupportedCodec(InvalidBatch):
    """The compression codec number or name is unknown."""

    def __init__(self, codec: int | str) -> None:
        super().__init__(codec)
        self.codec = codec

    def describe(self) -> str:
        return f"Compression codec {self.codec!r} is unknown; known are none, gzip, snappy, lz4, zstd (0 to 4)."


class NullKey(InvalidBatch):
    """A record without a key was sent to a compacted topic."""

    advice = "Compaction keeps the newest value per key: give every record of this topic a key."


class InvalidTimestamp(InvalidBatch):
    """A record's timestamp is outside what the topic accepts."""

    advice = "See message.timestamp.before.max.ms and message.timestamp.after.max.ms, and the writer's clock."


class BatchTooLarge(BatchError):
    """A batch is over `max.message.bytes`."""

    advice = "Send smaller batches, or raise max.message.bytes on the topic."

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(size, limit)
        self.size = size
        self.limit = limit

    def describe(self) -> str:
        return f"Record batch of {self.size} bytes is over the limit of {self.limit}."


class PayloadTooLarge(BatchError):
    """A payload is, or declares itself, larger than we are willing to unpack."""

    advice = "Compress less data into one batch, or raise the reader's limit on unpacked bytes."

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(size, limit)
        self.size = size
        self.limit = limit

    def describe(self) -> str:
        return f"Compressed payload unpacks to {self.size} bytes or more; the limit is {self.limit}."


# --- offsets and epochs -------------------------------------------------------------------------------------------


class OffsetError(RaylogError):
    """An offset does not fit the log."""


class OffsetOutOfRange(OffsetError):
    """The offset asked for is not in the log."""

    advice = "Seek to an offset within the range, or to its beginning or end."

    def __init__(self, offset: int, start: int, end: int) -> None:
        super().__init__(offset, start, end)
        self.offset = offset
        self.start = start
        self.end = end

    def describe(self) -> str:
        return f"Offset {self.offset} is out of range: the log holds {self.start} to {self.end} (exclusive)."


class OffsetsNotContiguous(OffsetError):
    """A replicated batch does not join on to the end of the log."""

    advice = "The follower fetches again from its own end of the log."

    def __init__(self, base_offset: int, log_end_offset: int) -> None:
        super().__init__(base_offset, log_end_offset)
        self.base_offset = base_offset
        self.log_end_offset = log_end_offset

    def describe(self) -> str:
        return f"A batch at offset {self.base_offset} does not join on to a log that ends at {self.log_end_offset}."


class EpochError(RaylogError):
    """A leadership or coordinator epoch does not fit."""


class StaleLeaderEpoch(EpochError):
    """A batch or claim carries an older leader epoch than the log has seen."""

    advice = "Its sender is no longer the leader: refresh metadata."

    def __init__(self, epoch: int, current: int) -> None:
        super().__init__(epoch, current)
        self.epoch = epoch
        self.current = current

    def describe(self) -> str:
        return f"Leader epoch {self.epoch} is older than {self.current}."


class InvalidLeaderEpoch(EpochError):
    """A number that cannot be a leader epoch."""

    advice = "Leader epochs are whole numbers from 0 to 2147483647 that only the controller gives out."

    def __init__(self, epoch: int) -> None:
        super().__init__(epoch)
        self.epoch = epoch

    def describe(self) -> str:
        return f"Leader epoch {self.epoch} cannot be."


# --- producers ----------------------------------------------------------------------------------------------------


class ProducerError(RaylogError):
    """An idempotent or transactional append breaks the producer's own order."""


class OutOfOrderSequence(ProducerError):
    """A batch's first sequence number is not the successor of the last one."""

    advice = "An earlier batch of this producer has not arrived: send it first."

    def __init__(self, producer_id: int, sequence: int, expected: int) -> None:
        super().__init__(producer_id, sequence, expected)
        self.producer_id = producer_id
        self.sequence = sequence
        self.expected = expected

    def describe(self) -> str:
        return f"Producer {self.producer_id} sent sequence {self.sequence} where {self.expected} comes next."


class ProducerFenced(ProducerError):
    """A newer instance of the same producer has taken over."""

    advice = "Another instance uses the same producer id with a newer epoch: close this one."

    def __init__(self, producer_id: int, epoch: int, current: int) -> None:
        super().__init__(producer_id, epoch, current)
        self.producer_id = producer_id
        self.epoch = epoch
        self.current = current

    def describe(self) -> str:
        return f"Producer {self.producer_id} has epoch {self.epoch}, but the log has seen epoch {self.current}."


class CoordinatorFenced(ProducerError):
    """A transaction marker was sent by a coordinator that has been replaced."""

    advice = "A newer transaction coordinator owns this transaction; the older one must stop."

    def __init__(self, producer_id: int, coordinator_epoch: int, current: int) -> None:
        super().__init__(producer_id, coordinator_epoch, current)
        self.producer_id = producer_id
        self.coordinator_epoch = coordinator_epoch
        self.current = current

    def describe(self) -> str:
        return (
            f"Marker for producer {self.producer_id} carries coordinator epoch {self.coordinator_epoch}, "
            f"but the log has seen {self.current}."
        )


class InvalidTransactionState(ProducerError):
    """A producer writes in a way its open or missing transaction does not allow."""

    advice = "End the open transaction first; a transactional producer writes nothing outside one."


# --- storage ------------------------------------------------------------------------------------------------------


class StorageError(RaylogError):
    """Something about files or directories."""


class DiskError(StorageError):
    """The disk refused an operation."""


class DiskFull(DiskError):
    """No space is left; nothing of the refused write remains."""

    retriable = True
    advice = "Free space on the disk or shorten the retention; writing goes on by itself when there is space."


class DiskBusy(DiskError):
    """The process or machine is short of file descriptors or memory; the disk itself is well."""

    retriable = True
    advice = "Raise the limit on open files (ulimit -n), or free memory."


class DiskFailed(DiskError):
    """The disk reported an I/O error, or failed to sync. What it holds is unknown from here on."""

    advice = "The replica stays offline. Check the disk (dmesg, SMART), then restart or replace the broker."


class DiskReadOnly(DiskError):
    """The file system or directory may not be written."""

    advice = "Mount it writable, or correct the ownership of the data directory."


class DirectoryError(StorageError):
    """A directory cannot be used as it is."""


class DirectoryLocked(DirectoryError):
    """Another process owns the directory."""

    advice = "Stop that process first. Two owners of one directory would destroy it, so there is no override."

    def __init__(self, path: str, holder: str = "unknown") -> None:
        super().__init__(path, holder)
        self.path = path
        self.holder = holder

    def describe(self) -> str:
        return f"Directory {self.path} is locked by another process ({self.holder})."


class DirectoryNotOurs(DirectoryError):
    """The directory holds files raylog did not make."""

    advice = "Give raylog an empty directory, or one it made itself."

    def __init__(self, path: str, found: str) -> None:
        super().__init__(path, found)
        self.path = path
        self.found = found

    def describe(self) -> str:
        return f"Directory {self.path} is not a raylog directory: {self.found}."


class WrongCluster(DirectoryError):
    """The directory belongs to another cluster or broker."""

    advice = "Start with the directory of this cluster and broker, or with an empty one."

    def __init__(self, path: str, found: str, expected: str) -> None:
        super().__init__(path, found, expected)
        self.path = path
        self.found = found
        self.expected = expected

    def describe(self) -> str:
        return f"Directory {self.path} belongs to {self.found}, not to {self.expected}."


class WrongPartition(DirectoryError):
    """The directory holds another topic's partition, or an earlier topic of the same name."""

    advice = "The topic was deleted and created again, or the directory was moved: set it aside."

    def __init__(self, path: str, found: str, expected: str) -> None:
        super().__init__(path, found, expected)
        self.path = path
        self.found = found
        self.expected = expected

    def describe(self) -> str:
        return f"Directory {self.path} holds {self.found}, not {self.expected}."


class UnsupportedFormat(StorageError):
    """A file was written by a newer version."""

    advice = "Use the raylog version that wrote it, or a newer one."

    def __init__(self, path: str, version: int, known: int) -> None:
        super().__init__(path, version, known)
        self.path = path
        self.version = version
        self.known = known

    def describe(self) -> str:
        return f"File {self.path} has format version {self.version}; this raylog reads up to {self.known}."


class LogDamaged(StorageError):
    """Bytes that were stored are not there any more, or not as they were (rule 14)."""

    advice = (
        "The replica is quarantined: it serves nothing until it has been refetched from the leader. "
        "`python -m raylog.storage.dump` shows what is still readable."
    )

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(path, position, reason)
        self.path = path
        self.position = position
        self.reason = reason

    def describe(self) -> str:
        return f"{self.path} is damaged at byte {self.position}: {self.reason}."


class LogOffline(StorageError):
    """The log was closed, or went offline after an earlier failure."""

    advice = "See the first error in this broker's log; the replica has to be opened again."


class CompactionError(RaylogError):
    """A compaction could not be done; the log is unchanged."""


class CompactionMemoryTooSmall(CompactionError):
    """The map cannot hold enough keys to get anywhere."""

    advice = "Raise the memory budget for compaction, or send smaller batches."

    def __init__(self, needed: int, available: int) -> None:
        super().__init__(needed, available)
        self.needed = needed
        self.available = available

    def describe(self) -> str:
        return f"A map of {self.needed} bytes is needed, but {self.available} are to be had."


class CompactionMemoryTaken(CompactionMemoryTooSmall):
    """The memory budget would be enough, but other compactions have it just now."""

    retriable = True
    advice = "It is given back when they end; if this happens often, raise the memory budget for compaction."

    def __init__(self, needed: int, available: int) -> None:
        super().__init__(needed, available)


class CompactionOutdated(CompactionError):
    """The segments that were compacted are not those of the log any more."""

    retriable = True
    advice = "The log was truncated or trimmed meanwhile; the next compaction starts from what it is now."

    def __init__(self, base_offset: int, end_offset: int) -> None:
        super().__init__(base_offset, end_offset)
        self.base_offset = base_offset
        self.end_offset = end_offset

    def describe(self) -> str:
        return f"The segments from offset {self.base_offset} to {self.end_offset} are not those that were compacted."


# --- streams ------------------------------------------------------------------------------------------------------


class StreamError(RaylogError):
    """Something about the streams between processes."""

    # Whether the request may have been carried out all the same (rules 27 and 30). Only its sequence, or a look at the
    # state, tells; a plain repetition could do it twice.
    outcome_unknown: ClassVar[bool] = False


class FrameInvalid(StreamError):
    """Bytes on a stream are not a frame; nothing behind them can be read."""

    advice = "The stream is closed. Both sides have to run raylog, in versions that know each other's frames."


class FrameTooLarge(FrameInvalid):
    """A frame is, or declares itself, larger than the stream takes."""

    advice = "Send less in one request, or raise the frame limit on both sides."

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(size, limit)
        self.size = size
        self.limit = limit

    def describe(self) -> str:
        return f"A frame of {self.size} bytes is over the limit of {self.limit}."


class UnsupportedFrameVersion(FrameInvalid):
    """A frame has a layout this version does not know."""

    advice = "The other side runs another version of raylog: bring both to one."

    def __init__(self, version: int, known: int) -> None:
        super().__init__(version, known)
        self.version = version
        self.known = known

    def describe(self) -> str:
        return f"A frame has protocol version {self.version}; this raylog speaks {self.known}."


class MessageUnknown(StreamError):
    """A whole frame carries a message of a kind, or a version of it, that this side does not know."""

    advice = "One side runs an older raylog: bring both to one version."

    def __init__(self, kind: int, version: int) -> None:
        super().__init__(kind, version)
        self.kind = kind
        self.version = version

    def describe(self) -> str:
        return f"Message kind {self.kind} in version {self.version} is unknown here."


class PeerNotAdmitted(StreamError):
    """One side of a new stream did not prove that it holds the cluster's secret."""

    advice = "Both sides need the secret of the same cluster, and the address has to be the one its owner gave out."

    def __init__(self, peer: str, reason: str) -> None:
        super().__init__(peer, reason)
        self.peer = peer
        self.reason = reason

    def describe(self) -> str:
        return f"No stream with {self.peer}: {self.reason}."


class PeerUnreachable(StreamError):
    """Nothing accepts a stream at that address."""

    retriable = True
    advice = "Its process may be gone or not up yet: refresh metadata and connect again."

    def __init__(self, peer: str, reason: str) -> None:
        super().__init__(peer, reason)
        self.peer = peer
        self.reason = reason

    def describe(self) -> str:
        return f"{self.peer} cannot be reached: {self.reason}."


class StreamNotOpen(StreamError):
    """The stream takes no new requests; this one was not carried out."""

    retriable = True
    advice = "Nothing was done: connect again and repeat it."

    def __init__(self, peer: str, reason: str) -> None:
        super().__init__(peer, reason)
        self.peer = peer
        self.reason = reason

    def describe(self) -> str:
        return f"The stream with {self.peer} is not open: {self.reason}."


class TooManyBytesInFlight(StreamError):
    """The bound on what the other side has not answered yet is reached (rule 31); nothing was sent."""

    retriable = True
    advice = "Wait for answers before sending more."

    def __init__(self, size: int, in_flight: int, limit: int) -> None:
        super().__init__(size, in_flight, limit)
        self.size = size
        self.in_flight = in_flight
        self.limit = limit

    def describe(self) -> str:
        return f"{self.size} bytes were not sent: {self.in_flight} are in flight, and the limit is {self.limit}."


class StreamClosed(StreamError):
    """A stream ended while a request was in flight on it: the outcome is unknown (rules 27 and 30)."""

    retriable = True
    outcome_unknown = True
    advice = "The request may have been carried out: repeat it under the same sequence, or look before repeating it."

    def __init__(self, peer: str, reason: str) -> None:
        super().__init__(peer, reason)
        self.peer = peer
        self.reason = reason

    def describe(self) -> str:
        return f"The stream with {self.peer} closed, outcome unknown: {self.reason}."


class RequestTimedOut(StreamError):
    """No answer came in time: the outcome is unknown (rule 27)."""

    retriable = True
    outcome_unknown = True
    advice = "The request may have been carried out: repeat it under the same sequence, or look before repeating it."

    def __init__(self, peer: str, timeout_ms: int) -> None:
        super().__init__(peer, timeout_ms)
        self.peer = peer
        self.timeout_ms = timeout_ms

    def describe(self) -> str:
        return f"{self.peer} did not answer within {self.timeout_ms} ms."


class RemoteFailed(StreamError):
    """The other side answered with an error. `error` is that error, where its class is known here."""

    advice = "What helps, and whether trying again does, is up to that error."

    def __init__(self, peer: str, name: str, text: str, error: object = None) -> None:
        super().__init__(peer, name, text, error)
        self.peer = peer
        self.name = name
        self.text = text
        self.error = error if isinstance(error, RaylogError) else None

    def describe(self) -> str:
        return f"{self.peer} answered {self.name}: {self.text}"


# --- Ray ----------------------------------------------------------------------------------------------------------


class RuntimeUnavailable(RaylogError):
    """What raylog runs on is not there."""


class RayUnreachable(RuntimeUnavailable):
    """No Ray answers where one was said to be."""

    retriable = True
    advice = "Start it, correct RAY_ADDRESS, or unset RAY_ADDRESS to run on a Ray of this machine."

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(address, reason)
        self.address = address
        self.reason = reason

    def describe(self) -> str:
        return f"No Ray cluster answers at {self.address}: {self.reason}"
