"""A dump as text for people: one line a batch, at 80 to 120 columns, nothing that a terminal could stumble over.

Numbers are plain, so that they can be pasted into the next command. Times are UTC. What is wrong stands in lines of its
own that begin with `!!`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from functools import singledispatchmethod
from typing import Any, Final, TypeAlias

from raylog.storage.dump.events import (
    AbortedSeen,
    BatchSeen,
    CheckpointSeen,
    Event,
    FileBegun,
    FileListed,
    LogEnded,
    Note,
    OffsetEntrySeen,
    Problem,
    ProducerSeen,
    RecordSeen,
    ReplicaSeen,
    TimeEntrySeen,
    Total,
)
from raylog.storage.format.record_batch import MAGIC_COLUMNS, NO_TIMESTAMP

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_SHOWN_CHARACTERS: Final = 60  # of a key, value or header, unless all is wanted
_LAYOUT_CHARACTERS: Final = frozenset("\t\n\r")  # not printable, but text; they are shown escaped

# What a piece of text is, for whoever has colours.
Paint: TypeAlias = Callable[[str, str], str]


def no_paint(text: str, style: str) -> str:  # noqa: ARG001
    return text


def iso_time(timestamp: int, timespec: str = "milliseconds") -> str:
    """The time in UTC, without the zone; `-` where there is none, the number where no calendar reaches it."""
    if timestamp == NO_TIMESTAMP:
        return "-"
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp)
    except OverflowError:
        return str(timestamp)
    return moment.replace(tzinfo=None).isoformat(timespec=timespec)


def time_span(milliseconds: int) -> str:
    """Return a span in at most six characters, if it is below a few years."""
    if milliseconds == 0:
        return ""
    if abs(milliseconds) < 1000:
        return f"{milliseconds:+}ms"
    for unit, size in (("s", 1000), ("m", 60_000), ("h", 3_600_000)):
        if abs(milliseconds) < size * 100:
            return f"{milliseconds / size:+.1f}{unit}"
    return f"{milliseconds // 86_400_000:+}d"


def shown_bytes(data: bytes | None, *, full: bool = False) -> str:
    """Text in quotes if it is text, else hex; long ones are cut and say how long they are."""
    if data is None:
        return "null"
    limit = len(data) if full else _SHOWN_CHARACTERS
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = None
    if text is not None and all(char.isprintable() or char in _LAYOUT_CHARACTERS for char in text):
        shown, cut = json.dumps(text[:limit], ensure_ascii=False), len(text) > limit
    else:
        shown, cut = f"0x{data[: limit // 2 if not full else limit].hex()}", len(data) > limit // 2 and not full
    return f"{shown}... ({len(data)} bytes)" if cut else shown


def harmless(text: str) -> str:
    """Return the text with everything escaped that a terminal would take for more than text."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _counted(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _or_dash(number: int | None) -> str:
    return "-" if number is None or number < 0 else str(number)


