"""Waits that Ctrl-C ends, whenever it comes."""

from __future__ import annotations

import concurrent.futures
import math
import time
from collections.abc import Callable
from typing import Any, Final

_SLICE_SECONDS: Final = 0.2


def wait_in_slices(
    future: concurrent.futures.Future[Any], timeout: float | None, meanwhile: Callable[[], object] | None = None
) -> bool:
    """Wait in slices, for a signal that comes just before a thread sleeps does not wake it up. Returns whether it is
    done in time.

    A slice in which the process stood still counts with its own length only. The loop stood still too, and needs its
    turns: what it waits for ends by its own time-out, which says more than that the loop was slow. `meanwhile` is
    called after each slice.
    """
    left = math.inf if timeout is None else timeout
    while not future.done():
        if left <= 0:
            return False
        slice_seconds = min(_SLICE_SECONDS, left)
        began = time.monotonic()
        concurrent.futures.wait([future], slice_seconds)
        left -= min(time.monotonic() - began, slice_seconds)
        if meanwhile is not None:
            meanwhile()
    return True
