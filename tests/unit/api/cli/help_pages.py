"""The help of every command, as it stands in docs/command_line.md.

python -m tests.unit.api.cli.help_pages     writes it there anew
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
from click.testing import CliRunner

from raylog.api.cli.program import program

PAGE = Path(__file__).parents[4] / "docs" / "command_line.md"
BEGIN = "<!-- from here on: python -m tests.unit.api.cli.help_pages -->\n"


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of all commands that are not groups."""
    if not isinstance(command, click.Group):
        yield path
        return
    with click.Context(command) as context:
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from commands(inner, (*path, name))


def help_of(path: tuple[str, ...]) -> str:
    return CliRunner().invoke(program, [*path, "--help"], prog_name="raylog", terminal_width=80).stdout


def reference() -> str:
    parts = [f"### raylog {' '.join(path)}\n\n```text\n{help_of(path).rstrip()}\n```\n" for path in commands(program)]
    return "\n".join(["## Reference\n", f"```text\n{help_of(()).rstrip()}\n```\n", *parts])


if __name__ == "__main__":
    before = PAGE.read_text().partition(BEGIN)[0]
    PAGE.write_text(before + BEGIN + "\n" + reference())
