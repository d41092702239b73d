"""The records that a handler is given at once: some records, or an Arrow table, and how that is cut where it fails.

A piece that fails for good is cut until the record that fails is alone. If the handler's call says which one it is,
the piece is cut there, otherwise in the middle.

What must stay true: the parts of a piece, in their order, are the piece. What `offsets` names is right behind the last
record of each partition, so committing part after part passes over nothing that is not done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

from raylog.api.connection.records import ConsumerRecord, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa


class Piece(Protocol):
    """Records in the order of their offsets, partition by partition."""

    def __len__(self) -> int: ...

    @property
    def offsets(self) -> Mapping[TopicPartition, int]:
        """The offset behind the last record of each partition."""
        ...

    def part(self, start: int, stop: int) -> Piece: ...

    def record(self, place: int) -> ConsumerRecord:
        """Return the record there, with key and value as bytes."""
        ...


class RecordPiece:
    """A piece of single records, with keys and values as bytes."""

    def __init__(self, records: Sequence[ConsumerRecord]) -> None:
        self.records = records

    def __len__(self) -> int:
        return len(self.records)

    @property
    def offsets(self) -> Mapping[TopicPartition, int]:
        return {TopicPartition(each.topic, each.partition): each.offset + 1 for each in self.records}

    def part(self, start: int, stop: int) -> RecordPiece:
        return RecordPiece(self.records[start:stop])

    def record(self, place: int) -> ConsumerRecord:
        return self.records[place]


class ArrowPiece:
    """A piece that is an Arrow table, with the columns of `poll_arrow` and headers."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @property
    def offsets(self) -> Mapping[TopicPartition, int]:
        """Only the places of the table are made Python objects, chunk by chunk the last one: a chunk is a batch."""
        found: dict[TopicPartition, int] = {}
        for batch in self.table.select(["topic", "partition", "offset"]).to_batches():
            if batch.num_rows:
                topic, partition, offset = (column[batch.num_rows - 1].as_py() for column in batch.columns)
                found[TopicPartition(topic, partition)] = offset + 1
        return found

    def part(self, start: int, stop: int) -> ArrowPiece:
        return ArrowPiece(self.table.slice(start, stop - start))

    def record(self, place: int) -> ConsumerRecord:
        row: dict[str, Any] = self.table.slice(place, 1).to_pylist()[0]
        headers = tuple((each["key"], each["value"]) for each in row.get("headers") or ())
        return ConsumerRecord(
            row["topic"], row["partition"], row["offset"], row["timestamp"], 0, row["key"], row["value"],
            headers, -1,
        )  # fmt: skip


def cut(piece: Piece, fails: int | None) -> list[Piece]:
    """Return the parts in their order. `fails`: the record that is known to fail."""
    count = len(piece)
    bounds = [0, count // 2, count] if fails is None else [0, fails, fails + 1, count]
    return [piece.part(start, stop) for start, stop in pairwise(bounds) if start < stop]

