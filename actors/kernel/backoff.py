"""Pauses before the next attempt at what has failed.

What must stay true:
- The full length of a pause doubles with each failure in a row, from `first` up to `longest`.
- A pause lies between half of its full length and all of it, by chance. So those that failed together do not all come
  back together, none waits longer than `longest`, and before that none waits less than the time before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from random import Random

_MOST_DOUBLINGS: Final = 60  # beyond that every pause is at its longest, and a power of 2 would be no float any more


class Backoff:
    """Pauses in the unit of `first` and `longest`."""

    __slots__ = ("_first", "_longest", "_random", "failures")

    def __init__(self, first: float, longest: float, random: Random) -> None:
        self.failures = 0  # in a row
        self._first = first
        self._longest = longest
        self._random = random

    def next(self) -> float:
        """Count a failure, and return how long to wait after it."""
        self.failures += 1
        return self.after(self.failures)

    def reset(self) -> None:
        """Begin with the first pause again: an attempt has succeeded."""
        self.failures = 0

    def after(self, failures: int) -> float:
        """Return how long to wait after so many failures in a row, for callers that count them."""
        return self.full(failures) * (0.5 + 0.5 * self._random.random())

    def full(self, failures: int) -> float:
        """Return the longest that `after` may return for so many failures."""
        return min(self._longest, self._first * 2.0 ** min(failures - 1, _MOST_DOUBLINGS))
