"""What administrative calls are called in errors."""

from __future__ import annotations

from collections.abc import Mapping


def as_asked(call: str, arguments: Mapping[str, object]) -> str:
    """What a person has asked for: the call, and the topic or broker that it was about."""
    about = next((arguments[name] for name in ("name", "topic", "broker_id") if name in arguments), None)
    return call if about is None else f"{call}({about!r})"
