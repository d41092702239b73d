"""Telling people what a client waits for and why, while errors that may pass by themselves keep it waiting.

    a wait lasts for 3 s ──► one line in the log ──10 s──► one line ──► … until it is over

Programs find the lines in their log; a command shows its log on stderr. All waits of one client share one line, which
names the longest wait.

What must stay true: as long as nothing fails, no object is made and no timer runs.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from typing import Final

from raylog.errors import RaylogError

FIRST_SECONDS: Final = 3.0
AGAIN_SECONDS: Final = 10.0
NO_ANSWER: Final = "there is no answer yet"

_log = logging.getLogger(__name__)


class WaitNotices:
    """The waits of one client, by the name of what is waited for. `now` is monotonic."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._waits: dict[str, tuple[float, str]] = {}  # since when, and why
        self._told_at = -math.inf

    def waits(self, what: str, why: RaylogError | str, since: float | None = None) -> None:
        """Note that this is waited for, or still is. `since`: when that began; None: now."""
        began = self._waits[what][0] if what in self._waits else self._now() if since is None else since
        self._waits[what] = began, reason_of(why)

    def over(self, what: str) -> None:
        self._waits.pop(what, None)

    def only(self, waits: Mapping[str, str]) -> None:
        """Note that these are all waits there are, with their reasons."""
        for what in self._waits.keys() - waits.keys():
            self.over(what)
        for what, why in waits.items():
            self.waits(what, why)

    def seconds_left(self) -> float | None:
        """Return the seconds until a line is due; None: nothing is waited for."""
        if not self._waits:
            return None
        due = max(min(self._waits.values())[0] + FIRST_SECONDS, self._told_at + AGAIN_SECONDS)
        return max(0.0, due - self._now())

    def tell_if_due(self) -> None:
        if self.seconds_left() == 0.0:
            self._told_at = self._now()
            what, (began, why) = min(self._waits.items(), key=lambda each: each[1][0])
            others = len(self._waits) - 1
            more = f" and {others} more" if others else ""
            _log.warning("Has waited %.0f s for %s%s: %s", self._told_at - began, what, more, why)


class LoopNotices(WaitNotices):
    """Waits on an event loop, where a timer runs while something is waited for."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        super().__init__(self._loop.time)

    def waits(self, what: str, why: RaylogError | str, since: float | None = None) -> None:
        super().waits(what, why, since)
        if self._timer is None:
            self._look()

    def over(self, what: str) -> None:
        super().over(what)
        if self.seconds_left() is None:
            self.close()

    def close(self) -> None:
        """End all waits."""
        self._waits.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        self.tell_if_due()
        left = self.seconds_left()
        if left is not None:
            self._timer = self._loop.call_later(left, self._look)


class Wait:
    """One wait on an event loop: for an answer that is asked for again and again. It begins when it is made, and ends
    with its `with`."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._began = asyncio.get_running_loop().time()
        self._notices: LoopNotices | None = None

    def failed(self, error: RaylogError | str) -> None:
        """Note that an attempt has failed and that it goes on waiting."""
        if self._notices is None:
            self._notices = LoopNotices()
        self._notices.waits(self._what, error, self._began)

    def __enter__(self) -> Wait:
        return self

    def __exit__(self, *_: object) -> None:
        if self._notices is not None:
            self._notices.close()


def reason_of(why: RaylogError | str) -> str:
    """Return why something waits, in one line."""
    text = why if isinstance(why, str) else why.describe()
    if isinstance(why, RaylogError) and not type(why).__name__.startswith("_"):  # those are no names for people
        text = f"{type(why).__name__}: {text}"
    return " ".join(text.split())
