"""Methods of a client for asyncio, made from the methods of the client for threads.

    class AsyncProducer:
        metrics = at_once(Producer.metrics)          # a method with the same parameters and documentation
        send_arrow = on_thread(Producer.send_arrow)  # a coroutine function with them

What must stay true: `at_once` is only for methods that never wait for another thread, a process or the network.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

_T = TypeVar("_T")
_P = ParamSpec("_P")
_Client = TypeVar("_Client")
_Inner_co = TypeVar("_Inner_co", covariant=True)


class Wrapping(Protocol[_Inner_co]):
    """A client for asyncio."""

    def _started(self) -> _Inner_co:
        """Return the client for threads. ProducerClosed or ConsumerClosed: it was not started."""


def at_once(method: Callable[Concatenate[_Client, _P], _T]) -> Callable[Concatenate[Wrapping[_Client], _P], _T]:
    """Return a method that calls this one directly, on the event loop."""

    @wraps(method)
    def call(self: Wrapping[_Client], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return method(self._started(), *args, **kwargs)

    return call


def on_thread(
    method: Callable[Concatenate[_Client, _P], _T],
) -> Callable[Concatenate[Wrapping[_Client], _P], Coroutine[Any, Any, _T]]:
    """Return a coroutine function that calls this method on another thread."""

    @wraps(method)
    async def call(self: Wrapping[_Client], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return await asyncio.to_thread(method, self._started(), *args, **kwargs)

    return call
