"""Errors of raylog that Ray has wrapped, as themselves again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from raylog.errors import RaylogError


@contextmanager
def own_errors() -> Iterator[None]:
    """Raise what a task of ours raised, in place of what Ray makes of it."""
    try:
        yield
    except Exception as error:
        own = own_error(error)
        if own is None or own is error:
            raise
        raise own from error


def own_error(error: BaseException | None) -> RaylogError | None:
    while error is not None:
        for each in (error, getattr(error, "cause", None)):
            if isinstance(each, RaylogError):
                return each
        error = error.__cause__
    return None
