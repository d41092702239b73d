"""The rows of an Arrow table as records. Needs the extra `arrow`; the only module of a producer that imports pyarrow.

Arrow's columns are nearly those of a batch: the data buffer of a binary column is the joined values, and the
differences of its offsets are the lengths. So rows are split and cut by Arrow's kernels, and no key or value
becomes an object of Python; but where there are few distinct keys, those, once a chunk, for their partitions.

What must stay true: the lengths of a batch add up to its bytes. A reader refuses a batch where they do not, which is
too late: its records are acknowledged by then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from raylog.api.producer.bulk_send import BulkSend
from raylog.api.producer.rules.bulk_partitioning import MOST_IN_A_BYTE, partitions_of
from raylog.api.producer.rules.producer_batch import Encoded, Writer
from raylog.errors import InvalidBatch
from raylog.storage.format.batch_codec import BatchForm, encode_raw
from raylog.storage.format.columns import NULL_LENGTH
from raylog.storage.format.murmur2 import partitions_of_joined

_CHUNK: Final = 131_072
_ROW_BYTES: Final = 16
_WORTH_SORTING: Final = 1_024  # fewer distinct keys are looked up one by one, in what is known of those before
_SAMPLE: Final = 2_048
_DISTINCT: Final = 0.98
_NO_KEY: Final = pa.scalar(-1, pa.int32())
_COLUMNS: Final = ("key", "value", "timestamp", "headers")


@dataclass(frozen=True, slots=True)
class ArrowColumns:
    """Rows of one partition. `keys` None: no record has one."""

    keys: pa.Array | None
    values: pa.Array
    headers: pa.Array | None
    timestamps: Sequence[int] | int

    def __len__(self) -> int:
        return len(self.values)

    def encode(self, form: BatchForm, writer: Writer, sequence: int) -> Encoded:
        key_lengths, keys = (NULL_LENGTH * len(self), b"") if self.keys is None else _raw(self.keys)
        value_lengths, values = _raw(self.values)
        headers = None if self.headers is None else [_pairs(row) for row in self.headers.to_pylist()]
        batch = encode_raw(
            len(self), key_lengths, keys, value_lengths, values, self.timestamps, headers,
            form=form, producer_id=writer.producer_id, producer_epoch=writer.epoch, base_sequence=sequence,
            transactional=writer.is_transactional,
        )  # fmt: skip
        return Encoded(batch)


def _raw(column: pa.Array) -> tuple[bytes, memoryview]:
    """The lengths, −1 for null, and the joined bytes. InvalidBatch."""
    lengths = pc.binary_length(column)
    if (pc.min(lengths).as_py() or 0) < 0:
        raise InvalidBatch("A key or a value of the table is shorter than nothing, by the offsets of its column.")
    joined = _joined(column)
    if len(joined) != (pc.sum(lengths).as_py() or 0):  # a null may stand above bytes, as in a field of a null struct
        joined = _joined(pc.fill_null(column, b""))
    lengths = pc.fill_null(lengths, _NO_KEY)
    packed = memoryview(lengths.buffers()[1]).cast("B")[4 * lengths.offset : 4 * (lengths.offset + len(lengths))]
    return bytes(packed), joined


def _joined(column: pa.Array) -> memoryview:
    _, offsets, data = column.buffers()
    if data is None:
        return memoryview(b"")
    ends = memoryview(offsets).cast("B").cast("i")
    first, last = ends[column.offset], ends[column.offset + len(column)]
    return memoryview(data).cast("B")[first:last]


def _pairs(row: Any) -> list[tuple[str, bytes | None]]:
    pairs = [(each["key"], each["value"]) if isinstance(each, dict) else each for each in row or ()]
    return [(str(name), value) for name, value in pairs]


# --- from a table to pieces -------------------------------------------------------------------------------------------


def send_table(bulk: BulkSend, table: Any, partition: int | None, now_ms: int) -> None:
    """Take all rows. TypeError for columns that are none of a record."""
    table = _checked(table, now_ms)
    for start in range(0, table.num_rows, _CHUNK):
        chunk = table.slice(start, _CHUNK).combine_chunks()
        places = pc.add(_count_up().slice(0, chunk.num_rows), pa.scalar(start, pa.int64()))
        for number, rows in _by_partition(bulk, chunk, places, partition):
            for piece in _cut(rows, bulk.options.batch_size):
                size = _bytes(piece)
                _add(bulk, bulk.routes.next_partition(size) if number is None else number, piece, size)


@cache
def _count_up() -> pa.Array:
    return pa.array(range(_CHUNK), pa.int64())


def _checked(table: Any, now_ms: int) -> pa.Table:
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if not isinstance(table, pa.Table):
        raise TypeError(f"send_arrow takes a table or a record batch, not a {type(table).__name__}.")
    unknown = [name for name in table.column_names if name not in _COLUMNS]
    if unknown or "value" not in table.column_names:
        raise TypeError(f"The columns are value, and perhaps key, timestamp, headers; not {table.column_names}.")
    columns = {"value": _binary(table, "value")}
    if "key" in table.column_names:
        columns["key"] = _binary(table, "key")
    columns["timestamp"] = _timestamps(table, now_ms)
    if "headers" in table.column_names:
        columns["headers"] = table["headers"]
    return pa.table(columns)


def _binary(table: pa.Table, name: str) -> pa.ChunkedArray:
    try:
        return table[name].cast(pa.binary())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TypeError(f"The column {name} is of {table[name].type}, not of bytes or text.") from error


def _timestamps(table: pa.Table, now_ms: int) -> Any:
    if "timestamp" not in table.column_names:
        return pa.repeat(pa.scalar(now_ms, pa.int64()), table.num_rows)
    column = table["timestamp"]
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    if not pa.types.is_integer(column.type) or column.null_count:
        raise TypeError(f"The column timestamp is of {column.type}, or has nulls: whole milliseconds are wanted.")
    return column.cast(pa.int64())


def _by_partition(
    bulk: BulkSend, chunk: pa.Table, places: pa.Array, partition: int | None
) -> list[tuple[int | None, pa.Table]]:
    """None: to one partition after the other, as records without keys go."""
    rows = chunk.append_column("place", places)
    if partition is not None:
        return [(partition, rows)]
    if bulk.routes.is_cached and "key" not in chunk.column_names:
        return [(None, rows)]
    parts = _parts(bulk, chunk)
    found: list[tuple[int | None, pa.Table]] = []
    for number in range(bulk.routes.partitions):
        some = rows.filter(pc.equal(parts, number))
        if some.num_rows:
            found.append((number, some.combine_chunks()))
    return found


def _parts(bulk: BulkSend, chunk: pa.Table) -> pa.Array:
    """The partition of each row."""
    routes = bulk.routes
    if not routes.is_cached:
        keys = chunk["key"].to_pylist() if "key" in chunk.column_names else [None] * chunk.num_rows
        return pa.array(map(routes.choose, keys), pa.int32())
    column = chunk["key"].combine_chunks()
    if isinstance(column, pa.Array) and not column.null_count and _hardly_repeats(column):
        return _parts_of_distinct(bulk, column)
    keys = column.dictionary_encode()
    keys = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
    numbers = _parts_of_distinct(bulk, keys.dictionary)
    if keys.null_count:
        sticky = routes.next_partition(bulk.options.batch_size)
        return pc.fill_null(numbers.take(keys.indices), pa.scalar(sticky, pa.int32()))
    return numbers.take(keys.indices)


def _hardly_repeats(keys: pa.Array) -> bool:
    """Whether to look for repetitions would cost more than it spares, by the first of them."""
    some = keys.slice(0, _SAMPLE)
    return bool(pc.count_distinct(some).as_py() > _DISTINCT * len(some))


def _parts_of_distinct(bulk: BulkSend, keys: pa.Array) -> pa.Array:
    """The partition of each key. Those of one length are hashed as they lie beside each other."""
    routes = bulk.routes
    if routes.partitions > MOST_IN_A_BYTE or len(keys) < _WORTH_SORTING:
        return pa.array(partitions_of(keys.to_pylist(), routes.partitions, routes.numbers), pa.int32())
    lengths = pc.binary_length(keys)
    by_length = pc.array_sort_indices(lengths)
    in_order, parts, start = keys.take(by_length), [], 0
    for each in sorted(pc.value_counts(lengths).to_pylist(), key=itemgetter("values")):
        length, count = each["values"], each["counts"]
        joined = _joined(in_order.slice(start, count))
        parts.append(partitions_of_joined(joined, count, length, routes.partitions))
        start += count
    numbers = pa.Array.from_buffers(pa.uint8(), len(keys), [None, pa.py_buffer(b"".join(parts))])
    return numbers.take(pc.array_sort_indices(by_length)).cast(pa.int32())


def _cut(rows: pa.Table, batch_size: int) -> list[pa.Table]:
    if rows.num_rows <= 1 or _bytes(rows) <= batch_size:
        return [rows]
    half = rows.num_rows // 2
    return [*_cut(rows.slice(0, half), batch_size), *_cut(rows.slice(half), batch_size)]


def _bytes(rows: pa.Table) -> int:
    size: int = _ROW_BYTES * rows.num_rows
    for name in ("key", "value"):
        if name in rows.column_names:
            size += pc.sum(pc.binary_length(rows[name])).as_py() or 0
    if "headers" in rows.column_names:
        size += rows["headers"].nbytes
    return size


def _add(bulk: BulkSend, partition: int, rows: pa.Table, size: int) -> None:
    def array(name: str) -> pa.Array | None:
        return rows[name].combine_chunks() if name in rows.column_names else None

    stamps = rows["timestamp"].combine_chunks()
    same = pc.min_max(stamps)
    first, last = same["min"].as_py(), same["max"].as_py()
    timestamps = first if first == last else stamps.to_pylist()
    content = ArrowColumns(array("key"), array("value"), array("headers"), timestamps)
    bulk.add(partition, content, size, rows["place"].to_pylist)
