"""A replica's full disk: since when it has had no room for what is to be appended.

    room ──an append is refused──► full ──an append succeeds, or nothing is refused for a while──► room
                                     └── for so long that a leader asks to be relieved (rule 14)

What must stay true: a disk counts as full only while it goes on refusing. Where nobody appends, nobody is helped by
another leader.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

STAYS_FULL_SECONDS: Final = 10.0
_FORGOTTEN_SECONDS: Final = 3.0  # more than producers, or followers, wait before they try again
_ASK_AGAIN_SECONDS: Final = 5.0


class FullDisk:
    """The room of one replica. `stays_full` is called now and then, while appends are refused for that long."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.stays_full: Callable[[], None] = lambda: None
        self.was_refused = False  # something, and nothing was taken in since
        self._now = now
        self._since = 0.0
        self._last = 0.0
        self._asked = 0.0

    @property
    def is_full(self) -> bool:
        return self.was_refused and self._now() - self._last < _FORGOTTEN_SECONDS

    def refused(self) -> None:
        now = self._now()
        if not self.is_full:
            self.was_refused, self._since = True, now
        self._last = now
        if now - self._since >= STAYS_FULL_SECONDS and now - self._asked >= _ASK_AGAIN_SECONDS:
            self._asked = now
            self.stays_full()

    def took(self) -> None:
        """An append has succeeded. Only needed where `was_refused`: there is one for every batch."""
        self.was_refused = False
