"""Commits of records: what one turn of the loop has changed goes to the log as one batch.

    ticket = line.add(records)         # in the batch of this turn
    await line.committed(ticket, "g")  # after the log has committed that batch, and with it all before

What must stay true:
- Records are appended in the order in which they were added; those of one `add` in one batch, unless they alone are too
  large for one. (What comes of the first part of them is finished by whoever takes over, or by the one who asks again.)
- A ticket is good when its batch is committed and never before. An append that fails ends everything: the state already
  holds what was not written, so whoever uses the line throws it away (rule 25).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from raylog.actors.kernel.background import TimerHandle, Timers
from raylog.errors import GroupRequestTimedOut
from raylog.groups.records.offsets_log import OffsetsLog
from raylog.groups.records.records import EncodedRecord, Records, encode


@dataclass(slots=True)
class _Batch:
    number: int
    records: list[EncodedRecord] = field(default_factory=list)
    size: int = 0
    appended_at: float = 0.0
    waiting: list[tuple[str, asyncio.Future[None]]] = field(default_factory=list)
    timer: TimerHandle | None = None
    task: asyncio.Task[None] | None = None  # the loop alone would not keep it


class CommitLine:
    """`on_error` is told what an append died of, once."""

    def __init__(
        self,
        log: OffsetsLog,
        timers: Timers,
        max_batch_bytes: int,
        timeout_ms: int,
        on_error: Callable[[BaseException], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._log = log
        self._timers = timers
        self._max_bytes = max_batch_bytes
        self._timeout_ms = timeout_ms
        self._on_error = on_error
        self._open = _Batch(1)
        self._batches: deque[_Batch] = deque()  # appended and not known to be committed
        self._is_flush_due = False
        self._error_for: Callable[[str], Exception] | None = None
        self.committed_until = 0
        self.confirmed_at = self._loop.time()  # when something was appended that has been committed since

    def add(self, records: Records) -> int:
        """Put them into this turn's batch, or a further one where it is full."""
        if self._error_for is not None:
            return self._open.number
        encoded = [encode(record) for record in records]
        sizes = [len(key) + len(value or b"") for key, value in encoded]
        if self._open.records and self._open.size + sum(sizes) > self._max_bytes:
            self._append_open()
        for record, size in zip(encoded, sizes, strict=True):
            if self._open.records and self._open.size + size > self._max_bytes:
                self._append_open()
            self._open.records.append(record)
            self._open.size += size
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)
        return self._open.number

    @property
    def is_idle(self) -> bool:
        """All that was added is committed."""
        return not self._batches and not self._open.records

    @property
    def has_open(self) -> bool:
        """Whether something was added in this turn."""
        return bool(self._open.records)

    @property
    def last_ticket(self) -> int:
        """The ticket of all that was added until now."""
        return self._open.number - (not self._open.records)

    def broken_invariants(self) -> Iterator[str]:
        """Say in words what contradicts the top of this file."""
        if self._error_for is not None:
            return
        numbers = [batch.number for batch in (*self._batches, self._open)]
        if numbers != list(range(self.committed_until + 1, self._open.number + 1)):
            yield f"committed up to batch {self.committed_until}; the batches after it are {numbers}"

    async def committed(self, ticket: int, group: str) -> None:
        """Raises GroupRequestTimedOut; or whatever the line has failed with."""
        waiting = self.commit_of(ticket, group)
        if waiting is not None:
            await waiting

    def commit_of(self, ticket: int, group: str) -> asyncio.Future[None] | None:
        """Return what is done when the batch of this ticket is committed, or has one of these errors. None: it is."""
        if ticket <= self.committed_until:
            return None
        if self._error_for is not None:
            raise self._error_for(group)
        batch = self._open if ticket == self._open.number else self._batches[ticket - self._batches[0].number]
        future: asyncio.Future[None] = self._loop.create_future()
        batch.waiting.append((group, future))
        return future

    def fail(self, error_for: Callable[[str], Exception]) -> None:
        """Tell everybody who waits an error for their group; nothing is written any more."""
        self._error_for = error_for
        for batch in (*self._batches, self._open):
            if batch.timer is not None:
                self._timers.cancel(batch.timer)
            for group, future in batch.waiting:
                if not future.done():
                    future.set_exception(error_for(group))
            batch.waiting.clear()

    def _flush(self) -> None:
        self._is_flush_due = False
        if self._open.records and self._error_for is None:
            self._append_open()

    def _append_open(self) -> None:
        batch, self._open = self._open, _Batch(self._open.number + 1)
        batch.appended_at = self._loop.time()
        batch.timer = self._timers.after(self._timeout_ms, lambda: _time_out(batch, self._timeout_ms))
        self._batches.append(batch)
        batch.task = self._loop.create_task(self._append(batch))
        batch.task.add_done_callback(lambda done: self._appended(batch, done))

    async def _append(self, batch: _Batch) -> None:
        await self._log.append(batch.records)

    def _appended(self, batch: _Batch, future: asyncio.Future[Any]) -> None:
        error = None if future.cancelled() else future.exception()
        if self._error_for is not None or future.cancelled():
            return
        if error is not None:
            self._on_error(error)
            return
        self.committed_until = max(self.committed_until, batch.number)
        self.confirmed_at = max(self.confirmed_at, batch.appended_at)
        while self._batches and self._batches[0].number <= self.committed_until:
            _release(self._batches.popleft(), self._timers)


def _release(batch: _Batch, timers: Timers) -> None:
    if batch.timer is not None:
        timers.cancel(batch.timer)
    for _, future in batch.waiting:
        if not future.done():
            future.set_result(None)


def _time_out(batch: _Batch, timeout_ms: int) -> None:
    for group, future in batch.waiting:
        if not future.done():
            future.set_exception(GroupRequestTimedOut(group, timeout_ms))
    batch.waiting.clear()
