"""The time to wait for a process that begins: the longer, the more often it was too short.

A process that ends is noticed at once. One that is only slow has a busy machine, and whoever begins it anew throws away
what it has done: beside other programs none would ever be up.

What must stay true: the time doubles each time that it was too short, up to `longest`, and is `first` again once it was
enough. Of several that were given the same time, all that are too slow count once.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

_K = TypeVar("_K", bound=Hashable)


class Patience(Generic[_K]):
    """Seconds by key."""

    __slots__ = ("_first", "_longest", "_seconds")

    def __init__(self, first: float, longest: float) -> None:
        self._first = first
        self._longest = longest
        self._seconds: dict[_K, float] = {}

    def of(self, key: _K) -> float:
        return self._seconds.get(key, self._first)

    def was_too_short(self, key: _K, seconds: float) -> None:
        self._seconds[key] = max(self.of(key), min(2 * seconds, self._longest))

    def was_enough(self, key: _K) -> None:
        self._seconds.pop(key, None)
