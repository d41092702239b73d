"""Waits until Ray has seen the end of an actor's process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from ray.exceptions import ActorUnavailableError, RayError

_LOOK_AGAIN_SECONDS: Final = 1.0

_log = logging.getLogger(__name__)


async def end_of(process: object, until_over: Callable[[], Awaitable[None]]) -> str:
    """Wait for the end of a process; the result says why. `until_over` makes the call that its actor never answers.

    Such a call fails once Ray sees the end of the process, or that it does not begin. A process that Ray does not reach
    just now may live (rules 26, 27), so it is asked again.
    """
    while True:
        try:
            await until_over()
        except ActorUnavailableError as error:
            _log.info("Ray does not reach %s just now: %r", process, error)
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)
        except RayError as error:
            return (str(error).strip() or repr(error)).splitlines()[-1]
        else:
            return "it says that it is over"
