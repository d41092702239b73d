"""The metadata log in memory: the last snapshot, and the batches since.

    snapshot at offset s | batch | batch | … | batch
    ^ start_offset = s                         ^ end_offset

One change is one batch, so that it is in a log as a whole or not at all. Each record's value is the record's kind and
version, a byte each, and its fields as `messages.pack` makes them. A snapshot is batches likewise, all from offset 0.

What must stay true:
- Batches join on to the snapshot (or to offset 0) and to each other; their epochs never fall.
- Before the start everything is committed. So two logs agree at the start of either one that both reach.
- A method that raises has changed nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

from raylog.actors.protocol.messages import Message, pack, unpack
from raylog.actors.protocol.metadata_quorum_records import Voter, Voters
from raylog.actors.protocol.metadata_records import CommittedBatch, as_of_today
from raylog.actors.protocol.replication_messages import NO_EPOCH, EpochEnd
from raylog.errors import (
    FrameInvalid,
    InvalidBatch,
    MessageUnknown,
    MetadataRecordUnknown,
    OffsetOutOfRange,
    OffsetsNotContiguous,
    StaleLeaderEpoch,
)
from raylog.storage.format.batch_codec import decode_batch, encode_batch
from raylog.storage.format.record_batch import Bytes, read_header, split_batches, stamp

_FRONT_BYTES: Final = 2  # kind, version
_RECORDS_PER_SNAPSHOT_BATCH: Final = 10_000


def encode_change(records: Sequence[Message], base_offset: int, epoch: int, now_ms: int) -> bytes:
    """One batch, stamped. InvalidBatch where there are no records."""
    batch = encode_batch([_encode_record(record) for record in records], timestamps=now_ms)
    stamp(batch, base_offset, epoch)
    return bytes(batch)


def decode_change(batch: Bytes) -> tuple[Message, ...]:
    """The records of one batch. MetadataRecordUnknown: a newer raylog wrote it; a BatchError: it is damaged."""
    return tuple(_decode_record(value) for value in decode_batch(batch).values)


def encode_state(records: Sequence[Message], epoch: int, now_ms: int) -> bytes:
    """A snapshot's records as bytes."""
    return b"".join(
        encode_change(part, base, epoch, now_ms)
        for base, part in zip(count(0, _RECORDS_PER_SNAPSHOT_BATCH), _parts(records), strict=False)
    )


def decode_state(data: Bytes) -> tuple[Message, ...]:
    """The records of a snapshot."""
    return tuple(record for batch in split_batches(data) for record in decode_change(batch))


def _parts(records: Sequence[Message]) -> Iterator[Sequence[Message]]:
    for start in range(0, len(records), _RECORDS_PER_SNAPSHOT_BATCH):
        yield records[start : start + _RECORDS_PER_SNAPSHOT_BATCH]


def _encode_record(record: Message) -> bytes:
    kind, version, data = pack(record)
    return bytes((kind, version)) + data


def _decode_record(value: bytes | None) -> Message:
    if value is None or len(value) < _FRONT_BYTES:
        raise InvalidBatch("A record of the metadata log has no kind.")
    kind, version = value[0], value[1]
    try:
        return as_of_today(unpack(kind, version, value[_FRONT_BYTES:]))
    except MessageUnknown:
        raise MetadataRecordUnknown(kind, version) from None
    except FrameInvalid as error:
        raise InvalidBatch(f"A record of the metadata log cannot be read: {error.describe()}") from error


NO_VOTERS: Final[tuple[Voter, ...]] = ()


@dataclass(frozen=True, slots=True)
class MetadataSnapshot:
    """The state after everything below `version`, whose last record is of `epoch`. `data` is the records as bytes."""

    version: int
    epoch: int
    records: tuple[Message, ...]
    data: bytes

    @classmethod
    def decode(cls, version: int, epoch: int, data: Bytes) -> MetadataSnapshot:
        return cls(version, epoch, decode_state(data), bytes(data))


