"""Polls of partitions for one connection: for each partition a fetch is open at its leader, until there is something.

A fetch of a Kafka client names many partitions, and is answered when there is enough of all of them. What is still open
then, or was too much, is kept, and is used by the connection's next fetch if that asks for the same.

    begun ──nothing known yet──► looked at once ──────┐
      │                                               ├──► over ──► taken by an answer
      └──known──► held by the leader until there is ──┘      └────► kept for the next fetch
                  something, or the time is over

What must stay true:
- A poll is used only for the very question that it was begun with: offset, epochs and isolation.
- The first poll of a partition is not held, so an answer can say where the partition ends.
- A failure is told only by the fetch that waits for it. One that happens between two fetches is forgotten, and the
  partition is polled anew.
- Where compaction has left nothing but fillers a poll reads on. What it ends with has records, or reaches the end of
  what is visible.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from raylog.actors.kernel.stream_interface import Told
from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.link.rules.topic_cache import PartitionLeader
from raylog.actors.protocol.replication_messages import NO_EPOCH, AbortedRange, EpochEnd, Fetch, Fetched
from raylog.api.kafka.rules.batch_conversion import Visible
from raylog.errors import RaylogError
from raylog.storage.format.record_batch import Bytes

_GRACE_SECONDS: Final = 5.0  # beyond the time for which the leader may hold a fetch
_SHORTEST_WAIT_MS: Final = 1

Key: TypeAlias = "tuple[bytes, int]"  # topic id and partition


class Question(NamedTuple):
    """The part of a fetch that says what is read of a partition. `version`: of the client's fetch."""

    offset: int
    leader_epoch: int
    last_epoch: int
    committed: bool
    version: int


# What makes of batches that a leader has sent what the client gets.
Show: TypeAlias = Callable[[PartitionLeader, Bytes, Question], Awaitable[Visible]]


class Bounds(NamedTuple):
    """The part of a fetch that says how much is read, and how long the leader may hold it until there is so much."""

    min_bytes: int
    max_bytes: int
    wait_ms: int


class Marks(NamedTuple):
    """The marks of a partition, as its leader said last."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


class Polled(NamedTuple):
    """The outcome of a poll: batches as the client gets them, or where its log and the leader's part."""

    pieces: list[Bytes]
    size: int
    diverged: EpochEnd | None
    aborted: tuple[AbortedRange, ...]

    @property
    def is_news(self) -> bool:
        """Whether there is anything to answer with."""
        return self.size > 0 or self.diverged is not None


@dataclass
class _Poll:
    question: Question
    task: asyncio.Task[Polled | RaylogError]
    is_look: bool  # no leader holds it, and nobody has waited for it


class PartitionPolls:
    """The polls of one connection. They are all that is kept for it, and end with it."""

    def __init__(self, link: ClusterLink) -> None:
        self._link = link
        self._polls: dict[Key, _Poll] = {}
        self._marks: dict[Key, Marks] = {}

    def __len__(self) -> int:
        return len(self._polls)

    def keep_only(self, keys: Collection[Key]) -> None:
        """Give up all partitions but these."""
        for key in [each for each in self._polls if each not in keys]:
            self.take(key)
        self._marks = {key: marks for key, marks in self._marks.items() if key in keys}

    def marks(self, key: Key) -> Marks | None:
        """Return the marks of a partition; None: its leader has not answered yet."""
        return self._marks.get(key)

    def begin(self, leader: PartitionLeader, question: Question, bounds: Bounds, show: Show) -> None:
        """Have a poll with this question under way, or over with something to answer."""
        key = (leader.topic_id, leader.partition)
        known = self._polls.get(key)
        if known is not None and known.question == question and not _is_of_no_use(known.task):
            return
        self.take(key)
        is_look = key not in self._marks or bounds.wait_ms <= 0
        bounds = bounds._replace(wait_ms=0 if is_look else max(bounds.wait_ms, _SHORTEST_WAIT_MS))
        task = asyncio.ensure_future(self._poll(leader, question, bounds, show))
        self._polls[key] = _Poll(question, task, is_look)

    def outcome(self, key: Key) -> Polled | RaylogError | None:
        """Return what a poll has brought; None: it is not over."""
        poll = self._polls.get(key)
        return poll.task.result() if poll is not None and poll.task.done() else None

    def take(self, key: Key) -> None:
        """Forget a poll, which was used or is given up."""
        poll = self._polls.pop(key, None)
        if poll is not None:
            poll.task.cancel()

    def under_way(self) -> list[asyncio.Task[Polled | RaylogError]]:
        """Return what can be waited for."""
        return [poll.task for poll in self._polls.values() if not poll.task.done()]

    def looks(self) -> list[asyncio.Task[Polled | RaylogError]]:
        """Return those of them that no leader holds, each once. One that takes long is not waited for again."""
        found = [poll for poll in self._polls.values() if poll.is_look]
        for poll in found:
            poll.is_look = False
        return [poll.task for poll in found if not poll.task.done()]

    def close(self) -> None:
        """Give up all of them."""
        self.keep_only(())

    async def _poll(
        self, leader: PartitionLeader, question: Question, bounds: Bounds, show: Show
    ) -> Polled | RaylogError:
        try:
            return await self._read(leader, question, bounds, show)
        except RaylogError as error:
            return error

    async def _read(self, leader: PartitionLeader, question: Question, bounds: Bounds, show: Show) -> Polled:
        offset, last_epoch, wait_ms = question.offset, question.last_epoch, bounds.wait_ms
        shown = Visible([], offset, False)
        while True:
            asked = question._replace(offset=offset, last_epoch=last_epoch)
            told = await self._ask(leader, asked, bounds._replace(wait_ms=wait_ms))
            answer = told.message
            marks = Marks(answer.high_watermark, answer.last_stable_offset, answer.log_start_offset)
            self._marks[leader.topic_id, leader.partition] = marks
            if not told.payload:
                break
            shown = await show(leader, told.payload, asked)
            end = marks.last_stable_offset if question.committed else marks.high_watermark
            if shown.has_records or shown.next_offset >= end:
                break
            offset, last_epoch, wait_ms = shown.next_offset, NO_EPOCH, 0
        return Polled(shown.pieces, sum(map(len, shown.pieces)), answer.diverged, answer.aborted)

    async def _ask(self, leader: PartitionLeader, asked: Question, bounds: Bounds) -> Told[Fetched]:
        fetch = Fetch(
            asked.offset,
            asked.leader_epoch,
            asked.last_epoch,
            bounds.min_bytes,
            bounds.max_bytes,
            bounds.wait_ms,
            asked.committed,
            "",
        )
        return await self._link.ask(leader, fetch, expect=Fetched, timeout=bounds.wait_ms / 1000 + _GRACE_SECONDS)


def _is_of_no_use(task: asyncio.Task[Polled | RaylogError]) -> bool:
    """Whether a poll is over without anything that an answer could hold."""
    if not task.done():
        return False
    outcome = task.result()
    return not (isinstance(outcome, Polled) and outcome.is_news)
