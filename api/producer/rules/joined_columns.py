"""Records of a bulk send as bytes, and several such pieces as one batch.

    piece   columns whose bytes are copied and joined, so that they are bounded by what was reserved for them
    batch   pieces of one partition, one behind the other; their columns are joined when the batch is encoded, at once

A bulk send with keys is split by partition in small chunks, for the processor's caches, and would make small batches.
Each batch costs client, leader and followers a few hundred microseconds, so pieces are gathered until they fill one.

What must stay true:
- The records of a batch are those of its pieces, in the order in which they were gathered.
- Pieces together never exceed `batch_size`, unless a single one does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from raylog.api.producer.rules.producer_batch import Columns, Encoded, Writer
from raylog.storage.format.batch_codec import BatchForm, encode_raw
from raylog.storage.format.columns import NULL_LENGTH, Headers, join

WIRE_BYTES: Final = 16  # of a record beside key and value: two lengths and a timestamp

Positions = Callable[[], Sequence[int]]


@dataclass(frozen=True, slots=True)
class JoinedColumns:
    """One piece."""

    count: int
    key_lengths: bytes
    keys: bytes
    value_lengths: bytes
    values: bytes
    headers: Sequence[Headers | None] | None
    timestamps: Sequence[int] | int
    size: int

    def __len__(self) -> int:
        return self.count


def join_records(some: Columns) -> JoinedColumns:
    count, stamps = len(some), some.timestamps
    key_lengths, keys = (NULL_LENGTH * count, b"") if some.keys is None else join(some.keys)
    value_lengths, values = join(some.values)
    size = len(keys) + len(values) + WIRE_BYTES * count
    for record in some.headers or ():
        size += sum(len(name) + len(value or b"") for name, value in record or ())
    timestamps: Any = stamps
    return JoinedColumns(count, key_lengths, keys, value_lengths, values, some.headers, timestamps, size)


class JoinedBatch:
    """Pieces, at least one, that go as one batch."""

    __slots__ = ("_pieces", "count", "size", "timestamps")

    def __init__(self, pieces: Sequence[JoinedColumns]) -> None:
        self._pieces = pieces
        self.count = sum(piece.count for piece in pieces)
        self.size = sum(piece.size for piece in pieces)
        self.timestamps = _timestamps(pieces)

    def __len__(self) -> int:
        return self.count

    def encode(self, form: BatchForm, writer: Writer, sequence: int) -> Encoded:
        pieces = self._pieces
        batch = encode_raw(
            self.count,
            [piece.key_lengths for piece in pieces],
            [piece.keys for piece in pieces],
            [piece.value_lengths for piece in pieces],
            [piece.values for piece in pieces],
            self.timestamps,
            _headers(pieces),
            form=form,
            producer_id=writer.producer_id,
            producer_epoch=writer.epoch,
            base_sequence=sequence,
            transactional=writer.is_transactional,
        )
        return Encoded(batch)


def _timestamps(pieces: Sequence[JoinedColumns]) -> Sequence[int] | int:
    """A bulk send has one timestamp for all of its records, or one for each."""
    first = pieces[0].timestamps
    if isinstance(first, int) or len(pieces) == 1:
        return first
    each: Any = [piece.timestamps for piece in pieces]
    return list(chain.from_iterable(each))


def _headers(pieces: Sequence[JoinedColumns]) -> Sequence[Headers | None] | None:
    if all(piece.headers is None for piece in pieces):
        return None
    each = (piece.headers or [None] * piece.count for piece in pieces)
    return list(chain.from_iterable(each))


class Gathering:
    """Pieces of one partition that have not been made a batch yet, and the places of their records."""

    def __init__(self) -> None:
        self.size = 0
        self._pieces: list[JoinedColumns] = []
        self._places: list[Positions] = []

    def add(self, piece: JoinedColumns, places: Positions) -> None:
        self._pieces.append(piece)
        self._places.append(places)
        self.size += piece.size

    def take(self) -> tuple[JoinedBatch, Positions] | None:
        """All of them as one batch; None: there is none."""
        if not self._pieces:
            return None
        pieces, places = self._pieces, self._places
        self._pieces, self._places, self.size = [], [], 0
        return JoinedBatch(pieces), places[0] if len(places) == 1 else lambda: [at for some in places for at in some()]
