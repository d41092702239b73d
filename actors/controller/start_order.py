"""The order in which missing replicas are started.

A node starts few processes at a time. So when many are missing at once, the order decides how long nothing is
acknowledged. What a partition needs for its `min.insync.replicas` comes first, users' topics before raylog's own, and
among these whatever has the fewest replicas yet. A partition needs one of its last members first, which alone may lead
(rule 6). Further replicas only make partitions safer again: they come last. Replicas for which a host has a place are
no matter of processes: as long as no broker of a node says that a start has to wait for one, more and more are under
way there.

What must stay true:
- A replica that waits for a slot gets one in the end: each that is done frees one, and those that are wanted more are
  finitely many.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Container, Iterable
from contextlib import asynccontextmanager
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final, NamedTuple

from raylog.actors.cluster.state import ClusterState, ReplicaKey

_MOST_AT_ONCE: Final = 256  # under way on a node
_MORE_AT_ONCE: Final = 16  # for each that has found a place
# Losses that one event has caused are reported one after the other: a broker reports what is new when its last report
# is committed. So where it has many replicas, a slot is given when none was reported for so long, and after the longer
# time in any case. What is wanted so much that nothing could come before it gets a slot at once.
_QUIET_SECONDS: Final = 0.15
_LONGEST_SECONDS: Final = 0.5
_RANKED_EACH_TIME: Final = 64  # of more that wait, not each is looked at whenever a slot is free


class Rank(NamedTuple):
    """The lowest is started first."""

    is_spare: bool  # the partition has what acknowledgements need without it
    is_internal: bool
    there: int  # replicas that live already, or are being started

    @property
    def is_highest(self) -> bool:
        return not (self.is_spare or self.is_internal or self.there)


def rank(state: ClusterState, is_present: Callable[[ReplicaKey], bool], key: ReplicaKey) -> Rank:
    """`is_present`: whether a replica lives, or is being started."""
    partition = state.partitions.get(key.partition_id)
    if partition is None:  # it is not wanted any more, which its turn will show
        return Rank(False, False, 0)
    members = partition.last_members or partition.replicas
    others = [broker for broker in partition.replicas if broker != key.broker_id]
    present = {broker for broker in others if is_present(ReplicaKey(*partition.id, broker))}
    minimum, there = state.min_insync(partition), len(present)
    if key.broker_id in members:
        is_spare = there >= minimum and not present.isdisjoint(members)
    else:  # of use once there is a leader, and where the members alone are too few
        is_spare = len(present.difference(members)) >= minimum - len(members)
        there = max(there, 1)
    return Rank(is_spare, state.topics[partition.topic_id].is_internal, there)


class StartOrder:
    """`rank_of` is asked anew each time a slot is free, and `slots`, how many a node has at least, too."""

    def __init__(self, rank_of: Callable[[ReplicaKey], Rank], slots: Callable[[str], int]) -> None:
        self.underway: set[ReplicaKey] = set()
        self._rank_of = rank_of
        self._slots_at_least = slots
        self._more: Counter[str] = Counter()  # slots by node, while none there needs a process
        self._need_process: dict[ReplicaKey, str] = {}
        self._loop = asyncio.get_running_loop()
        self._taken: Counter[str] = Counter()  # by node
        self._gathering: dict[str, tuple[float, asyncio.TimerHandle]] = {}  # until when at most
        self._waiting: dict[str, dict[ReplicaKey, asyncio.Future[None]]] = {}
        self._ranked: dict[str, _Ranked] = {}  # by node, of very many that wait there

    @asynccontextmanager
    async def turn(self, key: ReplicaKey, node: str, *, gather: bool) -> AsyncIterator[None]:
        """Have a slot of its node. `gather`: others may be missing too, which is not known yet."""
        granted: asyncio.Future[None] = self._loop.create_future()
        waiting = self._waiting.setdefault(node, {})
        waiting[key] = granted
        if node in self._ranked:
            self._ranked[node].add(key)
        if gather and self._rank_of(key).is_highest and self._taken[node] < self._slots(node):
            self._give(node, key)
        elif gather:
            self._grant_later(node)
        else:
            self._grant(node)
        try:
            await granted
            yield
        finally:
            waiting.pop(key, None)
            if granted.done() and not granted.cancelled():
                self.underway.discard(key)
                self._need_process.pop(key, None)
                self._taken[node] -= 1
                self._grant(node)

    def found_place(self, node: str) -> None:
        """A start there needs no process, so more may be under way."""
        self._more[node] = min(self._more[node] + _MORE_AT_ONCE, _MOST_AT_ONCE)
        self._grant(node)

    def needs_process(self, key: ReplicaKey, node: str) -> None:
        """A start under way has to wait for a process. Others would wait with it, in no order."""
        self._need_process[key] = node
        del self._more[node]

    def _slots(self, node: str) -> int:
        more = 0 if node in self._need_process.values() else self._more[node]
        return self._slots_at_least(node) + more

    def _grant_later(self, node: str) -> None:
        now = self._loop.time()
        until, timer = self._gathering.pop(node, (now + _LONGEST_SECONDS, None))
        if timer is not None:
            timer.cancel()
        self._gathering[node] = until, self._loop.call_at(min(now + _QUIET_SECONDS, until), self._gathered, node)

    def _gathered(self, node: str) -> None:
        del self._gathering[node]
        self._grant(node)

    def _grant(self, node: str) -> None:
        waiting = self._waiting.get(node, {})
        while node not in self._gathering and waiting and self._taken[node] < self._slots(node):
            self._give(node, self._next(node, waiting))

    def rank_anew(self) -> None:
        """Take note that something was lost: what waits may be wanted more than it was."""
        for ranked in self._ranked.values():
            ranked.is_outdated = True

    def _next(self, node: str, waiting: dict[ReplicaKey, asyncio.Future[None]]) -> ReplicaKey:
        """Return who is wanted most."""
        if len(waiting) <= _RANKED_EACH_TIME:
            self._ranked.pop(node, None)
            return min(waiting, key=self._rank_of)
        ranked = self._ranked.get(node)
        if ranked is None or (ranked.is_outdated and ranked.taken >= _RANKED_EACH_TIME):
            ranked = self._ranked[node] = _Ranked(self._rank_of, waiting)
        return ranked.take(waiting)

    def _give(self, node: str, key: ReplicaKey) -> None:
        granted = self._waiting[node].pop(key)
        if not granted.done():
            self._taken[node] += 1
            self.underway.add(key)
            granted.set_result(None)


class _Ranked:
    """Replicas that wait at one node, the most wanted first. It holds all of them, and perhaps some that went away.

    Of those that are wanted less by now, since others of their partitions are there, `take` finds that out.
    """

    def __init__(self, rank_of: Callable[[ReplicaKey], Rank], waiting: Iterable[ReplicaKey]) -> None:
        self.is_outdated = False  # some may be wanted more than it says
        self.taken = 0
        self._rank_of = rank_of
        self._numbers = count()
        self._heap = [(rank_of(key), next(self._numbers), key) for key in waiting]
        heapify(self._heap)

    def add(self, key: ReplicaKey) -> None:
        heappush(self._heap, (self._rank_of(key), next(self._numbers), key))

    def take(self, waiting: Container[ReplicaKey]) -> ReplicaKey:
        """Return who is wanted most of those that wait. There is one."""
        while True:
            believed, _, key = heappop(self._heap)
            if key not in waiting:
                continue
            if self._rank_of(key) <= believed:
                self.taken += 1
                return key
            self.add(key)
