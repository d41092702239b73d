"""One consumer of a pool: opens its handler and its loop, opens them again after trouble, and says how it is.

    starting ──handler made, loop open──► running ──stop──► ended
        └─ the handler cannot be made ─► ended, with an error      running ──its handler has given up──► halted

What must stay true:
- Its loop is closed before it has ended: what is done is committed, and the group is left.
- Trouble with the cluster ends no worker: the loop is opened again, after growing pauses, for as long as it takes.
- A handler that hangs, or is ended from within, ends the worker; its supervisor ends the process.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from raylog.api.pool.rules.fleet import Phase
from raylog.api.pool.work_meter import WorkCounts
from raylog.errors import ConfigError, DeadLetterFailed, HandlerFailed, HandlerTimedOut, RaylogError

if TYPE_CHECKING:
    from raylog.actors.kernel.backoff import Backoff
    from raylog.api.pool.careful_hands import CarefulHands
    from raylog.api.pool.handlers import Handler
    from raylog.api.pool.rules.poison import Place
    from raylog.api.pool.work_meter import WorkMeter

_log = logging.getLogger(__name__)


class Loop(Protocol):
    def run(self) -> None: ...


OpenLoop = Callable[["Handler", Callable[[float], bool]], AbstractContextManager[Loop]]


@dataclass(frozen=True)
class Orders:
    """Orders of a supervisor, which come with each question for a report."""

    is_careful: bool = False
    poison: frozenset[Place] = field(default_factory=frozenset)


@dataclass(frozen=True)
class WorkerReport:
    """An answer of a worker that is asked how it is."""

    name: str
    version: int
    phase: Phase
    counts: WorkCounts
    error: str = ""
    came_up: bool = False  # it has been running
    pid: int = 0
    node_id: str = ""


class Worker:
    """The worker of one actor. `run` is for a thread of its own, all else for any."""

    def __init__(
        self,
        name: str,
        version: int,
        make_handler: Callable[[], Handler],
        open_loop: OpenLoop,
        hands: CarefulHands,
        meter: WorkMeter,
        backoff: Backoff,
        longest_seconds: float,
    ) -> None:
        self._longest_seconds = longest_seconds  # that a handler may take
        self._name, self._version = name, version
        self._make_handler, self._open_loop = make_handler, open_loop
        self._hands, self._meter, self._backoff = hands, meter, backoff
        self._phase, self._error, self._came_up = Phase.STARTING, "", False
        self._stopping = threading.Event()

    def run(self) -> None:
        """Return when it has ended."""
        try:
            with self._handler() as handler:
                self._work(handler)
        except (HandlerFailed, DeadLetterFailed) as error:
            self._end(Phase.HALTED, error)
        except BaseException as error:  # noqa: BLE001 (whatever a handler raises, or the loop by a mistake of ours)
            self._end(Phase.ENDED, error)
        else:
            self._phase = Phase.ENDED

    def stop(self) -> None:
        """Have it end what it has in hand, commit, leave the group, and end."""
        self._stopping.set()
        if self._phase is Phase.RUNNING:
            self._phase = Phase.STOPPING

    def report(self, orders: Orders, pid: int = 0, node_id: str = "") -> WorkerReport:
        """Take orders, and say how it is."""
        self._hands.orders(is_careful=orders.is_careful, poison=orders.poison)
        stuck = self._meter.stuck_seconds()
        if stuck >= self._longest_seconds and not self.is_over:
            self._end(Phase.ENDED, TimeoutError(f"its handler has not returned for {stuck:.0f} s"))
        return WorkerReport(
            self._name, self._version, self._phase, self._meter.read(), self._error, self._came_up, pid, node_id
        )

    @property
    def is_over(self) -> bool:
        return self._phase in (Phase.ENDED, Phase.HALTED)

    def pause(self, seconds: float) -> bool:
        """Wait, and say whether to stop."""
        return self._stopping.wait(seconds) if seconds else self._stopping.is_set()

    @contextmanager
    def _handler(self) -> Iterator[Handler]:
        """Close the handler behind the block. An error of the block is kept, whatever `close` raises after it."""
        handler = self._make_handler()
        try:
            yield handler
        except BaseException:
            try:
                handler.close()
            except BaseException:  # noqa: BLE001 (whatever a `close` raises)
                _log.exception("%s could not close its handler, after another error.", self._name)
            raise
        handler.close()

    def _work(self, handler: Handler) -> None:
        while not self.pause(0):
            done = self._meter.read().handled
            try:
                with self._open_loop(handler, self.pause) as loop:
                    self._phase, self._came_up = Phase.RUNNING, True
                    if self.pause(0):  # it came while the loop was opened
                        return
                    loop.run()
                    return
            except (HandlerFailed, HandlerTimedOut, DeadLetterFailed, ConfigError):
                raise
            except RaylogError as error:
                self._meter.has(0, is_full=False)  # its loop is closed
                if self._meter.read().handled > done:
                    self._backoff.reset()
                seconds = self._backoff.next()
                self._error = str(error)
                _log.warning("%s opens its consumer again in %.1f s: %s", self._name, seconds, error)
                self.pause(seconds)

    def _end(self, phase: Phase, error: BaseException) -> None:
        _log.error("%s ends: %r", self._name, error, exc_info=error)
        self._error = f"{type(error).__name__}: {error}"
        self._phase = phase
