"""Arguments under their former names: they still work for a release, with a DeprecationWarning.

    @formerly(group="group_id")
    def describe_group(self, group_id: str) -> …

Type checkers see the present names only.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")


def formerly(**present: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Let a function take arguments by their former names. TypeError where an argument is given under both."""

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @functools.wraps(function)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            given: dict[str, Any] = kwargs
            if not present.keys().isdisjoint(given):
                given = _renamed(function.__name__, given, present)
            return function(*args, **given)

        return call

    return decorate


def _renamed(function: str, given: dict[str, Any], present: dict[str, str]) -> dict[str, Any]:
    renamed: dict[str, Any] = {}
    for name, value in given.items():
        now = present.get(name, name)
        if now in renamed or (now != name and now in given):
            raise TypeError(f"{function}() got {now!r} twice: {name!r} is its former name.")
        if now != name:
            said = f"{function}({name}=…) is {function}({now}=…) now. The former name goes with the next release."
            warnings.warn(said, DeprecationWarning, stacklevel=3)
        renamed[now] = value
    return renamed
