"""The workers of a ParallelConsumer: threads for a function, a loop of its own for a coroutine function.

What must stay true:
- Whatever comes of a handler, its record ends as done, as delayed, or as what halts the consumer: nothing is swallowed.
- No worker keeps its consumer alive: one that is dropped without `close` ends its workers too.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

from raylog.api.connection.records import ConsumerRecord
from raylog.api.consumer.rules.deserializers import Deserializer
from raylog.api.parallel.dead_letters import DeadLetters
from raylog.api.parallel.rules.parallel_options import SKIP, ParallelOptions
from raylog.api.parallel.rules.parallel_work import Task
from raylog.api.parallel.shared_work import SharedWork
from raylog.errors import DeadLetterFailed, HandlerFailed, RaylogError, RecordUnreadable

_JOIN_SLICE_SECONDS: Final = 0.5

_log = logging.getLogger(__name__)


class Workers(Protocol):
    def close(self, seconds: float) -> None: ...

    @property
    def has_this_thread(self) -> bool: ...


def start_workers(work: SharedWork, options: ParallelOptions, dead_letters: DeadLetters | None) -> Workers:
    attempts = Attempts(work, options, dead_letters)
    is_async = inspect.iscoroutinefunction(options.handler) or inspect.iscoroutinefunction(
        getattr(options.handler, "__call__", None)  # noqa: B004 (an object may have a coroutine function in its place)
    )
    if is_async:
        return CoroutineWorkers(work, options.workers, attempts.run_coroutine)
    return ThreadWorkers(work, options.workers, attempts.run)


class Attempts:
    """The steps of a worker with one task."""

    def __init__(self, work: SharedWork, options: ParallelOptions, dead_letters: DeadLetters | None) -> None:
        self._work = work
        self._handler = options.handler
        self._skips = options.when_exhausted == SKIP
        self._key = options.consumer.key_deserializer
        self._value = options.consumer.value_deserializer
        self._dead_letters = dead_letters

    def run(self, task: Task) -> None:
        if not task.is_given_up:
            try:
                result = self._handler(self._readable(task.record))
                if inspect.isawaitable(result):
                    raise _not_awaited(result)
            except Exception as error:  # noqa: BLE001 (whatever a handler raises)
                if self._failed(task, error):
                    return
            except BaseException as error:  # noqa: BLE001 (SystemExit, say: it ends the program, in `run`)
                self._work.halt(task, error)
                return
            else:
                self._work.finish(task)
                return
        self._put_aside(task)

    async def run_coroutine(self, task: Task) -> None:
        if not task.is_given_up:
            try:
                await self._handler(self._readable(task.record))
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 (whatever a handler raises)
                failure = error if isinstance(error, Exception) else TimeoutError("the handler was cancelled")
                if self._failed(task, failure):
                    return
            except BaseException as error:  # noqa: BLE001 (as above)
                self._work.halt(task, error)
                return
            else:
                self._work.finish(task)
                return
        await asyncio.to_thread(self._put_aside, task)

    def _readable(self, record: ConsumerRecord) -> ConsumerRecord:
        """Raises RecordUnreadable."""
        if self._key is None and self._value is None:
            return record
        try:
            key = _decoded(self._key, record, record.key)
            value = _decoded(self._value, record, record.value)
        except Exception as error:
            raise RecordUnreadable(
                record.topic, record.partition, record.offset, record.offset + 1, f"its deserializer failed: {error!r}."
            ) from error
        return record._replace(key=key, value=value)

    def _failed(self, task: Task, error: Exception) -> bool:
        """Whether it is tried again."""
        record = task.record
        is_final = isinstance(error, (RecordUnreadable, _HandlerUnusable))
        is_tried_again = self._work.fail(task, error, is_final=is_final)
        _log.warning(
            "Attempt %d with offset %d of %s-%d failed%s: %r",
            task.attempts, record.offset, record.topic, record.partition,
            "" if is_tried_again else ", for good", error, exc_info=error,
        )  # fmt: skip
        return is_tried_again

    def _put_aside(self, task: Task) -> None:
        """Put a record aside whose handler has had its attempts. It is done again where the dead letter topic cannot be
        reached just now.
        """
        record, error = task.record, task.error
        assert error is not None
        place = record.topic, record.partition, record.offset
        if isinstance(error, _HandlerUnusable) or (self._dead_letters is None and not self._skips):
            self._work.halt(task, _caused(HandlerFailed(*place, task.attempts, repr(error)), error))
            return
        if self._dead_letters is None:
            _log.error("Offset %d of %s-%d is skipped.", record.offset, record.topic, record.partition)
            self._work.finish(task)
            return
        try:
            self._dead_letters.write(record, error, task.attempts)
        except RaylogError as reason:
            if self._dead_letters.may_succeed_later(reason):
                _log.warning("Offset %d of %s-%d is put aside later: %s", place[2], place[0], place[1], reason)
                self._work.delay(task)
            else:
                failed = DeadLetterFailed(*place, self._dead_letters.topic, repr(reason))
                self._work.halt(task, _caused(failed, reason))
        except BaseException as reason:  # noqa: BLE001 (a mistake of ours: never a worker less without a word)
            self._work.halt(task, reason)
        else:
            self._work.finish(task)


class _HandlerUnusable(TypeError):
    """No record can be handled by it."""


def _not_awaited(result: Any) -> _HandlerUnusable:
    if inspect.iscoroutine(result):
        result.close()
    return _HandlerUnusable(f"the handler returned {type(result).__name__}: make it a coroutine function (async def)")


def _caused(error: RaylogError, cause: BaseException) -> RaylogError:
    error.__cause__ = cause
    return error


def _decoded(deserializer: Deserializer | None, record: ConsumerRecord, data: bytes | None) -> Any:
    if deserializer is None:
        return data
    return next(deserializer.over(record.topic, [record.headers], [data]))


class ThreadWorkers:
    """Each takes its next record by itself. A handler that never ends does not hold up the end of the process."""

    def __init__(self, work: SharedWork, count: int, run: Callable[[Task], None]) -> None:
        self._work = work
        self._threads = [
            threading.Thread(target=_run_tasks, args=(work, run), name=f"raylog-handler-{number}", daemon=True)
            for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def close(self, seconds: float) -> None:
        """Let them end; those that are still at a record after so long are left behind."""
        self._work.close()
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            _join(thread, deadline)

    @property
    def has_this_thread(self) -> bool:
        return threading.current_thread() in self._threads


def _run_tasks(work: SharedWork, run: Callable[[Task], None]) -> None:
    while (task := work.wait_for_task()) is not None:
        run(task)
        del task


def _join(thread: threading.Thread, deadline: float) -> None:
    while thread.is_alive() and (left := deadline - time.monotonic()) > 0:
        thread.join(min(left, _JOIN_SLICE_SECONDS))


class CoroutineWorkers:
    """Workers on a loop and a thread of their own, so that neither the program's loop nor that of raylog's clients
    waits.
    """

    def __init__(self, work: SharedWork, count: int, run: Callable[[Task], Coroutine[Any, Any, None]]) -> None:
        self._work = work
        self._count = count
        self._run = run
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._over = self._loop.create_future()
        self._thread = threading.Thread(target=self._serve, name="raylog-handlers", daemon=True)
        work.on_work = self._wake
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._over)
        finally:
            self._loop.close()

    def _wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, after `SharedWork`
            self._loop.call_soon_threadsafe(self._fill)

    def _fill(self) -> None:
        while len(self._tasks) < self._count:
            task, due = self._work.start()
            if task is None:
                self._call_at(due)
                break
            running = self._loop.create_task(self._run(task))
            self._tasks.add(running)
            running.add_done_callback(self._done)
        if self._work.is_closed and not self._tasks and not self._over.done():
            self._call_at(None)
            self._over.set_result(None)

    def _call_at(self, due: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if due is None else self._loop.call_later(max(0.0, due - time.monotonic()), self._fill)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._work.halt(None, error)
        self._fill()

    def _cancel(self) -> None:
        for task in list(self._tasks):
            task.cancel()

    def close(self, seconds: float) -> None:
        """Let those that run end; what is still at a record after so long is cancelled."""
        self._work.close()
        _join(self._thread, time.monotonic() + seconds)
        if self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # it has just ended
                self._loop.call_soon_threadsafe(self._cancel)
            _join(self._thread, time.monotonic() + _JOIN_SLICE_SECONDS)

    @property
    def has_this_thread(self) -> bool:
        return threading.current_thread() is self._thread
