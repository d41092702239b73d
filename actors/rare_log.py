"""A log of what strangers cause, which they could otherwise fill: one line a second, and how many were left out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

_SECONDS: Final = 1.0


class RareLog:
    """`clock` is that of the running loop, if none is given."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] | None = None) -> None:
        self._log = log
        self._clock = clock or _loop_time
        self._not_before = 0.0
        self._left_out = 0

    def warning(self, text: str, *arguments: object) -> None:
        now = self._clock()
        if now < self._not_before:
            self._left_out += 1
            return
        self._not_before = now + _SECONDS
        left_out, self._left_out = self._left_out, 0
        if left_out:
            text += " (%d such lines were left out before it.)"
            arguments = (*arguments, left_out)
        self._log.warning(text, *arguments)


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
