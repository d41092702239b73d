"""`raylog produce`: records from lines, or from files."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import click

from raylog.api.cli.output import say
from raylog.api.cli.record_format import Parsed, Reader
from raylog.api.cli.session import Session, connects

if TYPE_CHECKING:
    from raylog.api.producer.buffer.record_future import RecordFuture
    from raylog.api.producer.producer import Producer

_CHUNK: Final = 1 << 16
_MOST_PENDING: Final = 50_000
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
    records = _wholes(files) if whole else _records(files, reader)
    delivered = _Delivery(verbose)
    session.cluster.describe_topic(topic, timeout=session.timeout)  # before input is taken that would be lost
    with session.producer(**options) as producer:
        try:
            for record in records:
                delivered.await_some(_send(producer, topic, record, fixed, tombstone))
            delivered.await_all(None)
        except KeyboardInterrupt:
            delivered.await_all(_LAST_SECONDS)
            if not quiet:
                say(delivered.in_words(topic))
            raise
    if not quiet:
        say(delivered.in_words(topic))


class _Delivery:
    """What has been sent and not yet settled, in order."""

    def __init__(self, verbose: bool) -> None:
        self._pending: deque[RecordFuture] = deque()
        self._verbose = verbose
        self._count = 0

    def await_some(self, future: RecordFuture) -> None:
        """Settle what can be settled; wait only where too much is under way. Raises why a record has failed."""
        self._pending.append(future)
        while self._pending and (self._pending[0].done() or len(self._pending) > _MOST_PENDING):
            self._settle(None)

    def await_all(self, timeout: float | None) -> None:
        while self._pending:
            self._settle(timeout)

    def in_words(self, topic: str) -> str:
        return f"{self._count} record{'' if self._count == 1 else 's'} written to {topic}."

    def _settle(self, timeout: float | None) -> None:
        metadata = self._pending[0].result(timeout)
        self._pending.popleft()
        self._count += 1
        if self._verbose:
            click.echo(f"{metadata.topic}\t{metadata.partition}\t{metadata.offset}")


def _send(producer: Producer, topic: str, record: Parsed, fixed: Parsed, tombstone: bool) -> RecordFuture:
    value = None if tombstone and not record.value else record.value
    headers = [*(fixed.headers or ()), *(record.headers or ())]
    return producer.send(
        topic,
        value,
        record.key if record.key is not None else fixed.key,
        headers or None,
        record.partition if record.partition is not None else fixed.partition,
        record.timestamp_ms,
    )


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


# --- input --------------------------------------------------------------------------------------------------------


def _wholes(files: Iterable[str]) -> Iterator[Parsed]:
    for name in files or ("-",):
        if name == "-":
            yield Parsed(value=sys.stdin.buffer.read())
        else:
            yield Parsed(value=Path(name).read_bytes())


def _records(files: Iterable[str], reader: Reader) -> Iterator[Parsed]:
    """UsageError: which line is not as the pattern says."""
    for name in files or ("-",):
        if name == "-":
            yield from _read("stdin", sys.stdin.buffer, reader)
        else:
            with Path(name).open("rb") as stream:
                yield from _read(name, stream, reader)


def _read(name: str, stream: IO[bytes], reader: Reader) -> Iterator[Parsed]:
    for number, text in enumerate(_pieces(stream, reader.end), 1):
        try:
            yield reader.read(text)
        except ValueError as error:
            raise click.ClickException(f"{name}, record {number}: {error}.") from None


def _pieces(stream: IO[bytes], end: bytes) -> Iterator[bytes]:
    """What stands before each `end`, and what is left behind the last one."""
    if end == b"\n":  # line by line, so that a person at a terminal sees each one sent
        for line in stream:
            yield line.removesuffix(b"\n")
        return
    rest = b""
    while chunk := stream.read(_CHUNK):
        *pieces, rest = (rest + chunk).split(end)
        yield from pieces
    if rest.rstrip(b"\n"):
        yield rest
