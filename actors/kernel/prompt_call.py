"""A coroutine that begins at once, on the stack of its caller, and goes on as soon as what it waits for is there.

A task begins in the next turn of the loop, and whoever waits for it hears of its end in yet another one. A request that
is passed from one stream to another pays for both. A prompt call needs neither: it runs to its first wait before the
constructor returns, and calls `when_over` in the moment in which it ends.

What must stay true: the coroutine may not ask for its task, as `asyncio.timeout` does, for it has none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

_T = TypeVar("_T")


class PromptCall(asyncio.Future[_T]):
    """A call of `work`. `when_over` hears of its end, unless that was before the constructor had returned."""

    def __init__(
        self, work: Coroutine[Any, Any, _T], when_over: Callable[[PromptCall[_T]], None] | None = None
    ) -> None:
        super().__init__()
        self._work = work
        self._when_over: Callable[[PromptCall[_T]], None] | None = None
        self._awaited: asyncio.Future[Any] | None = None
        self._is_cancelled = False  # to be told to the coroutine
        self._run(None)
        if not self.done():
            self._when_over = when_over

    def cancel(self, msg: Any | None = None) -> bool:
        """Raise CancelledError where the coroutine waits. It ends as it does with that."""
        if self.done():
            return False
        if self._awaited is None or not self._awaited.cancel(msg):
            self._is_cancelled = True
        return True

    def _run(self, error: BaseException | None) -> None:
        try:
            awaited = self._work.send(None) if error is None else self._work.throw(error)
        except StopIteration as ended:
            if self._is_cancelled:
                super().cancel()
            else:
                self.set_result(ended.value)
        except asyncio.CancelledError:
            super().cancel()
        except Exception as failure:  # noqa: BLE001 (whoever waits for this is told)
            # This frame has `self`: a traceback with it would keep both, and all that waits, until the next collection.
            self.set_exception(failure.with_traceback(failure.__traceback__ and failure.__traceback__.tb_next))
        else:
            self._awaited = awaited
            if awaited is None:  # it only lets others have a turn
                self.get_loop().call_soon(self._go_on)
            else:
                awaited._asyncio_future_blocking = False  # as a task does: else nobody else could wait for it
                awaited.add_done_callback(self._go_on)
                if self._is_cancelled and awaited.cancel():
                    self._is_cancelled = False
            return
        if self._when_over is not None:
            self._when_over(self)

    def _go_on(self, _: object = None) -> None:
        is_cancelled, self._is_cancelled, self._awaited = self._is_cancelled, False, None
        self._run(asyncio.CancelledError() if is_cancelled else None)


async def all_of(works: Sequence[Coroutine[Any, Any, _T]]) -> list[_T]:
    """Return what they return. All have begun, in their order, before this waits. An error of one ends all."""
    if len(works) == 1:
        return [await works[0]]
    calls = [PromptCall(work) for work in works]
    try:
        return [await calls[place] for place in range(len(calls))]
    finally:
        while calls:  # no variable names a call: the traceback of one that failed has this frame
            calls.pop().cancel()
