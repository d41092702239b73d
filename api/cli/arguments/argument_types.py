"""Argument types of several commands: settings, partitions, places in a log, files that are written."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

import click

_UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_AGO: Final = re.compile(r"-(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_EARLIEST_MS: Final = 10**11  # what is less can only be meant as seconds: 1973 in milliseconds


def pairs(values: Iterable[str], option: str, separator: str = "=") -> dict[str, str]:
    """`key=value` texts as a dictionary. UsageError."""
    found = {}
    for value in values:
        name, sign, rest = value.partition(separator)
        if not sign or not name.strip():
            raise click.UsageError(f"{option} is KEY{separator}VALUE, and not {value!r}.")
        found[name.strip()] = rest.strip() if separator == "=" else rest
    return found


def numbers(text: str) -> list[int]:
    """`0,2,5-7`. UsageError."""
    found: list[int] = []
    for part in text.split(","):
        first, sign, last = part.strip().partition("-")
        if not first.isdecimal() or (sign and not last.isdecimal()):
            raise click.UsageError(f"Partitions are given as 0,2,5-7, and not as {text!r}.")
        found += range(int(first), int(last if sign else first) + 1)
    return sorted(set(found))


class Partitions(click.ParamType[Any]):
    """Numbers of partitions: 0,2,5-7."""

    name = "partitions"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return numbers(value)
        except click.UsageError as error:
            self.fail(error.message, param, ctx)


class WrittenFile(click.Path):
    """A file that is written when long work is over; a folder that is not there is told before it begins."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, writable=True, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = super().convert(value, param, ctx)
        folder = Path(str(path)).absolute().parent
        if not folder.is_dir():
            self.fail(f"there is no folder {str(folder)!r}.", param, ctx)
        if not os.access(folder, os.W_OK):
            self.fail(f"nothing may be written in the folder {str(folder)!r}.", param, ctx)
        return path


def moment(text: str, now_ms: int) -> int:
    """Milliseconds since 1970. A number of them or of seconds, a date with or without a time, or `-15m` ago.

    ValueError.
    """
    if match := _AGO.fullmatch(text):
        return now_ms - round(float(match[1]) * _UNITS[match[2]])
    if text.isdecimal():
        number = int(text)
        return number if number >= _EARLIEST_MS else number * 1000
    try:
        read = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise ValueError(f"{text!r} is no time: write 2026-01-31T12:00:00Z, milliseconds since 1970, or -15m") from None
    return round((read if read.tzinfo else read.replace(tzinfo=timezone.utc)).timestamp() * 1000)
