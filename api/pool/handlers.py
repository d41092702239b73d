"""A pool's handler at work: a function, a class of which each actor makes an object, or a coroutine function of either.

What must stay true: what a handler raises is told apart from what raylog raises around it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any


class Handler:
    """A handler, made for one actor. A coroutine function runs on a loop of its own, in the thread that calls."""

    def __init__(self, given: Any) -> None:
        self._is_made = inspect.isclass(given)
        self.function: Callable[..., Any] = given() if self._is_made else given
        self.is_async = is_coroutine_function(self.function)
        self._loop: asyncio.AbstractEventLoop | None = None

    def __call__(self, *arguments: Any) -> None:
        if self.is_async:
            self._run(self.function(*arguments))
            return
        result = self.function(*arguments)
        if inspect.isawaitable(result):
            if inspect.iscoroutine(result):
                result.close()
            raise TypeError(f"the handler returned {type(result).__name__}: make it a coroutine function (async def)")

    def close(self) -> None:
        """Let an object that was made of a class end, by its own `close`."""
        try:
            close = getattr(self.function, "close", None) if self._is_made else None
            if callable(close):
                result = close()
                if inspect.iscoroutine(result):
                    self._run(result)
        finally:
            if self._loop is not None:
                self._loop.close()

    def _run(self, work: Any) -> None:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(work)


def is_coroutine_function(handler: Any) -> bool:
    """Whether calls have to be awaited. An object may have a coroutine function as its `__call__`."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004 (it is the function that is looked at)
    )


def check_handler(handler: Any) -> None:
    """Raise TypeError where nothing could ever be handled."""
    if not callable(handler):
        raise TypeError(f"A handler is a function, a coroutine function, or a class with __call__; not {handler!r}.")
    if inspect.isclass(handler) and "__call__" not in dir(handler):
        raise TypeError(f"The class {handler.__name__} has no __call__, so its objects handle nothing.")
