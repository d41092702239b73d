"""The one line that says what went wrong, and the exit code.

A name that is not there is answered with the one that was probably meant, where the cluster can tell.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Final

import click

from raylog.api.cli.session.session import Session
from raylog.api.cli.terminal.exit_codes import FAILED, USAGE
from raylog.errors import (
    ClusterNotFound,
    ConfigError,
    RayClientRefused,
    RaylogError,
    RayUnreachable,
    UnknownGroup,
    UnknownPartition,
    UnknownTopic,
)

_LONGEST: Final = 400
_LEAST: Final = 100  # of what happened, beside however long an advice
_START: Final = "`raylog start DATA_DIR` starts one."


def failure_of(error: Exception, session: Session) -> tuple[str, int]:
    """The line, without the program's name, and the exit code."""
    if isinstance(error, click.UsageError):
        return _usage(error), USAGE
    if isinstance(error, click.ClickException):
        return error.format_message(), FAILED
    if isinstance(error, RaylogError):
        text = _of_raylog(error, session)
        told = text.removesuffix(error.advice)
        line = _one_line(told, error.advice if told != text else "")
        return line, USAGE if isinstance(error, ConfigError) else FAILED
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        return _one_line(f"{place}{error.strerror or error}"), FAILED
    return _one_line(f"unexpected {type(error).__name__}: {error}. RAYLOG_TRACEBACK=1 shows where."), FAILED


def _usage(error: click.UsageError) -> str:
    text = error.format_message()
    if error.ctx is None:
        return text
    path = error.ctx.command_path.removeprefix("raylog").strip()
    return _one_line(f"{text} See `{error.ctx.command_path} --help`." if not path else f"{path}: {text} See --help.")


def _of_raylog(error: RaylogError, session: Session) -> str:
    if isinstance(error, RayClientRefused):
        return str(error)
    if isinstance(error, RayUnreachable) and error.address == "this machine":
        return f"No Ray is running on this machine, and so no raylog. {_START}"
    if isinstance(error, ClusterNotFound) and session.is_looking:
        return _cluster_not_found(error, session)
    if isinstance(error, UnknownTopic) and not isinstance(error, UnknownPartition):
        return f"{error.describe()} {_meant(error.topic, session.topic_names, 'topic')}".rstrip()
    if isinstance(error, UnknownGroup):
        return f"{error.describe()} {_meant(error.group, session.group_names, 'group')}".rstrip()
    return str(error)


def _cluster_not_found(error: ClusterNotFound, session: Session) -> str:
    others = _asked(session.cluster_names)
    if not others:
        return f"No raylog cluster is running here. {_START}"
    named = ", ".join(map(repr, others))
    return f"No raylog cluster {error.name!r} is running; --cluster may name: {named}."


def _meant(name: str, ask: Callable[[], Iterable[str]], kind: str) -> str:
    there = list(_asked(ask))
    close = difflib.get_close_matches(name, there, n=1)
    if close:
        return f"Did you mean {close[0]!r}?"
    return f"`raylog {kind} list` shows what there is." if there else ""


def _asked(ask: Callable[[], Iterable[str]]) -> list[str]:
    """Return what there is, where that can be found out: the first error is the one that has to be told."""
    try:
        return sorted(ask())
    except Exception:  # noqa: BLE001  # Ray's too, which are not to be imported for this
        return []


def _one_line(text: str, advice: str = "") -> str:
    """Advice is never cut, where the rest of the line is too long."""
    joined, advice = " ".join(text.split()), " ".join(advice.split())
    room = _LONGEST if not advice else max(_LONGEST - len(advice), _LEAST) - 1
    told = joined if len(joined) <= room else joined[: room - 1] + "…"
    return f"{told} {advice}".rstrip()
