"""Slow work on the disk that many ask for in one turn of the loop, done by one thread, one piece after the other.

A thread for each of a thousand pieces costs more than a short piece itself, and what has to be synced behind each of
them is synced once behind all.

What must stay true: each piece succeeds or fails by itself, and none counts as done before `finish` is. If that fails,
all of them have failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeAlias

from raylog.actors.kernel.environment import Environment
from raylog.errors import RaylogError

_MOST_AT_ONCE: Final = 64

_Work: TypeAlias = Callable[[], None]


class Together:
    """`finish` is called on the thread, behind the pieces of work that have been done there."""

    def __init__(self, env: Environment, finish: _Work) -> None:
        self._env = env
        self._finish = finish
        self._waiting: list[tuple[_Work, asyncio.Future[None]]] = []
        self._doing: set[asyncio.Future[list[RaylogError | None]]] = set()

    async def do(self, work: _Work) -> None:
        """Return when it is done and finished. Raises what this piece has raised, or `finish`."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._waiting.append((work, done))
        if len(self._waiting) == 1:
            loop.call_soon(self._begin)
        await done

    def _begin(self) -> None:
        waiting, self._waiting = self._waiting, []
        for at in range(0, len(waiting), _MOST_AT_ONCE):
            self._start(waiting[at : at + _MOST_AT_ONCE])

    def _start(self, part: Sequence[tuple[_Work, asyncio.Future[None]]]) -> None:
        raised = self._env.off_loop(partial(self._carry_out, [work for work, _ in part]))
        self._doing.add(doing := asyncio.ensure_future(raised))
        doing.add_done_callback(self._doing.discard)
        doing.add_done_callback(partial(_tell, [done for _, done in part]))

    def _carry_out(self, works: Sequence[_Work]) -> list[RaylogError | None]:
        """Return what each has raised."""
        raised = [_raised_by(work) for work in works]
        if None in raised and (failure := _raised_by(self._finish)) is not None:
            raised = [error or failure for error in raised]
        return raised


def _raised_by(work: _Work) -> RaylogError | None:
    try:
        work()
    except RaylogError as error:
        return error
    return None


def _tell(waiting: Sequence[asyncio.Future[None]], doing: asyncio.Future[list[RaylogError | None]]) -> None:
    for number, done in enumerate(waiting):
        if done.done():
            continue
        if doing.cancelled():
            done.cancel()
        elif (error := doing.exception() or doing.result()[number]) is not None:
            done.set_exception(error)
        else:
            done.set_result(None)
