"""Input of `raylog produce`: bytes in blocks, cut into records, as columns of many at once.

    stream ──read what is there──► block ──cut at the pattern's end──► texts ──Reader.columns──► Columns

A person at a terminal, and whoever reads what is written now and then, sees each line sent: a read takes what is
there, and does not wait for more.

What must stay true: records come out in the order of the input. A record that is not as the pattern says ends the
reading, after those before it have come out.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import IO, Final, cast

import click

from raylog.api.cli.records.record_format import ParsedColumns, Reader

_BLOCK: Final = 1 << 20


def wholes(files: Iterable[str]) -> Iterator[ParsedColumns]:
    """Each file is one record's value."""
    for name in files or ("-",):
        yield ParsedColumns([sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()])


def records(files: Iterable[str], reader: Reader) -> Iterator[ParsedColumns]:
    """The records of all files. ClickException: which of them is not as the pattern says."""
    for name in files or ("-",):
        if name == "-":
            yield from _records("stdin", sys.stdin.buffer, reader)
        else:
            with Path(name).open("rb") as stream:
                yield from _records(name, stream, reader)


def _records(name: str, stream: IO[bytes], reader: Reader) -> Iterator[ParsedColumns]:
    count = 0
    for texts in _texts(stream, reader.end):
        columns, problem = reader.columns(texts)
        count += len(columns.values)
        if columns.values:
            yield columns
        if problem:
            raise click.ClickException(f"{name}, record {count + 1}: {problem}.")


def _texts(stream: IO[bytes], end: bytes) -> Iterator[list[bytes]]:
    """Yield the text before each `end`, and what is left behind the last one."""
    source = cast("BufferedReader", stream)
    held: list[bytes] = []
    while block := source.read1(_BLOCK):
        if end[-1:] not in block:  # so it holds the end of no record
            held.append(block)
            continue
        texts = b"".join([*held, block]).split(end)
        held = [texts.pop()]
        yield texts
    rest = b"".join(held)
    if rest if end == b"\n" else rest.rstrip(b"\n"):
        yield [rest]
