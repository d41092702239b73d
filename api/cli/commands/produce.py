"""`raylog produce`: records from lines, or from files."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from raylog.api.cli.records.record_format import Parsed, ParsedColumns, Reader
from raylog.api.cli.records.record_input import records, wholes
from raylog.api.cli.session.session import Session, connects
from raylog.api.cli.terminal.output import say
from raylog.api.connection.records import RecordMetadata
from raylog.errors import BulkSendFailed, RaylogError

if TYPE_CHECKING:
    from raylog.api.producer.buffer.record_future import RecordFuture
    from raylog.api.producer.bulk_send import BulkFuture
    from raylog.api.producer.producer import Producer

_WORTH_COLUMNS: Final = 100  # fewer records at once share a batch with those before and behind them
_MOST_PENDING: Final = 200_000
_LAST_SECONDS: Final = 10.0  # after an interrupt, for what was taken


@click.command(short_help="Write records to a topic: lines of stdin, or files.")
@click.argument("topic")
@click.argument("files", metavar="[FILE]...", nargs=-1, type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("-k", "--key", metavar="KEY", help="The key of each record.")
@click.option("-K", "--key-delimiter", metavar="TEXT", help="A line is a key, this text and a value.")
@click.option("-H", "--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header; may be repeated.")
@click.option("-f", "--format", "pattern", metavar="PATTERN", help=r"What a record looks like.  [default: '%v\n']")
@click.option("-p", "--partition", type=click.IntRange(min=0), metavar="N", help="Write to this partition.")
@click.option(
    "-z", "--compression", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]), default="none", help="Codec."
)
@click.option("--acks", type=click.Choice(["0", "1", "all"]), default="all", help="Whose word counts.  [default: all]")
@click.option("-Z", "--tombstone", is_flag=True, help="An empty value is none: a tombstone.")
@click.option("--whole", is_flag=True, help="Each file, or all of stdin, is the value of one record.")
@click.option("-v", "--verbose", is_flag=True, help="Print partition and offset of each record.")
@click.option("-q", "--quiet", is_flag=True, help="Do not say in the end how many there were.")
@connects
@click.pass_obj
def produce(
    session: Session,
    topic: str,
    files: tuple[str, ...],
    key: str | None,
    key_delimiter: str | None,
    headers: tuple[str, ...],
    pattern: str | None,
    partition: int | None,
    compression: str,
    acks: str,
    tombstone: bool,
    whole: bool,
    verbose: bool,
    quiet: bool,
) -> None:
    """Write records to TOPIC: one for each line of the FILEs, or of stdin.

    \b
    echo hello | raylog produce greetings
    raylog produce users -K : < users.txt          key:value in each line
    raylog produce clicks -f '%k\\t%p\\t%v\\n' a.tsv b.tsv
    raylog produce images -k logo --whole logo.png

    A pattern has %k (key), %v (value), %p (partition), %T (timestamp in
    milliseconds), %h (headers as a=b,c=d) and text between them, with \\n \\t \\r
    \\0 \\\\ \\xHH. Ctrl-C ends it when what was read is delivered.
    """
    if pattern is not None and key_delimiter is not None:
        raise click.UsageError("-f and -K say the same thing in two ways.")
    try:
        reader = Reader(_pattern(pattern, key_delimiter))
    except ValueError as error:
        raise click.UsageError(f"-f: {error}.") from None
    fixed = Parsed(key=None if key is None else key.encode(), partition=partition, headers=_headers(headers))
    options: dict[str, Any] = {"acks": acks if acks == "all" else int(acks)}
    if compression != "none":
        options["compression_type"] = compression
    given = wholes(files) if whole else records(files, reader)
    delivered = _Delivery(verbose)
    session.cluster.describe_topic(topic, timeout=session.timeout)  # before input is taken that would be lost
    with session.producer(**options) as producer:
        sending = _Sending(producer, topic, fixed, tombstone, verbose, delivered)
        try:
            for columns in given:
                sending.send(columns)
            delivered.await_all(None)
        except KeyboardInterrupt:
            delivered.await_all(_LAST_SECONDS)
            if not quiet:
                say(delivered.in_words(topic))
            raise
    if not quiet:
        say(delivered.in_words(topic))


class _Delivery:
    """Records that have been sent and are not yet settled, in order."""

    def __init__(self, verbose: bool) -> None:
        self._pending: deque[tuple[RecordFuture | BulkFuture, int]] = deque()
        self._held = 0  # records of those
        self._verbose = verbose
        self._count = 0

    def await_some(self, future: RecordFuture | BulkFuture, count: int) -> None:
        """Settle what can be settled; wait only where too much is under way. Raises why a record has failed."""
        self._pending.append((future, count))
        self._held += count
        while self._pending and (self._pending[0][0].done() or self._held > _MOST_PENDING):
            self._settle(None)

    def await_all(self, timeout: float | None) -> None:
        while self._pending:
            self._settle(timeout)

    def in_words(self, topic: str) -> str:
        return f"{self._count} record{'' if self._count == 1 else 's'} written to {topic}."

    def _settle(self, timeout: float | None) -> None:
        future, count = self._pending[0]
        try:
            metadata = future.result(timeout)
        except BulkSendFailed as error:
            if isinstance(error.__cause__, RaylogError):
                raise error.__cause__ from None
            raise
        self._pending.popleft()
        self._held -= count
        self._count += count
        if self._verbose and isinstance(metadata, RecordMetadata):
            click.echo(f"{metadata.topic}\t{metadata.partition}\t{metadata.offset}")


class _Sending:
    """Columns of records on their way to a topic. `fixed`: what all records have that their text does not say."""

    def __init__(
        self, producer: Producer, topic: str, fixed: Parsed, tombstones: bool, one_by_one: bool, delivery: _Delivery
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._fixed = fixed
        self._tombstones = tombstones
        self._one_by_one = one_by_one
        self._delivery = delivery

    def send(self, columns: ParsedColumns) -> None:
        if self._tombstones:
            columns = columns._replace(values=[value or None for value in columns.values])
        if self._one_by_one or len(columns.values) < _WORTH_COLUMNS:
            for record in columns.rows():
                self._send_one(record)
        elif columns.partitions is None:
            self._send_many(columns, self._fixed.partition)
        else:
            for partition, places in _by_partition(columns.partitions).items():
                self._send_many(columns.part(places), partition)

    def _send_one(self, record: Parsed) -> None:
        fixed = self._fixed
        sent = self._producer.send(
            self._topic,
            record.value,
            record.key if record.key is not None else fixed.key,
            [*(fixed.headers or ()), *(record.headers or ())] or None,
            record.partition if record.partition is not None else fixed.partition,
            record.timestamp_ms,
        )
        self._delivery.await_some(sent, 1)

    def _send_many(self, columns: ParsedColumns, partition: int | None) -> None:
        count, fixed = len(columns.values), self._fixed
        keys: Sequence[bytes] | None = columns.keys
        if keys is None and fixed.key is not None:
            keys = [fixed.key] * count
        headers = columns.headers
        if fixed.headers:
            headers = [[*fixed.headers, *own] for own in columns.headers or [[]] * count]
        sent = self._producer.send_many(self._topic, columns.values, keys, columns.timestamps, headers, partition)
        self._delivery.await_some(sent, count)


def _by_partition(partitions: Sequence[int]) -> dict[int, list[int]]:
    """The places of the records of each partition, in their order."""
    found: dict[int, list[int]] = {}
    for place, partition in enumerate(partitions):
        found.setdefault(partition, []).append(place)
    return found


def _pattern(pattern: str | None, key_delimiter: str | None) -> str:
    if key_delimiter is not None:
        escaped = key_delimiter.replace("%", "%%")
        return f"%k{escaped}%v\\n"
    return pattern if pattern is not None else "%v\\n"


def _headers(texts: Iterable[str]) -> list[tuple[str, bytes]]:
    found = []
    for text in texts:
        sign = next((each for each in text if each in "=:"), None)
        if sign is None or text.startswith(sign):
            raise click.UsageError(f"-H is NAME=VALUE, and not {text!r}.")
        name, _, value = text.partition(sign)
        found.append((name, value.encode()))
    return found
