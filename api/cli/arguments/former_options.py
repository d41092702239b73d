"""Options of commands under their former names: they still work for a release, and say on stderr what they are now."""

from __future__ import annotations

from collections.abc import Iterator

import click

from raylog.api.cli.terminal.output import say


def formerly(**present: str) -> type[click.Command]:
    """A kind of command: `cls=formerly(replicas="replication-factor")`. What is typed is renamed before it is read."""
    names = {f"--{former}": f"--{now}" for former, now in present.items()}

    class Command(click.Command):
        def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
            return super().parse_args(ctx, list(_renamed(args, names)))

    return Command


def _renamed(args: list[str], names: dict[str, str]) -> Iterator[str]:
    ended = False
    for each in args:
        name, sign, value = each.partition("=")
        ended = ended or each == "--"
        if ended or name not in names:
            yield each
            continue
        say(f"raylog: {name} is {names[name]} now. The former name goes with the next release.")
        yield f"{names[name]}{sign}{value}"
