"""One asyncio event loop per simulated process, on the virtual time of a `Scheduler`.

    loop = VirtualLoop(scheduler, "replica-1", report)         # report(loop, context): an exception got away
    task = loop.create_task(main())
    scheduler.run(until=5_000_000)

What must stay true:
- Tasks and futures have hashes that do not depend on addresses, so that even a `for` over the sets of `asyncio.wait` is
  the same in every run.
- A loop works in turns, as asyncio's does: what is ready when a turn begins is run, the rest waits for the next. A turn
  takes a few microseconds (rarely milliseconds) of virtual time, so messages and timers arrive between any two turns,
  and a process that spins does not stop the clock.
- While a callback of a process runs, its loop is the running loop; in between there is none.
- Nothing of a killed process ever runs again. Its coroutines are kept as they are, with their `finally` blocks not run,
  until `dispose`, when nobody looks any more. A paused process runs nothing until it is resumed; what came meanwhile
  is then run in order.
"""

from __future__ import annotations

import asyncio
from asyncio.events import _set_running_loop
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, Final, NoReturn, TypeAlias, TypeVar
from weakref import ref

from tests.simulator.world.scheduler import FINGERPRINT_FACTOR, FINGERPRINT_MASK, MICROSECONDS, Scheduler

_T = TypeVar("_T")

_LONGEST_WAIT: Final = 1e9  # seconds; a timer with infinite delay is legal
_FEW_TASKS: Final = 32

_RUNNING: Final = 0
_PAUSED: Final = 1
_DEAD: Final = 2

ErrorContext: TypeAlias = dict[str, Any]  # what asyncio tells an exception handler
Report: TypeAlias = "Callable[[VirtualLoop, ErrorContext], object]"