BLANK: Final = MetadataSnapshot(0, NO_EPOCH, (), b"")


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch of the log, decoded and as it is on disk and on the wire."""

    base_offset: int
    end_offset: int
    epoch: int
    records: tuple[Message, ...]
    data: bytes

    @classmethod
    def decode(cls, data: Bytes) -> StoredBatch:
        records = decode_change(data)  # checks the bytes first
        header = read_header(data)
        if header.record_count != header.last_offset_delta + 1 or header.leader_epoch < 0:
            raise InvalidBatch(f"The batch at offset {header.base_offset} is none that a controller writes.")
        return cls(header.base_offset, header.next_offset, header.leader_epoch, records, bytes(data))

    @property
    def committed(self) -> CommittedBatch:
        return CommittedBatch(self.end_offset, self.epoch, self.records)


def decode_batches(data: Bytes) -> list[StoredBatch]:
    """Decode the batches that an AppendMetadata or a MetadataRead carries."""
    return [StoredBatch.decode(batch) for batch in split_batches(data)]


class LogTail:
    """A metadata log in memory. The top of this file says what it consists of."""

    def __init__(self, snapshot: MetadataSnapshot = BLANK) -> None:
        self.snapshot = snapshot
        self.size_bytes = 0  # of the batches
        self._batches: list[StoredBatch] = []
        self._voters = [(snapshot.version, voters_in(snapshot.records) or NO_VOTERS)]  # (end of the batch, who)

    # --- what it holds ---

    @property
    def start_offset(self) -> int:
        return self.snapshot.version

    @property
    def end_offset(self) -> int:
        return self._batches[-1].end_offset if self._batches else self.snapshot.version

    @property
    def last_epoch(self) -> int:
        return self._batches[-1].epoch if self._batches else self.snapshot.epoch

    @property
    def voters(self) -> tuple[Voter, ...]:
        """The voters that the log names last; none where it never named any."""
        return self._voters[-1][1]

    def voters_at(self, offset: int) -> tuple[Voter, ...]:
        """The voters that were in force at `offset`."""
        return next((voters for end, voters in reversed(self._voters) if end <= offset), NO_VOTERS)

    @property
    def voters_offset(self) -> int:
        """The end of the batch that named the last voters; the start of the log, where the snapshot did."""
        return self._voters[-1][0]

    # --- where it agrees with another one ---

    def epoch_before(self, offset: int) -> int | None:
        """The epoch of the batch that ends at `offset`; None where none does, or it is not here."""
        if offset == self.start_offset:
            return self.snapshot.epoch
        at = self._index_of(offset)
        if at is None or at == 0:
            return None
        return self._batches[at - 1].epoch

    def epoch_end(self, epoch: int) -> EpochEnd:
        """The largest epoch up to `epoch`, and its end (rule 10). All before the start is of the snapshot's epoch."""
        for batch in reversed(self._batches):
            if batch.epoch <= epoch:
                return batch.epoch, batch.end_offset
        return self.snapshot.epoch, self.start_offset

    def boundary_before(self, offset: int) -> int | None:
        """The last place up to `offset` where a batch begins or the log ends; None where that is before its start."""
        if offset < self.start_offset:
            return None
        if offset >= self.end_offset:
            return self.end_offset
        return self._batches[bisect_right(self._batches, offset, key=_base_offset) - 1].base_offset

    # --- reading ---

    def batches_from(self, offset: int) -> Sequence[StoredBatch]:
        """All from `offset` on, which has to be where a batch begins or the log ends."""
        at = self._index_of(offset)
        if at is None:
            raise OffsetOutOfRange(offset, self.start_offset, self.end_offset)
        return self._batches[at:]

    def read(self, offset: int, max_bytes: int) -> tuple[bytes, int]:
        """Batches from `offset` on, up to `max_bytes`, but one at least if there is one; and where they end."""
        taken: list[bytes] = []
        size, end = 0, offset
        for batch in self.batches_from(offset):
            size += len(batch.data)
            if taken and size > max_bytes:
                break
            taken.append(batch.data)
            end = batch.end_offset
        return b"".join(taken), end

    # --- changing ---

    def append(self, batches: Sequence[StoredBatch]) -> None:
        check_chain(batches, self.end_offset, self.last_epoch)
        self._take_in(batches)

    def truncate_to(self, offset: int) -> None:
        """Let the log end at `offset`, where a batch has to begin."""
        self._start_with(self.snapshot, self._batches[: len(self._batches) - len(self.batches_from(offset))])

    def replace_start(self, snapshot: MetadataSnapshot) -> None:
        """Let `snapshot` stand for all before it; what follows it stays where it joins on, else everything goes."""
        keeps = self.epoch_before(snapshot.version) == snapshot.epoch
        self._start_with(snapshot, self.batches_from(snapshot.version) if keeps else ())

    def _start_with(self, snapshot: MetadataSnapshot, batches: Sequence[StoredBatch]) -> None:
        self.snapshot = snapshot
        self.size_bytes = 0
        self._batches = []
        self._voters = [(snapshot.version, voters_in(snapshot.records) or NO_VOTERS)]
        self._take_in(batches)

    def _take_in(self, batches: Sequence[StoredBatch]) -> None:
        for batch in batches:
            self._batches.append(batch)
            self.size_bytes += len(batch.data)
            if (voters := voters_in(batch.records)) is not None:
                self._voters.append((batch.end_offset, voters))

    def _index_of(self, offset: int) -> int | None:
        """The index of the batch that begins at `offset`; one past the last at the end; None where none begins."""
        at = bisect_right(self._batches, offset - 1, key=_base_offset)
        begins = self._batches[at].base_offset if at < len(self._batches) else self.end_offset
        return at if begins == offset else None


def check_chain(batches: Sequence[StoredBatch], end_offset: int, last_epoch: int) -> None:
    """Whether they join on to a log that ends like this."""
    for batch in batches:
        if batch.base_offset != end_offset:
            raise OffsetsNotContiguous(batch.base_offset, end_offset)
        if batch.epoch < last_epoch:
            raise StaleLeaderEpoch(batch.epoch, last_epoch)
        end_offset, last_epoch = batch.end_offset, batch.epoch


def voters_in(records: Sequence[Message]) -> tuple[Voter, ...] | None:
    """The voters that the last record about them names; None where there is none."""
    return next((record.voters for record in reversed(records) if type(record) is Voters), None)


def _base_offset(batch: StoredBatch) -> int:
    return batch.base_offset
