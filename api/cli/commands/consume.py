"""`raylog consume`: records on stdout.

What must stay true:
- Data goes to stdout and nothing else does.
- In a group an offset is committed only after its record was written out, so a reader that leaves (`| head`) or an
  interrupt loses none: the next one begins there.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from raylog.api.cli.arguments.argument_types import Partitions
from raylog.api.cli.records.read_range import END, START, ReadRange, Span, parse_range, spans
from raylog.api.cli.records.record_format import record_document, writer
from raylog.api.cli.session.session import Session, connects
from raylog.api.cli.terminal.output import say
from raylog.errors import UnknownGroup, UnknownPartition, UnknownTopic

if TYPE_CHECKING:
    from raylog.api.connection.records import ConsumerRecord, TopicPartition
    from raylog.api.consumer.consumer import Consumer

_POLL_MS: Final = 200.0
_MOST_RECORDS: Final = 5_000
_COMMIT_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 1.0
_ALL: Final = Span(0, None)  # of a partition that was added since


@click.command()
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True)
@click.option("-o", "--offset", metavar="PLACE", help="Where to begin, or A:B.  [default: start; with -g: committed]")
@click.option("-p", "--partitions", type=Partitions(), metavar="0,2,5-7", help="Read these.  [default: all]")
@click.option("-g", "--group", metavar="GROUP", help="Read as a member of this group, and commit.")
@click.option("-n", "--num", type=click.IntRange(min=1), metavar="N", help="End after so many records.")
@click.option("-f", "--format", "pattern", default="%v", metavar="PATTERN", help="json, or a pattern.  [default: '%v']")
@click.option("--follow/--exit-eof", "-F/-e", default=None, help="Wait for more, or end at the end.  [default: wait]")
@click.option("--read-committed", is_flag=True, help="Nothing of transactions that are open or were aborted.")
@connects
@click.pass_obj
def consume(
    session: Session,
    topics: tuple[str, ...],
    offset: str | None,
    partitions: Sequence[int] | None,
    group: str | None,
    num: int | None,
    pattern: str,
    follow: bool | None,
    read_committed: bool,
) -> None:
    """Print records of TOPICs.

    \b
    raylog consume clicks -e                    all there are
    raylog consume clicks -o -10 -e             the last ten of each partition
    raylog consume clicks -o end                what comes from now on
    raylog consume clicks -o @-1h:end           of the last hour
    raylog consume clicks -o 100:200 -p 0 -f '%t %p %o %k %v'
    raylog consume clicks -g billing -f json

    \b
    PLACE is  start, end, 42, +10 (behind the start), -10 (before the end),
              @TIME (2026-01-31T12:00:00Z, milliseconds, -15m), or A:B.
    PATTERN   %t topic      %k key              %T timestamp in ms
              %p partition  %v value (also %s)  %d timestamp as a date
              %o offset     %K %V their sizes   %h headers
              and \\n \\t \\r \\0 \\\\ \\xHH. Without \\n, \\r and \\0 a line's end
              is added. json: an object a line, base64 where a key or value
              is no UTF-8.
    """
    make = _maker(pattern)
    chosen = _range(offset)
    options: dict[str, Any] = {"isolation_level": "read_committed" if read_committed else "read_uncommitted"}
    printer = _Printer(make, num)
    if group is not None:
        _check_for_group(chosen if offset else None, partitions)
        reset = "latest" if chosen.begin.kind == END else "earliest"
        _read_in_group(session, topics, group, follow is not False, printer, options | {"auto_offset_reset": reset})
    else:
        _read_alone(session, topics, partitions, chosen, follow is not False, printer, options)


def _maker(pattern: str) -> Callable[[ConsumerRecord], bytes]:
    if pattern == "json":
        return lambda record: json.dumps(record_document(record), ensure_ascii=False).encode() + b"\n"
    try:
        return writer(pattern)
    except ValueError as error:
        raise click.UsageError(f"-f: {error}.") from None


def _range(offset: str | None) -> ReadRange:
    try:
        return parse_range(offset or START, round(time.time() * 1000))
    except ValueError as error:
        raise click.UsageError(f"-o: {error}.") from None


def _check_for_group(chosen: ReadRange | None, partitions: Sequence[int] | None) -> None:
    if partitions is not None:
        raise click.UsageError("-p does not go with -g: the group shares the partitions out.")
    if chosen is not None and (chosen.until is not None or chosen.begin.kind not in (START, END)):
        raise click.UsageError("With -g, -o is start or end: where to begin what the group has not committed yet.")


class _Printer:
    """Writes records out, up to a number of them."""

    def __init__(self, make: Callable[[ConsumerRecord], bytes], most: int | None) -> None:
        self._make = make
        self._most = most
        self._out = sys.stdout.buffer
        self._count = 0

    @property
    def wanted(self) -> int:
        return _MOST_RECORDS if self._most is None else min(_MOST_RECORDS, self._most - self._count)

    def write(self, records: Iterable[ConsumerRecord]) -> None:
        lines = [self._make(record) for record in records]
        self._count += len(lines)
        self._out.write(b"".join(lines))
        self._out.flush()

    def check_reader(self) -> None:
        """Raise BrokenPipeError as soon as the reader has left, also where there is nothing to write."""
        try:
            fd = sys.stdout.fileno()
        except (OSError, ValueError):
            return
        poll = select.poll()
        poll.register(fd, 0)
        if any(event & select.POLLERR for _, event in poll.poll(0)):
            raise BrokenPipeError(os.strerror(32))


# --- alone --------------------------------------------------------------------------------------------------------


def _read_alone(
    session: Session,
    topics: Sequence[str],
    numbers: Sequence[int] | None,
    chosen: ReadRange,
    follow: bool,
    printer: _Printer,
    options: Mapping[str, Any],
) -> None:
    with session.consumer(auto_offset_reset="earliest", **options) as consumer:
        wanted = spans(chosen, _partitions(consumer, topics, numbers), consumer, follow=follow)
        if numbers is None and chosen.until is None and follow:
            consumer.subscribe(topics)  # with the partitions that are added later
        else:
            consumer.assign(wanted)
        for partition, span in wanted.items():
            consumer.seek(partition, span.begin)
        until = {partition: span.until for partition, span in wanted.items() if span.until is not None}
        while printer.wanted and (_left(consumer, until) if until else True):
            for partition, records in consumer.poll(_POLL_MS, printer.wanted).items():
                span = wanted.get(partition, _ALL)
                printer.write(each for each in records if span.holds(each.offset))
            printer.check_reader()


def _partitions(consumer: Consumer, topics: Sequence[str], numbers: Sequence[int] | None) -> Iterator[TopicPartition]:
    from raylog.api.connection.records import TopicPartition

    for topic in dict.fromkeys(topics):
        there = consumer.partitions_for_topic(topic)
        if there is None:
            raise UnknownTopic(topic)
        for number in sorted(there) if numbers is None else numbers:
            if number not in there:
                raise UnknownPartition(topic, number)
            yield TopicPartition(topic, number)


def _left(consumer: Consumer, until: dict[TopicPartition, int]) -> bool:
    """Whether any partition is not read to its end; those that are need no more fetches."""
    for partition in [each for each, end in until.items() if consumer.position(each) >= end]:
        consumer.pause(partition)
        del until[partition]
    return bool(until)


# --- in a group ---------------------------------------------------------------------------------------------------


def _read_in_group(
    session: Session, topics: Sequence[str], group: str, follow: bool, printer: _Printer, options: Mapping[str, Any]
) -> None:
    place = _Place(session, group)
    with session.consumer(
        group_id=group, client_id=place.client_id, enable_auto_commit=False, **options
    ) as consumer:
        there = list(_partitions(consumer, topics, None))  # a group would wait for a topic that may still come
        ends = {} if follow else consumer.end_offsets(there)
        consumer.subscribe(topics)
        commits = _Commits(consumer)
        try:
            while printer.wanted and not (ends and (_is_at(consumer, ends) or place.is_none(consumer))):
                for partition, records in consumer.poll(_POLL_MS, printer.wanted).items():
                    printer.write(records)
                    commits.note(partition, records[-1].offset + 1)
                printer.check_reader()
                commits.now_and_then()
        except (KeyboardInterrupt, BrokenPipeError):
            commits.commit()
            raise
        commits.commit()


def _is_at(consumer: Consumer, ends: Mapping[TopicPartition, int]) -> bool:
    """Whether what this member has been given is read up to there."""
    mine = consumer.assignment()
    return bool(mine) and all(consumer.position(each) >= ends.get(each, 0) for each in mine)


class _Place:
    """The place of this member in the group: where members are more than partitions it has none, and nothing to wait
    for.
    """

    def __init__(self, session: Session, group: str) -> None:
        self.client_id = f"raylog-consume-{uuid.uuid4().hex[:8]}"  # by which it is found among the members
        self._session = session
        self._group = group
        self._next = time.monotonic()

    def is_none(self, consumer: Consumer) -> bool:
        if consumer.assignment() or time.monotonic() < self._next:
            return False
        self._next = time.monotonic() + _LOOK_SECONDS
        from raylog.groups.rules.group import ASSIGNING

        try:
            found = self._session.cluster.describe_group(self._group, timeout=self._session.timeout)
        except UnknownGroup:  # as long as it has not joined
            return False
        targets = [each.target for each in found.members if each.client_id == self.client_id]
        is_none = found.state != ASSIGNING and bool(targets) and not any(targets)
        if is_none:
            say(f"raylog: other members of {self._group} have all partitions.")
        return is_none


class _Commits:
    """Commits of what has been written out."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._offsets: dict[TopicPartition, int] = {}
        self._next = time.monotonic() + _COMMIT_SECONDS

    def note(self, partition: TopicPartition, offset: int) -> None:
        self._offsets[partition] = offset

    def now_and_then(self) -> None:
        if time.monotonic() >= self._next:
            self.commit()

    def commit(self) -> None:
        """Commit offsets of partitions that are still this member's: the others are read again by their new owners."""
        mine = self._consumer.assignment()
        offsets = {each: offset for each, offset in self._offsets.items() if each in mine}
        self._offsets.clear()
        self._next = time.monotonic() + _COMMIT_SECONDS
        if offsets:
            self._consumer.commit(offsets)
