"""A group of commands whose modules are imported when they are called or listed, and not before."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click


class LazyGroup(click.Group):
    """Commands by name, each given as "module:attribute"."""

    def __init__(self, *args: Any, lazy: Mapping[str, str] | None = None, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._lazy = dict(lazy or {})

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click asks so
        return [*self._lazy, *self.commands]  # as they are listed, and not by the alphabet

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = self._lazy.get(cmd_name)
        if place is None:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = place.partition(":")
        command: click.Command = getattr(import_module(f"raylog.api.cli.commands.{module}"), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """UsageError, with the command that was probably meant."""
        if self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            close = get_close_matches(args[0], self.list_commands(ctx), n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise click.UsageError(f"There is no command {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)
