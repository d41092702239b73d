"""Watches of consumers over many partitions of one host: which of them are worth a Fetch.

    WatchRecords ──► watch of the stream ──► an entry at the reads of each leader
                          ▲                            │ there is something to read, or it leads no more
       RecordsArrived ◄───┴────────────────────────────┘

A consumer of a thousand partitions would otherwise keep a thousand fetches open, and renew each twice a second.

What must stay true:
- An answer is a hint. What is not so is found out by the fetch that follows, so nothing here has to be remembered or
  replicated. But no partition that was added is forgotten: it is told once, unless it is taken from the watch.
- A watch has one answer open at most. The next message has it given.
- An idle watch costs nothing. A stream has a bounded number of watches (rule 31), and none once it has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

from raylog.actors.kernel.background import TimerHandle, Timers
from raylog.actors.kernel.stream_interface import Answer, LaterAnswer, Request, Response, Stream
from raylog.actors.protocol.replication_messages import RecordsArrived, WatchedPartition, WatchRecords
from raylog.actors.replica.reads import LeaderReads
from raylog.errors import RaylogError, TooManyWatches

PartitionKey: TypeAlias = tuple[bytes, int]  # topic id, partition
LeaderOf: TypeAlias = Callable[[PartitionKey], "LeaderReads | None"]  # None: nobody leads it here

_MOST_WATCHES: Final = 256  # of one stream: of each consumer of a process that reads many partitions
_MOST_WAIT_MS: Final = 10 * 60 * 1000


class _Watch:
    """One watch."""

    def __init__(self, timers: Timers, leader_of: LeaderOf) -> None:
        self._timers = timers
        self._leader_of = leader_of
        self._loop = asyncio.get_running_loop()
        self._entries: dict[PartitionKey, Callable[[], None]] = {}  # what ends each
        self._arrived: dict[PartitionKey, None] = {}
        self._owed: LaterAnswer | None = None
        self._timer: TimerHandle | None = None

    def change(self, message: WatchRecords) -> Answer | LaterAnswer:
        self._answer()
        for key in message.removed:
            self._end(key)
            self._arrived.pop(key, None)
        for each in message.added:
            self._add(each, message.committed)
        if self._arrived:
            return self._take()
        owed = self._owed = LaterAnswer()
        owed.when_cancelled(self._forget_answer)
        self._timer = self._timers.after(min(message.max_wait_ms, _MOST_WAIT_MS), self._answer)
        return owed

    def end(self) -> None:
        """Answer what is owed, and let go of all partitions."""
        for key in list(self._entries):
            self._end(key)
        self._answer()

    def _add(self, each: WatchedPartition, committed: bool) -> None:
        key = each.topic_id, each.partition
        self._end(key)
        leader = self._leader_of(key)
        try:
            end = None if leader is None else leader.watch(each, committed, partial(self._has_arrived, key))
        except RaylogError:  # of an epoch that is over, or not begun: the fetch is told the same
            end = None
        if end is None:
            self._arrived[key] = None
        else:
            self._entries[key] = end

    def _end(self, key: PartitionKey) -> None:
        end = self._entries.pop(key, None)
        if end is not None:
            end()

    def _has_arrived(self, key: PartitionKey) -> None:
        del self._entries[key]
        if not self._arrived:
            self._loop.call_soon(self._answer_arrived)  # with all that arrives in this turn
        self._arrived[key] = None

    def _answer_arrived(self) -> None:
        if self._arrived:
            self._answer()

    def _answer(self) -> None:
        owed = self._owed
        if owed is not None:
            self._forget_answer()
            owed.give(self._take())

    def _take(self) -> Response:
        arrived, self._arrived = tuple(self._arrived), {}
        return Response(RecordsArrived(arrived))

    def _forget_answer(self) -> None:
        self._owed = None
        if self._timer is not None:
            self._timers.cancel(self._timer)
            self._timer = None


class RecordWatches:
    """The watches of one host."""

    def __init__(self, timers: Timers, leader_of: LeaderOf) -> None:
        self._timers = timers
        self._leader_of = leader_of
        self._of_streams: dict[Stream, dict[int, _Watch]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._of_streams.values()))

    def watch(self, request: Request, message: WatchRecords) -> Answer | LaterAnswer:
        """Answer once one of the partitions is worth a fetch, or the time is over. TooManyWatches."""
        watches = self._of(request.stream)
        if message.is_over:
            ended = watches.pop(message.number, None)
            if ended is not None:
                ended.end()
            return Response(RecordsArrived(()))
        found = watches.get(message.number)
        if found is None:
            if len(watches) >= _MOST_WATCHES:
                raise TooManyWatches(len(watches))
            found = watches[message.number] = _Watch(self._timers, self._leader_of)
        return found.change(message)

    def _of(self, stream: Stream) -> dict[int, _Watch]:
        found = self._of_streams.get(stream)
        if found is None:
            found = self._of_streams[stream] = {}
            stream.closed.add_done_callback(lambda _: self._has_ended(stream))
        return found

    def _has_ended(self, stream: Stream) -> None:
        for watch in self._of_streams.pop(stream).values():
            watch.end()