class VirtualHandle(asyncio.TimerHandle):
    """A call that a process makes. It has the interface of asyncio's handles and none of their fields."""

    __slots__ = ("args", "callback", "context", "is_timed", "local_time", "loop")

    def __init__(
        self, loop: VirtualLoop, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> None:
        self.loop = loop
        self.callback: Callable[..., object] | None = callback
        self.args = args
        self.context = context
        self.is_timed = False  # it is in the scheduler's heap
        self.local_time = 0.0

    def cancel(self) -> None:
        if self.callback is not None:
            self.callback = None
            self.args = ()
            if self.is_timed:
                self.loop.scheduler.count_cancelled()

    def cancelled(self) -> bool:
        return self.callback is None

    def when(self) -> float:
        return self.local_time

    def __repr__(self) -> str:
        return f"<VirtualHandle of {self.loop.name}: {self.callback!r}>"

    __hash__ = object.__hash__
    __eq__ = object.__eq__


class VirtualFuture(asyncio.Future[_T]):
    """A future with a hash that is the same in every run, for the sets that `asyncio.wait` returns."""

    __slots__ = ("_serial",)

    def __hash__(self) -> int:
        return _stable_hash(self)


class VirtualTask(asyncio.Task[_T]):
    """See `VirtualFuture`."""

    __slots__ = ("_serial",)

    def __hash__(self) -> int:
        return _stable_hash(self)


def _stable_hash(future: Any) -> int:
    try:
        serial: int = future._serial
    except AttributeError:  # asyncio asks for it before a constructor of ours could have set it
        serial = future._serial = future._loop.next_hash()
    return serial


def _is_pending(task: asyncio.Task[Any] | None) -> bool:
    return task is not None and not task.done()


class VirtualLoop(asyncio.AbstractEventLoop):
    """The event loop of one process. Its clock shows `base` at first, and goes at `rate`."""

    def __init__(
        self, scheduler: Scheduler, name: str, report: Report, *, base: float = 0.0, rate: float = 1.0
    ) -> None:
        self.scheduler = scheduler
        self.name = name
        self._report = report
        self._base = base
        self._per_microsecond = rate / MICROSECONDS
        self._per_second = MICROSECONDS / rate
        self._ready: deque[VirtualHandle] = deque()
        self._state = _RUNNING
        self._in_turn = False
        self._turn_is_due = False  # the scheduler has an entry for it
        self._free_at = 0  # when the last turn is over
        self._hashes = 0
        self._dropped: list[asyncio.Task[Any]] = []
        self._tasks: list[ref[asyncio.Task[Any]]] = []  # that may not be done; asyncio would look through all loops'
        self._many_tasks = _FEW_TASKS
        self._number = scheduler.next_serial()
        self.after_call: Callable[[], None] | None = None  # looks at the process; what it raises fails the run

    # --- what asyncio uses ----------------------------------------------------------------------------------------

    def time(self) -> float:
        return self._base + self.scheduler.now * self._per_microsecond

    def call_soon(  # type: ignore[override]  # asyncio's types are Python 3.11's
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> VirtualHandle:
        handle = VirtualHandle(self, callback, args, context)
        if self._state != _DEAD:
            self._ready.append(handle)
            if not (self._in_turn or self._turn_is_due or self._state):
                self._make_turn_due()
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]  # asyncio's types are Python 3.11's
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> VirtualHandle:
        delay = min(delay, _LONGEST_WAIT)
        scheduler = self.scheduler
        handle = VirtualHandle(self, callback, args, context)
        handle.local_time = self.time() + delay
        if self._state != _DEAD:
            handle.is_timed = True
            scheduler.push(scheduler.now + int(delay * self._per_second) + 1, self, handle)
        return handle

    def call_at(  # type: ignore[override]  # asyncio's types are Python 3.11's
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> VirtualHandle:
        handle = self.call_later(when - self.time(), callback, *args, context=context)
        handle.local_time = when
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return VirtualFuture(loop=self)

    def create_task(
        self, coro: Generator[Any, None, _T] | Coroutine[Any, Any, _T], *, name: str | None = None, **options: Any
    ) -> asyncio.Task[_T]:
        task: asyncio.Task[_T] = VirtualTask(coro, loop=self, name=name or "task", **options)
        if self._state == _DEAD:
            self._drop(task)
            return task
        self._tasks.append(ref(task))
        if len(self._tasks) > self._many_tasks:
            self._tasks = [each for each in self._tasks if _is_pending(each())]
            self._many_tasks = 2 * len(self._tasks) + _FEW_TASKS
        return task

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self._in_turn

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: ErrorContext) -> None:
        if self._state != _DEAD:
            self._report(self, context)

    default_exception_handler = call_exception_handler

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> NoReturn:  # type: ignore[override]
        raise RuntimeError("A core may not use threads. Slow work goes through `Environment.off_loop`.")

    def run_forever(self) -> NoReturn:
        raise RuntimeError("Virtual loops are run by their scheduler, all of them together.")

    def run_until_complete(self, future: Any) -> NoReturn:
        self.run_forever()

    # --- what the world does with it ------------------------------------------------------------------------------

    @property
    def is_dead(self) -> bool:
        return self._state == _DEAD

    @property
    def is_paused(self) -> bool:
        return self._state == _PAUSED

    def next_hash(self) -> int:
        self._hashes += 1
        return self._hashes

    def deliver(self, callback: Callable[..., object], *args: Any) -> None:
        """Take what arrives from outside: run it now if the process is free, else in its next turn."""
        self.happen(VirtualHandle(self, callback, args, None))

    def happen(self, handle: VirtualHandle | None) -> None:
        """A timer's time has come, or something arrives; None: the next turn is due."""
        if self._state == _DEAD:
            return
        if handle is None:
            self._turn_is_due = False
        else:
            if handle.is_timed:
                handle.is_timed = False
                if handle.callback is None:
                    self.scheduler.count_found()
                    return
            self._ready.append(handle)
        if self._ready and not (self._turn_is_due or self._state or self._in_turn):
            if self._free_at > self.scheduler.now or self.scheduler.is_in_turn:
                self._make_turn_due()
            else:
                self._take_turn()

    def pause(self) -> None:
        """SIGSTOP."""
        if self._state == _RUNNING:
            self._state = _PAUSED

    def resume(self) -> None:
        """SIGCONT. All that came meanwhile is ready at once."""
        if self._state == _PAUSED:
            self._state = _RUNNING
            if self._ready and not self._turn_is_due:
                self._make_turn_due()

    def kill(self) -> None:
        """SIGKILL. A callback that is running goes on to its end, but what it still does has no effect here."""
        if self._state == _DEAD:
            return
        self._state = _DEAD
        tasks = [each() for each in self._tasks]  # what is ready may be all that holds a task
        self._ready.clear()
        for task in tasks:
            if task is not None and not task.done():
                self._drop(task)
        self._tasks.clear()

    def dispose(self) -> None:
        """Let go of the coroutines of a dead process. Their `finally` blocks run here, in a world that is over."""
        while self._dropped:
            coroutine: Any = self._dropped.pop().get_coro()
            try:
                coroutine.close()
            except BaseException as error:  # noqa: BLE001 (the code of a process that does not exist)
                del error

    def _drop(self, task: asyncio.Task[Any]) -> None:
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        self._dropped.append(task)

    def _make_turn_due(self) -> None:
        self._turn_is_due = True
        self.scheduler.push(self._free_at, self, None)

    def _take_turn(self) -> None:
        scheduler, ready = self.scheduler, self._ready
        count = len(ready)
        scheduler.events += count
        scheduler.fingerprint = (
            scheduler.fingerprint * FINGERPRINT_FACTOR + (scheduler.now << 8) + self._number + count
        ) & FINGERPRINT_MASK
        self._in_turn = scheduler.is_in_turn = True
        _set_running_loop(self)
        try:
            for _ in range(count):
                handle = ready.popleft()
                callback = handle.callback
                if callback is None:
                    continue
                try:
                    if handle.context is None:
                        callback(*handle.args)
                    else:
                        handle.context.run(callback, *handle.args)
                    if self.after_call is not None and not self._state:
                        self.after_call()
                except (KeyboardInterrupt, SystemExit):
                    raise
                except BaseException as error:  # noqa: BLE001 (it fails the run)
                    self.call_exception_handler(
                        {"message": f"Exception in {callback!r}", "exception": error, "handle": handle}
                    )
                if self._state:
                    break
        finally:
            _set_running_loop(None)
            self._in_turn = scheduler.is_in_turn = False
        self._free_at = scheduler.now + scheduler.turn_cost()
        if ready and not (self._state or self._turn_is_due):
            self._make_turn_due()
