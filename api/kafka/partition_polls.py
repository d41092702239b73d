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
- What polls have brought has room in the connection's account, and no more than one connection may have (rule 31). What
  finds none is let go at once, and asked for again: with less, and once there is room. A fetch that has something to
  answer with does not wait for that, nor does what is kept for the next one.
- Where compaction has left nothing but fillers a poll reads on. What it ends with has records, or reaches the end of
  what is visible.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from raylog.actors.kernel.prompt_call import PromptCall
from raylog.actors.kernel.stream_interface import Told
from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.link.rules.topic_cache import PartitionLeader
from raylog.actors.protocol.replication_messages import NO_EPOCH, AbortedRange, EpochEnd, Fetch, Fetched
from raylog.api.kafka.rules.batch_conversion import Visible
from raylog.api.kafka.rules.memory_budget import Account
from raylog.errors import RaylogError
from raylog.storage.format.record_batch import HEADER_BYTES, Bytes, read_header

_GRACE_SECONDS: Final = 5.0  # beyond the time for which the leader may hold a fetch
_SHORTEST_WAIT_MS: Final = 1
MOST_BYTES: Final = 16 * 1024 * 1024  # that polls of one connection hold, but for the first batch
_SHORT_BYTES: Final = 256 * 1024  # asked for where many wait for room: all get a little, before anybody gets much

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


@dataclass(eq=False)
class _Poll:
    question: Question
    is_look: bool  # no leader holds it, and nobody has waited for it
    held: int = 0  # bytes
    call: PromptCall[Polled | RaylogError] | None = None  # none while it begins

    @property
    def is_over(self) -> bool:
        return self.call is not None and self.call.done()

    @property
    def outcome(self) -> Polled | RaylogError | None:
        """Return what it has brought; None: it is not over."""
        return self.call.result() if self.call is not None and self.call.done() else None

    @property
    def is_of_no_use(self) -> bool:
        """Whether it is over without anything that an answer could hold."""
        outcome = self.outcome
        return outcome is not None and not (isinstance(outcome, Polled) and outcome.is_news)


