"""Failures of the demo, as one line for people."""

from __future__ import annotations

from typing import Final

from raylog.errors import RaylogError

_LONGEST: Final = 300


class DemoFailed(Exception):
    """The demo found that something is wrong, and says it in words for people."""


def in_one_line(error: Exception) -> str:
    try:
        text = " ".join(str(error).split())
    except Exception:  # noqa: BLE001  # one of Spark's asks Java for its text, which may have ended
        text = ""
    if not isinstance(error, (DemoFailed, RaylogError)):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
