"""`raylog consume -o`: where reading begins, and where it ends.

    start, end      the first record there is, behind the last one
    42              this offset
    +10, -10        so many behind the start, before the end
    @TIME           the first record at this time or later
    A:B             from A on and before B; either may be left out

What the places mean in numbers is decided once, as of when reading begins; so `start:end` ends.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from raylog.api.cli.arguments.argument_types import moment
from raylog.api.connection.records import OffsetAndTimestamp, TopicPartition

START: Final = "start"
END: Final = "end"
_BEHIND_TIME: Final = re.compile(r"(@[^@]+):(@.+|end|[+-]\d+|)")


@dataclass(frozen=True)
class Place:
    """One end of a range."""

    kind: str  # start, end, at, after (the start), before (the end), time
    number: int = 0


@dataclass(frozen=True)
class ReadRange:
    begin: Place
    until: Place | None = None  # None: for ever


class Offsets(Protocol):
    """The questions that a consumer can be asked."""

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]: ...

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]: ...

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]: ...


def parse_range(text: str, now_ms: int) -> ReadRange:
    """Raises ValueError."""
    begin, until = _split(text)
    first = parse_place(begin, now_ms) if begin else Place(START)
    last = None if until is None else parse_place(until or END, now_ms)
    if last is not None and _is_behind(first, last):
        raise ValueError(f"{text!r} ends before it begins")
    return ReadRange(first, last)


def _is_behind(first: Place, last: Place) -> bool:
    """Whether the one is further behind, whatever the log holds. Places of two kinds cannot be compared without it."""
    if first.kind != last.kind:
        return False
    return first.number < last.number if first.kind == "before" else first.number > last.number


def _split(text: str) -> tuple[str, str | None]:
    """Split at the colon between two places. A time has colons too: behind one there may be a time, end, +N or -N."""
    if text.startswith("@"):
        match = _BEHIND_TIME.fullmatch(text)
        return (match[1], match[2]) if match else (text, None)
    begin, sign, until = text.partition(":")
    return begin, until if sign else None


def parse_place(text: str, now_ms: int) -> Place:
    """Raises ValueError."""
    if text in (START, "beginning", "earliest"):
        return Place(START)
    if text in (END, "latest"):
        return Place(END)
    if text.startswith("@"):
        return Place("time", moment(text[1:], now_ms))
    if text[:1] in ("+", "-") and text[1:].isdecimal():
        return Place("after" if text[0] == "+" else "before", int(text[1:]))
    if text.isdecimal():
        return Place("at", int(text))
    raise ValueError(f"{text!r} is no place: write start, end, 42, +10, -10, @TIME, or two of them as A:B")


@dataclass(frozen=True)
class Span:
    """The records of one partition to read; `until` None: all that comes."""

    begin: int
    until: int | None
    first: int = 0  # what comes before this offset is not meant: it was named, and lay behind the end of the log

    def holds(self, offset: int) -> bool:
        return self.first <= offset and (self.until is None or offset < self.until)


def spans(
    chosen: ReadRange, partitions: Iterable[TopicPartition], ask: Offsets, *, follow: bool
) -> dict[TopicPartition, Span]:
    """Return the offsets to read. Without `follow` reading ends at the present end, if not before."""
    listed = list(partitions)
    starts, ends = ask.beginning_offsets(listed), ask.end_offsets(listed)

    def numbers(place: Place) -> dict[TopicPartition, int]:
        if place.kind == "time":
            found = ask.offsets_for_times(dict.fromkeys(listed, place.number))
            return {each: ends[each] if at is None else at.offset for each, at in found.items()}
        number = _NUMBERS[place.kind]
        return {each: number(place.number, starts[each], ends[each]) for each in listed}

    begins = numbers(chosen.begin)
    until = chosen.until or (None if follow else Place(END))
    untils = numbers(until) if until is not None else {}
    if not follow:
        untils = {each: min(last, ends[each]) for each, last in untils.items()}
    named = chosen.begin.number if chosen.begin.kind == "at" else 0
    return {each: Span(min(max(begins[each], starts[each]), ends[each]), untils.get(each), named) for each in listed}


_NUMBERS: Final[dict[str, Callable[[int, int, int], int]]] = {
    "start": lambda _number, start, _end: start,
    "end": lambda _number, _start, end: end,
    "at": lambda number, _start, _end: number,
    "after": lambda number, start, end: min(start + number, end),
    "before": lambda number, start, end: max(end - number, start),
}