class PartitionPolls:
    """The polls of one connection. They are all that is kept for it, and end with it."""

    def __init__(self, link: ClusterLink, account: Account) -> None:
        self._link = link
        self._account = account
        self._polls: dict[Key, _Poll] = {}
        self._marks: dict[Key, Marks] = {}
        self._held = 0
        self._is_fetching = False
        self._is_pressed = False
        self._has_changed = False  # since the fetch looked last
        self._change: asyncio.Future[None] | None = None  # that the fetch waits for

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
        if known is not None and known.question == question and not known.is_of_no_use:
            return
        self.take(key)
        is_look = key not in self._marks or bounds.wait_ms <= 0
        wait_ms = 0 if is_look else max(bounds.wait_ms, _SHORTEST_WAIT_MS)
        bounds = Bounds(bounds.min_bytes, bounds.max_bytes, wait_ms)
        poll = self._polls[key] = _Poll(question, is_look)
        poll.call = PromptCall(self._poll(poll, leader, bounds, show), self._note_change)
        if poll.is_over:
            self._note_change()

    def outcome(self, key: Key) -> Polled | RaylogError | None:
        """Return what a poll has brought; None: it is not over."""
        poll = self._polls.get(key)
        return None if poll is None else poll.outcome

    def take(self, key: Key) -> None:
        """Forget a poll, which was used or is given up."""
        poll = self._polls.pop(key, None)
        if poll is not None:
            if poll.call is not None:
                poll.call.cancel()
            self._hold(poll, 0)

    @property
    def is_under_way(self) -> bool:
        """Whether there is a poll that can be waited for."""
        return not all(poll.is_over for poll in self._polls.values())

    # --- one fetch after the other --------------------------------------------------------------------------------

    def begin_fetch(self) -> None:
        """Take what polls bring for a fetch that waits for it, until `end_fetch`."""
        self._is_fetching, self._is_pressed, self._has_changed = True, False, False

    def end_fetch(self) -> None:
        """Keep what is left for the next fetch, as long as nobody waits for the room that it takes."""
        self._is_fetching = False
        self._keep()

    async def change(self, seconds: float) -> None:
        """Wait until a poll is over or the fetch is pressed, since this was called last, but no longer than that."""
        if not self._has_changed:
            loop = asyncio.get_running_loop()
            self._change = loop.create_future()
            timer = loop.call_later(seconds, self._note_change)
            try:
                await self._change
            finally:
                timer.cancel()
                self._change = None
        self._has_changed = False

    def _note_change(self, _: object = None) -> None:
        self._has_changed = True
        if self._change is not None and not self._change.done():
            self._change.set_result(None)

    @property
    def is_pressed(self) -> bool:
        """Whether the fetch is to be answered with what there is: others wait for room, or there is none here."""
        return self._is_pressed or self._account.budget.is_waited_for

    def _press(self) -> bool:
        """Have the fetch that waits, if there is one, answered with what there is."""
        if self._is_fetching and not self._is_pressed:
            self._is_pressed = True
            self._note_change()
        return self._is_fetching

    def _keep(self) -> None:
        if self._held:
            self._account.budget.keeps(self._account, self._let_go)

    def _let_go(self) -> None:
        if self._press():
            return
        for key in [key for key, poll in self._polls.items() if poll.held or poll.is_over]:
            self.take(key)

    # --- one poll -------------------------------------------------------------------------------------------------

    def looks(self) -> list[asyncio.Future[Polled | RaylogError]]:
        """Return those of them that no leader holds, each once. One that takes long is not waited for again."""
        found = [poll for poll in self._polls.values() if poll.is_look]
        for poll in found:
            poll.is_look = False
        return [poll.call for poll in found if poll.call is not None and not poll.call.done()]

    def close(self) -> None:
        """Give up all of them."""
        self.keep_only(())

    async def _poll(
        self, poll: _Poll, leader: PartitionLeader, bounds: Bounds, show: Show
    ) -> Polled | RaylogError:
        try:
            return await self._read(poll, leader, bounds, show)
        except RaylogError as error:
            self._hold(poll, 0)
            return error

    async def _read(self, poll: _Poll, leader: PartitionLeader, bounds: Bounds, show: Show) -> Polled:
        question = asked = poll.question
        shown = Visible([], asked.offset, False)
        while True:
            told = await self._fetched(poll, leader, asked, bounds)
            if told is None:
                return Polled([], 0, None, ())
            answer = told.message
            marks = Marks(answer.high_watermark, answer.last_stable_offset, answer.log_start_offset)
            self._marks[leader.topic_id, leader.partition] = marks
            if not told.payload:
                break
            shown = await show(leader, told.payload, asked)
            end = marks.last_stable_offset if question.committed else marks.high_watermark
            if shown.has_records or shown.next_offset >= end:
                break
            asked = question._replace(offset=shown.next_offset, last_epoch=NO_EPOCH)
            bounds = bounds._replace(wait_ms=0)
        size = sum(map(len, shown.pieces))
        self._hold(poll, size)
        self._keep()
        return Polled(shown.pieces, size, answer.diverged, answer.aborted)

    async def _fetched(
        self, poll: _Poll, leader: PartitionLeader, asked: Question, bounds: Bounds
    ) -> Told[Fetched] | None:
        """Return what the leader has, which has room. None: there is no room, and others to answer with.

        Nobody knows before how much a poll will bring, and most bring nothing. So room is not asked for before that.
        """
        self._hold(poll, 0)
        told = await self._ask(leader, asked, bounds)
        size = len(told.payload)
        if self._may_hold(poll, size):
            return told
        has_others = any(each.held and each.is_over for each in self._polls.values())
        if (self._press() and has_others) or not self._is_fetching:
            return None
        size = max(_first_batch(told.payload), min(size, _SHORT_BYTES))
        del told
        await self._room_for(poll, size)
        told = await self._ask(leader, asked, bounds._replace(max_bytes=size, wait_ms=0))
        self._hold(poll, len(told.payload))
        return told

    # --- room -----------------------------------------------------------------------------------------------------

    def _hold(self, poll: _Poll, size: int) -> None:
        """Count what a poll holds now."""
        change, poll.held = size - poll.held, size
        if change == 0:
            return
        self._held += change
        self._account.take(change)
        if self._held == 0:
            self._account.budget.keeps_nothing(self._account)

    def _may_hold(self, poll: _Poll, size: int) -> bool:
        """Count what a poll has brought, if there is room for it."""
        if self._held and self._held + size > MOST_BYTES:
            return False
        has_room = self._account.may_take(size)
        if has_room:
            poll.held += size
            self._held += size
        return has_room

    async def _room_for(self, poll: _Poll, size: int) -> None:
        """Wait until there is room for so much, and hold it."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        is_granted = False

        def granted() -> None:
            nonlocal is_granted
            is_granted = True
            if not turn.done():
                turn.set_result(None)

        waiter = self._account.wait(size, granted)
        try:
            await turn
        except asyncio.CancelledError:
            if is_granted:
                self._account.take(-size)
            else:
                self._account.budget.withdraw(waiter)
            raise
        poll.held += size
        self._held += size

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


def _first_batch(data: Bytes) -> int:
    """Return the bytes of the first batch, which is always read whole."""
    return min(read_header(data).size, len(data)) if len(data) >= HEADER_BYTES else len(data)
