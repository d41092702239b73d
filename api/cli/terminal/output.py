"""Output of commands: tables for people, one JSON document for programs.

A table on a terminal is drawn by rich, which folds what is too wide. Elsewhere its lines are whole, aligned with
spaces, for grep and awk. JSON has the names that docs/command_line.md lists; −1 stands for what is not known.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal

import click

if TYPE_CHECKING:
    from rich.console import Console

TABLE: Final = "table"
JSON: Final = "json"
_GAP: Final = "  "
_SHORT: Final = 20  # what is no longer than this stays in one line, where longer things are folded
_KIB: Final = 1024


def formatted(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option `--format`, passed on as `output_format`, to a command that shows something."""
    return click.option(
        "--format",
        "output_format",
        type=click.Choice([TABLE, JSON]),
        default=TABLE,
        show_default=True,
        help="A table for people, or JSON for programs.",
    )(command)


def show_json(document: object) -> None:
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def show_one(output_format: str, document: object, line: str) -> None:
    """Show what has become of one thing."""
    if output_format == JSON:
        show_json(document)
    else:
        click.echo(line)


@contextmanager
def one_by_one(output_format: str) -> Iterator[Callable[[dict[str, Any], str], None]]:
    """Yield a function that tells what is done with each thing, for commands that change one after the other.

    As JSON it is a list at the end; where one fails, of those before it.
    """
    done: list[dict[str, Any]] = []

    def tell(document: dict[str, Any], line: str) -> None:
        done.append(document)
        if output_format != JSON:
            click.echo(line)

    has_failed = True
    try:
        yield tell
        has_failed = False
    finally:
        if output_format == JSON and (done or not has_failed):
            show_json(done)


def show_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, numbers: Sequence[str] = ()) -> None:
    """`numbers`: the columns that are aligned to the right."""
    cells = [[str(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _draw(columns, cells, numbers)
    else:
        _write(columns, cells, numbers)


def show_facts(facts: Sequence[tuple[str, object]]) -> None:
    """Names and what belongs to them, one a line."""
    width = max((len(name) for name, _ in facts), default=0)
    for name, fact in facts:
        click.echo(f"{click.style(name.ljust(width), bold=True)}{_GAP}{fact}")


def say(text: str) -> None:
    """Tell the person something, beside the data."""
    click.echo(text, err=True)


def console(**options: Any) -> Console:
    """rich's, but a reader that has left is a BrokenPipeError here too, and no end of the process with code 1."""
    from rich.console import Console

    class _Console(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    return _Console(highlight=False, **options)


def _draw(columns: Sequence[str], cells: list[list[str]], numbers: Sequence[str]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for place, column in enumerate(columns):
        is_short = max((len(row[place]) for row in cells), default=0) <= _SHORT
        justify: Literal["right", "left"] = "right" if column in numbers else "left"
        table.add_column(column.upper(), justify=justify, overflow="fold", no_wrap=is_short)
    for row in cells:
        table.add_row(*map(Text, row))
    console().print(table)


def _write(columns: Sequence[str], cells: list[list[str]], numbers: Sequence[str]) -> None:
    lines = [[column.upper() for column in columns], *cells]
    widths = [max(len(line[place]) for line in lines) for place in range(len(columns))]
    right = [column in numbers for column in columns]
    for line in lines:
        padded = [
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(line, widths, right, strict=True)
        ]
        click.echo(_GAP.join(padded).rstrip())


# --- single things in words ---------------------------------------------------------------------------------------


def size(count: int) -> str:
    """Bytes, as people read them."""
    if count < 0:
        return "-"
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < _KIB:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= _KIB
    return f"{amount:.1f} TiB"


def known(number: int | None) -> str:
    return "-" if number is None or number < 0 else str(number)


def listed(items: Iterable[object]) -> str:
    return ",".join(map(str, items)) or "-"


def yes(flag: bool) -> str:
    return "yes" if flag else "no"
