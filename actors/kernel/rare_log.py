"""A log that outsiders could otherwise fill: at most one line a second, with the number of lines left out."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

_SECONDS: Final = 1.0


class RareLog:
    """Passes on one warning a second. `clock` is monotonic."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
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
