"""`raylog log …`: files of logs, looked at without a cluster."""

from __future__ import annotations

import click

from raylog.api.cli.lazy_group import LazyGroup


@click.command(cls=LazyGroup, lazy={"dump": "log_dump:dump_command"})
def log() -> None:
    """Look into the files of logs on this machine's disks."""
