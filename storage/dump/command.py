"""The command: options, output, exit codes."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable
from io import TextIOWrapper
from typing import Any, Final, TextIO

import click

from raylog.storage.dump.events import Event, Total, Unreadable, as_json
from raylog.storage.dump.log import DumpOptions
from raylog.storage.dump.replica import Counts, Dump
from raylog.storage.dump.text import Paint, TextLines, no_paint

_TEXT: Final = "text"
_JSON: Final = "json"
EXIT_WELL: Final = 0
EXIT_PROBLEMS: Final = 1
EXIT_UNREADABLE: Final = 2  # and, as click has it, bad usage
EXIT_INTERRUPTED: Final = 130  # the codes a shell gives to what SIGINT and SIGPIPE have ended
EXIT_CLOSED_PIPE: Final = 141

_STYLES: Final[dict[str, dict[str, Any]]] = {
    "title": {"bold": True},
    "problem": {"fg": "red", "bold": True},
    "faint": {"dim": True},
}


@click.command(
    "dump",
    short_help="Show what is in the files of a replica, or of a broker.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--records", is_flag=True, help="Every record too, not only the batches.")
@click.option("--full", is_flag=True, help="Do not cut long keys, values and headers.")
@click.option(
    "--from-offset",
    metavar="OFFSET",
    type=click.IntRange(min=0),
    default=0,
    help="Begin with the batch that holds this offset.",
)
@click.option("--max-batches", metavar="N", type=click.IntRange(min=1), help="Stop after that many batches.")
@click.option("--verify", is_flag=True, help="Check everything, and tell only what is wrong.")
@click.option(
    "--format",
    "output_format",
    type=click.Choice([_TEXT, _JSON]),
    default=_TEXT,
    show_default=True,
    help="Text for people, or JSON for programs: an object a line, bytes in base64.",
)
def dump_command(
    paths: tuple[str, ...],
    records: bool,
    full: bool,
    from_offset: int,
    max_batches: int | None,
    verify: bool,
    output_format: str,
) -> None:
    """Show what is in PATH: a file of a replica, a replica's directory, or a broker's data directory.

    Nothing is changed or locked, so it may be a replica that is running. What is damaged is named with its byte and the
    offset that was expected there, and what lies behind it is shown.

    With --verify batches are unpacked, and indexes and checkpoints are compared with them. It ends with 1 if anything
    is wrong; every use ends with 2 if a path cannot be read.
    """
    if verify and (from_offset or max_batches is not None):
        raise click.UsageError("--verify looks at everything: it takes neither --from-offset nor --max-batches.")
    run = Dump(DumpOptions(records and not verify, from_offset, max_batches, verify))
    show: Callable[[Event], None] = _show_json
    if output_format == _TEXT:
        show = _text_shower(TextLines(full=full, paths=verify, paint=_paint_for(sys.stdout)), verify)
    ended_as = _show_all(run.events(paths), show)
    sys.exit(_exit_code(run.counts, verify) if ended_as is None else ended_as)


def _show_json(event: Event) -> None:
    print(as_json(event))


def _text_shower(text: TextLines, verify: bool) -> Callable[[Event], None]:
    def show(event: Event) -> None:
        if isinstance(event, Unreadable):
            sys.stdout.flush()  # so that it stands where it belongs if both go to one terminal
            print(f"{event.path}: {event.reason}", file=sys.stderr)
        elif verify or not isinstance(event, Total):
            for line in text.lines(event):
                print(line)

    return show


def _show_all(events: Iterable[Event], show: Callable[[Event], None]) -> int | None:
    """Show them one by one; returns an exit code if something else than their end ended it."""
    if isinstance(sys.stdout, TextIOWrapper):  # records may hold what the terminal's encoding lacks
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        for event in events:
            show(event)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has left. What is still buffered has to go somewhere when the interpreter ends.
        with contextlib.suppress(OSError), open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        return EXIT_CLOSED_PIPE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return None


def _exit_code(counts: Counts, verify: bool) -> int:
    if counts.unreadable:
        return EXIT_UNREADABLE
    return EXIT_PROBLEMS if verify and counts.problems else EXIT_WELL


def _paint_for(stream: TextIO) -> Paint:
    if not stream.isatty() or "NO_COLOR" in os.environ:
        return no_paint
    return lambda text, style: click.style(text, **_STYLES[style])

