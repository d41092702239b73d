"""Waiting for records of many partitions with one open question to each process of leaders.

    until_arrival ──added──► one WatchRecords for all of a process ──RecordsArrived──► those partitions are fetched
         └─ cancelled ──removed──►

What must stay true:
- A wait ends when the process says so, in an error of the question, when another one leads the partition, and after a
  minute in any case. Whoever waited then looks for himself, so a hint that was lost costs a minute at most.
- Each process has one question open, and a newer one before the answer only where the partitions have changed. Changes
  of one moment go together, and many after each other are collected for a few milliseconds.
- Where a process refuses another watch, partitions are looked at twice a second instead, until it is asked again.
- After an error a watch begins anew, under a new number: what the process still knows of the old one is nobody's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from itertools import count, islice
from typing import Final, TypeAlias

from raylog.actors.kernel.background import BackgroundTasks
from raylog.actors.link.cluster_link import ClusterLink, PartitionLeader
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.replication_messages import RecordsArrived, WatchedPartition, WatchRecords
from raylog.api.connection.leader_requests import is_replaced
from raylog.api.consumer.rules.consumer_options import ConsumerOptions
from raylog.errors import RaylogError, TooManyWatches

_Key: TypeAlias = tuple[bytes, int]  # topic id, partition

_WAIT_SECONDS: Final = 5.0  # that a process holds a question
_LOOK_SECONDS: Final = 60.0  # after which a partition is looked at in any case
_LOOKS: Final = 12  # at most such a part of all is looked at together
_PAUSE_SECONDS: Final = 0.005  # between two questions
_MOST_OF_ONE: Final = 2_000  # partitions that one question adds or removes: 60 bytes each
_REFUSED_SECONDS: Final = 10.0  # after which a process that has refused a watch is asked again
_POLL_SECONDS: Final = 0.5  # between two looks at a partition meanwhile
_CLOSE_SECONDS: Final = 1.0

_numbers: Final = count(1)  # of the watches of this process: consumers share streams
_log = logging.getLogger(__name__)


class _Wait:
    """A partition that is waited for."""

    __slots__ = ("future", "leader", "since", "watched")

    def __init__(self, leader: PartitionLeader, offset: int, loop: asyncio.AbstractEventLoop) -> None:
        self.leader = leader
        self.watched = WatchedPartition(leader.topic_id, leader.partition, leader.epoch, offset)
        self.future: asyncio.Future[None] = loop.create_future()
        self.since = loop.time()

    def end(self, error: BaseException | None = None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(error)
            self.future.exception()  # nothing is logged where nobody waits any more


class _ProcessWatch:
    """The watch over the partitions of one process."""

    def __init__(self, link: ClusterLink, options: ConsumerOptions, tasks: BackgroundTasks) -> None:
        self._link = link
        self._committed = options.reads_committed
        self._timeout = options.request_timeout_ms / 1000
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._waits: dict[_Key, _Wait] = {}  # the longest is first
        self._added: dict[_Key, WatchedPartition] = {}
        self._removed: dict[_Key, None] = {}
        self._number = next(_numbers)
        self._newest = 0  # question
        self._asked_at = -_PAUSE_SECONDS
        self._due: asyncio.TimerHandle | None = None
        self._leader: PartitionLeader | None = None  # that was asked last
        self._refused_until = 0.0

    @property
    def is_empty(self) -> bool:
        return not self._waits and self._loop.time() >= self._refused_until

    async def wait(self, leader: PartitionLeader, offset: int) -> None:
        if self._loop.time() < self._refused_until:
            await asyncio.sleep(_POLL_SECONDS)
            return
        wait = _Wait(leader, offset, self._loop)
        key = leader.topic_id, leader.partition
        self._waits[key] = wait
        self._added[key] = wait.watched
        self._ask_soon()
        try:
            await wait.future
        finally:
            if self._waits.get(key) is wait:  # cancelled
                del self._waits[key]
                self._forget(key)

    def look_at_leaders(self) -> None:
        for key, wait in list(self._waits.items()):
            if is_replaced(self._link, wait.leader):
                self._arrived(key)
                self._forget(key)

    def close(self) -> None:
        """Have the process forget this watch."""
        if self._due is not None:
            self._due.cancel()
        if self._leader is not None:
            self._tasks.start(self._end(self._leader))

    async def _end(self, leader: PartitionLeader) -> None:
        over = WatchRecords(self._number, (), (), self._committed, 0, is_over=True)
        try:
            await self._link.ask_process(leader, over, expect=RecordsArrived, timeout=_CLOSE_SECONDS)
        except RaylogError as error:  # it ends with the stream at the latest
            _log.debug("A watch was not ended: %s", error)

    # --- changes --------------------------------------------------------------------------------------------------

    def _arrived(self, key: _Key) -> None:
        wait = self._waits.pop(key, None)
        if wait is not None:
            wait.end()

    def _forget(self, key: _Key) -> None:
        if self._added.pop(key, None) is None:
            self._removed[key] = None
            self._ask_soon()

    def _ask_soon(self) -> None:
        if self._due is None:
            self._due = self._loop.call_at(max(self._loop.time(), self._asked_at + _PAUSE_SECONDS), self._ask)

    # --- questions ------------------------------------------------------------------------------------------------

    def _ask(self) -> None:
        self._due = None
        self._asked_at = self._loop.time()
        wait = next(iter(self._waits.values()), None)
        if wait is None:  # the next who waits takes the changes along
            return
        removed = list(islice(self._removed, _MOST_OF_ONE))
        added = list(islice(self._added, _MOST_OF_ONE - len(removed)))
        for key in removed:
            del self._removed[key]
        partitions = tuple(self._added.pop(key) for key in added)
        question = WatchRecords(
            self._number, partitions, tuple(removed), self._committed, round(1000 * _WAIT_SECONDS)
        )
        if self._added or self._removed:
            self._ask_soon()
        self._newest += 1
        self._leader = wait.leader
        self._tasks.start(self._asked(wait.leader, question, self._newest))

    async def _asked(self, leader: PartitionLeader, question: WatchRecords, number: int) -> None:
        timeout = self._timeout + _WAIT_SECONDS
        try:
            answer = await self._link.ask_process(leader, question, expect=RecordsArrived, timeout=timeout)
        except RaylogError as error:
            if isinstance(error, TooManyWatches):
                self._refused_until = self._loop.time() + _REFUSED_SECONDS
            if question.number == self._number:
                self.fail(partial(type(error), *error.args))
            return
        if question.number != self._number:
            return
        for key in answer.message.partitions:
            self._arrived(key)
        if number == self._newest:
            self._look_at_oldest()
            if self._waits and self._due is None:
                self._ask()

    def _look_at_oldest(self) -> None:
        """Let those look that have waited for long, a few at a time."""
        limit = self._loop.time() - _LOOK_SECONDS
        for key, wait in list(islice(self._waits.items(), len(self._waits) // _LOOKS + 1)):
            if wait.since <= limit:
                self._arrived(key)
                self._forget(key)

    def fail(self, make_error: Callable[[], BaseException]) -> None:
        """Tell all that wait, and begin anew with those that come back."""
        waits, self._waits = self._waits, {}
        self._added, self._removed = {}, {}
        self._number = next(_numbers)
        for wait in waits.values():
            wait.end(make_error())


class RecordWatch:
    """The watches of one consumer, made on the link's loop."""

    def __init__(self, link: ClusterLink, options: ConsumerOptions) -> None:
        self._link = link
        self._options = options
        self._tasks = BackgroundTasks(self._broke)
        self._processes: dict[tuple[Endpoint, ...], _ProcessWatch] = {}
        self._broken: BaseException | None = None

    async def until_arrival(self, leader: PartitionLeader, offset: int) -> None:
        """Wait until a fetch of that leader's partition from this offset on is worth while. RaylogError: look anew."""
        if self._broken is not None:
            raise _over(self._broken)
        process = self._processes.get(leader.endpoints)
        if process is None:
            process = self._processes[leader.endpoints] = _ProcessWatch(self._link, self._options, self._tasks)
        await process.wait(leader, offset)

    def look_at_leaders(self) -> None:
        """End the waits for partitions that somebody else leads now."""
        for endpoints, process in list(self._processes.items()):
            process.look_at_leaders()
            if process.is_empty:
                process.close()
                del self._processes[endpoints]

    async def close(self) -> None:
        for process in self._processes.values():
            process.close()
        await asyncio.sleep(0)  # they are told, and not waited for
        await self._tasks.close(_CLOSE_SECONDS)

    def _broke(self, error: BaseException) -> None:
        _log.critical("Records are waited for no more: %r", error, exc_info=error)
        self._broken = error
        for process in self._processes.values():
            process.fail(partial(_over, error))


def _over(error: BaseException) -> RuntimeError:
    """Return an error of one wait: one for all would grow with each place that it is raised in."""
    return RuntimeError(f"Records are waited for no more: {error!r}")