class TextLines:
    """The lines of one run. Column widths follow the file; the head of a table is printed once a file."""

    def __init__(self, *, full: bool = False, paths: bool = False, paint: Paint = no_paint) -> None:
        """`paths`: name the file in every problem, for output that has nothing else."""
        self._full = full
        self._paths = paths
        self._paint = paint
        self._table: str = ""
        self._position_width = self._offsets_width = 0

    def lines(self, event: Event) -> Iterator[str]:
        yield from self._lines(event)

    @singledispatchmethod
    def _lines(self, event: Event) -> Iterator[str]:
        raise TypeError(f"{type(event).__name__} has no text")

    def _head(self, head: str) -> Iterator[str]:
        """The head of a table, unless the lines before belong to it."""
        if self._table != head:
            self._table = head
            yield self._paint(head, "faint")

    # --- directories and files ---

    @_lines.register
    def _replica(self, replica: ReplicaSeen) -> Iterator[str]:
        name = "a replica of an unknown topic"
        if replica.topic is not None:
            name = harmless(f"topic {replica.topic}, partition {replica.partition}")
        yield ""
        yield self._paint(f"{replica.path}: {name}", "title")
        ended = "closed cleanly" if replica.closed_cleanly else "open, or not closed cleanly"
        yield f"  {_counted(replica.segments, 'segment', 'segments')}, {replica.log_bytes} bytes of batches; {ended}"
        marks = (replica.log_start_offset, replica.high_watermark, replica.recovery_point)
        start, high, recovery = map(_or_dash, marks)
        yield f"  at the last checkpoint: log start {start}, high watermark {high}, recovery point {recovery}"
        if replica.quarantined:
            yield self._paint("  !! QUARANTINED: it serves nothing until it has been fetched again", "problem")
        self._table = ""

    @_lines.register
    def _listed(self, listed: FileListed) -> Iterator[str]:
        yield from self._head(f"  {'bytes':>10}  {'modified (UTC)':<19}  file")
        modified = iso_time(listed.modified_ms, "seconds")
        yield f"  {listed.bytes:>10}  {modified}  {listed.path.rpartition('/')[2]:<38} {listed.holds}"

    @_lines.register
    def _file(self, file: FileBegun) -> Iterator[str]:
        yield ""
        yield f"{self._paint(file.path, 'title')}  {file.bytes} bytes, {file.holds}"
        self._table = ""
        # An offset is rarely wider than what the file could number at 61 bytes a record.
        widest = len(str((file.base_offset or 0) + file.bytes // 61))
        self._position_width = max(8, len(str(file.bytes)))
        self._offsets_width = max(9, 2 * widest + 1)

    # --- batches and records ---

    @_lines.register
    def _batch(self, batch: BatchSeen) -> Iterator[str]:
        yield from self._head(
            f"{'position':>{self._position_width}} {'offsets':<{self._offsets_width}} count   bytes epoch"
            f" codec  {'time (UTC)':<23} span   crc producer, flags"
        )
        crc = "ok " if batch.crc_ok else self._paint("BAD", "problem")
        offsets = _span(batch.base_offset, batch.last_offset)
        span = time_span(batch.max_timestamp - batch.base_timestamp)
        yield (
            f"{batch.position:>{self._position_width}} {offsets:<{self._offsets_width}} {batch.records:>5}"
            f" {batch.bytes:>7} {batch.leader_epoch:>5} {batch.codec:<6} {iso_time(batch.base_timestamp):<23}"
            f" {span:<6} {crc} {_producer_and_flags(batch)}"
        ).rstrip()

    @_lines.register
    def _record(self, record: RecordSeen) -> Iterator[str]:
        key, value = (shown_bytes(data, full=self._full) for data in (record.key, record.value))
        time = f"{iso_time(record.timestamp)}Z ({record.timestamp})"
        line = f"    {record.offset}  {time}  key {key}  value {value}"
        if record.headers:
            fields = ((name.encode(), data) for name, data in record.headers)
            pairs = (f"{shown_bytes(name)}: {shown_bytes(data, full=self._full)}" for name, data in fields)
            line += f"  headers {{{', '.join(pairs)}}}"
        yield line
        if record.decoded is not None:
            yield f"        {harmless(record.decoded)}"

    @_lines.register
    def _log_end(self, log: LogEnded) -> Iterator[str]:
        problems = _counted(log.problems, "problem", "problems")
        if log.problems:
            problems = self._paint(problems, "problem")
        found = f"{_counted(log.batches, 'batch', 'batches')}, {_counted(log.records, 'record', 'records')}"
        yield f"  {found}, {problems}; offset {log.next_offset} comes next"

    # --- the files beside ---

    @_lines.register
    def _offset_entry(self, entry: OffsetEntrySeen) -> Iterator[str]:
        yield from self._head(f"  {'offset':>20} {'position':>10}")
        yield f"  {entry.offset:>20} {entry.position:>10}"

    @_lines.register
    def _time_entry(self, entry: TimeEntrySeen) -> Iterator[str]:
        yield from self._head(f"  {'offset':>20} {'timestamp':>14}  largest until then (UTC)")
        yield f"  {entry.offset:>20} {entry.timestamp:>14}  {iso_time(entry.timestamp)}"

    @_lines.register
    def _aborted(self, aborted: AbortedSeen) -> Iterator[str]:
        yield from self._head(f"  {'producer':>12} {'aborted offsets':<25} last stable offset at its end")
        offsets = _span(aborted.first_offset, aborted.last_offset)
        yield f"  {aborted.producer_id:>12} {offsets:<25} {aborted.last_stable_offset}"

    @_lines.register
    def _producer(self, producer: ProducerSeen) -> Iterator[str]:
        yield from self._head(
            f"  {'producer':>12} epoch last seq last offset txn start coord {'last seen (UTC)':<23} seq@offset"
        )
        batches = " ".join(f"{_span(batch[0], batch[1])}@{batch[2]}" for batch in producer.batches)
        yield (
            f"  {producer.producer_id:>12} {producer.epoch:>5} {_or_dash(producer.last_sequence):>8}"
            f" {_or_dash(producer.last_offset):>11} {_or_dash(producer.transaction_start):>9}"
            f" {_or_dash(producer.coordinator_epoch):>5} {iso_time(producer.last_seen_ms):<23} {batches}"
        ).rstrip()

    @_lines.register
    def _checkpoint(self, checkpoint: CheckpointSeen) -> Iterator[str]:
        for name, value in checkpoint.body.items():
            yield from map(harmless, _body_lines(name, value))

    # --- what is to be said of them ---

    @_lines.register
    def _problem(self, problem: Problem) -> Iterator[str]:
        parts = [harmless(part) for part in _problem_parts(problem)]
        if self._paths:  # one line a problem, for whoever greps
            parts = [f"{problem.path}: {' '.join(parts)}"]
        else:
            parts = ["  !! " + parts[0], *("     " + part for part in parts[1:])]
        yield from (self._paint(part, "problem") for part in parts)

    @_lines.register
    def _note(self, note: Note) -> Iterator[str]:
        yield self._paint(f"  {harmless(note.text)}", "faint")

    @_lines.register
    def _total(self, total: Total) -> Iterator[str]:
        files, batches = _counted(total.files, "file", "files"), _counted(total.batches, "batch", "batches")
        looked_at = f"{files}, {batches}, {_counted(total.records, 'record', 'records')}"
        if total.problems:
            yield self._paint(f"{_counted(total.problems, 'problem', 'problems')} in {looked_at}.", "problem")
        elif total.files:
            yield f"All is well in {looked_at}."


def _producer_and_flags(batch: BatchSeen) -> str:
    words = []
    if batch.producer_id >= 0:
        words.append(f"pid {batch.producer_id}/{batch.producer_epoch}")
        if batch.base_sequence >= 0:
            words.append(f"seq {_span(batch.base_sequence, batch.last_sequence)}")
    if batch.marker is not None:
        words.append(f"{batch.marker} coordinator-epoch {batch.coordinator_epoch}")
    elif batch.control:
        words.append("control")
    elif batch.transactional:
        words.append("txn")
    named = (
        (batch.filler, "filler"),
        (batch.emptied, "emptied"),
        (batch.log_append_time, "append-time"),
        (batch.magic != MAGIC_COLUMNS, f"magic-{batch.magic}"),
    )
    return " ".join(words + [name for holds, name in named if holds])


def _problem_parts(problem: Problem) -> list[str]:
    """Return what is wrong, how far it goes, and what comes of it."""
    where = []
    if problem.position is not None:
        where.append(f"byte {problem.position}")
    if problem.offset is not None:
        where.append(f"offset {problem.offset} expected")
    parts = [f"{', '.join(where)}: {problem.reason}" if where else problem.reason]
    if problem.resumes_at is not None and problem.resumes_offset is not None and problem.offset is not None:
        lost = f"{problem.lost_bytes} bytes"
        if problem.resumes_offset > problem.offset:
            lost += f", offsets {_span(problem.offset, problem.resumes_offset - 1)}"
        parts.append(f"Lost: {lost}. Sound again at byte {problem.resumes_at}, offset {problem.resumes_offset}.")
    elif problem.lost_bytes is not None:
        parts.append(f"Nothing sound follows in the {problem.lost_bytes} bytes up to the end.")
    return [*parts, problem.remedy] if problem.remedy else parts


def _body_lines(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield f"  {name}:" if value else f"  {name}: none"
        yield from (f"    {key} = {item}" for key, item in value.items())
    elif isinstance(value, list):
        yield f"  {name}:" if value else f"  {name}: none"
        yield from (f"    {_row_text(name, item)}" for item in value)
    else:
        yield f"  {name}: {value}"


def _row_text(name: str, row: Any) -> str:
    match name, row:
        case "epochs", [epoch, start]:
            return f"epoch {epoch} from offset {start} on"
        case "passes", [end, at_ms]:
            return f"up to offset {end} at {iso_time(at_ms)}Z"
        case "segments", [base, size]:
            return f"segment {base}: {size} bytes"
    return str(row)
