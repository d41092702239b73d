"""The work of a read's task: ranges of offsets to Arrow tables. Needs pyarrow.

    ranges ──RangeReading──► rows as they are in the log ──decoder──► columns of the values ──► tables

Tables are yielded as they come, so a task of many bytes holds few of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from raylog.actors.machine.cluster_access import ClusterAccess
from raylog.api.data.each_value import BadValue, Decoded
from raylog.api.data.rules.read_columns import ReadColumns
from raylog.api.data.value_decoders import ValueDecoder
from raylog.api.jobs.range_reader import RangeReading
from raylog.api.jobs.rules.offset_ranges import OffsetRange
from raylog.api.jobs.rules.row_schema import ROWS_WITH_HEADERS
from raylog.errors import ValueNotDecoded

_WITHOUT_COLUMNS: Final = "__bsp_stub"  # as Ray Data names it: a table without columns would forget its rows


@dataclass(frozen=True)
class TopicRead:
    """The way that ranges become tables, which is sent to tasks. It holds the clients' secret."""

    access: ClusterAccess
    reads_committed: bool
    fails_on_data_loss: bool
    columns: ReadColumns
    decoder: ValueDecoder | None

    @property
    def schema(self) -> pa.Schema:
        fields = [self._field(name) for name in self.columns.names]
        return pa.schema(fields or [pa.field(_WITHOUT_COLUMNS, pa.null())])

    def project(self, names: Sequence[str]) -> TopicRead:
        return replace(self, columns=self.columns.keep(names))

    def tables(self, pieces: Sequence[OffsetRange]) -> Iterator[pa.Table]:
        """Return at least one, so that columns are known. RecordsLost, RangeNotRead, ValueNotDecoded, BatchError."""
        reading = RangeReading(
            self.access, self.reads_committed, self.fails_on_data_loss, self._has_headers, columns=self._fetched
        )
        yield self.schema.empty_table()
        for piece in pieces:
            for rows in reading.rows(piece):
                yield self._table(rows, piece)

    @property
    def _decodes(self) -> bool:
        return self.decoder is not None and (self.columns.is_decoded or self.decoder.explodes)

    @property
    def _has_headers(self) -> bool:
        return "headers" in self.columns.of_records

    @property
    def _fetched(self) -> tuple[str, ...]:
        """The columns of records that are made: those of the rows, and what decoding needs."""
        also = ("value", "offset") if self._decodes else ("offset",)
        return tuple(dict.fromkeys((*self.columns.of_records, *also)))

    def _field(self, name: str) -> pa.Field:
        if self.decoder is not None and name in self.columns.fields:
            return self.decoder.schema.field(name)
        return ROWS_WITH_HEADERS.field(name)

    def _table(self, rows: pa.RecordBatch, piece: OffsetRange) -> pa.Table:
        found = {name: rows.column(name) for name in self.columns.of_records}
        count = rows.num_rows
        if self.decoder is not None and self._decodes:
            decoded = _decoded(self.decoder, rows, piece)
            if decoded.rows is not None:
                found = {name: column.take(decoded.rows) for name, column in found.items()}
                count = len(decoded.rows)
            found.update(zip(self.decoder.schema.names, decoded.columns, strict=True))
        if not self.columns.names:
            return pa.table([pa.nulls(count)], schema=self.schema)
        return pa.table([found[name] for name in self.columns.names], schema=self.schema)


def _decoded(decoder: ValueDecoder, rows: pa.RecordBatch, piece: OffsetRange) -> Decoded:
    try:
        return decoder.decode(rows.column("value"))
    except BadValue as error:
        offset = rows.column("offset")[error.row].as_py()
        raise ValueNotDecoded(str(piece.place), offset, error.reason) from error
