"""`raylog log …`: files of logs, looked at without a cluster; and logs that its brokers have set aside."""

from __future__ import annotations

from typing import Final

import click

from raylog.api.cli.arguments.lazy_group import LazyGroup

_COMMANDS: Final = {
    "dump": "log_dump:dump_command",
    "list-aside": "copies:list_aside",
    "drop-aside": "copies:drop_aside",
}


@click.command(cls=LazyGroup, lazy=_COMMANDS)
def log() -> None:
    """Look into files of logs on this machine, and at logs set aside."""
