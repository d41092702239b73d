"""Which missing replica is started next on a node, and how many at once.

    asked for ──a slot of its node is free, and nobody waits who is wanted more──► underway ──► done

A node starts few processes at a time. So when many are missing at once, the order decides how long nothing is
acknowledged: what a partition needs for its `min.insync.replicas` comes first, users' topics before raylog's own, and
among these whatever has the fewest replicas yet. A partition needs one of its last members first, which alone may lead
(rule 6). Further replicas only make partitions safer again: they come last.

What must stay true: who waits for a slot gets one in the end, for each that is done frees one, and those that are
wanted more are finitely many.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from raylog.actors.cluster.state import ClusterState, ReplicaKey

# Losses that one event has caused are heard of one after the other: a broker reports what is new when its last report
# is committed. So where it has many replicas, a slot is given when none was heard of for so long, and after the longer
# time in any case; at once to what is wanted so much that nothing could come before it.
_QUIET_SECONDS: Final = 0.15
_LONGEST_SECONDS: Final = 0.5


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
    if partition is None:  # nobody wants it any more, which its turn will show
        return Rank(False, False, 0)
    members = partition.last_members or partition.replicas
    others = [broker for broker in partition.replicas if broker != key.broker_id]
    present = {broker for broker in others if is_present(ReplicaKey(*partition.id, broker))}
    minimum, there = state.min_insync(partition), len(present)
    if key.broker_id in members:
        is_spare = there >= minimum and not present.isdisjoint(members)
    else:  # of use once somebody leads, and where the members alone are too few
        is_spare = len(present.difference(members)) >= minimum - len(members)
        there = max(there, 1)
    return Rank(is_spare, state.topics[partition.topic_id].is_internal, there)


class StartOrder:
    """`rank_of` is asked anew each time a slot is free, and `slots`, how many a node has, too."""

    def __init__(self, rank_of: Callable[[ReplicaKey], Rank], slots: Callable[[str], int]) -> None:
        self.underway: set[ReplicaKey] = set()
        self._rank_of = rank_of
        self._slots = slots
        self._loop = asyncio.get_running_loop()
        self._taken: Counter[str] = Counter()  # by node
        self._gathering: dict[str, tuple[float, asyncio.TimerHandle]] = {}  # until when at most
        self._waiting: dict[str, dict[ReplicaKey, asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def turn(self, key: ReplicaKey, node: str, *, gather: bool) -> AsyncIterator[None]:
        """Have a slot of its node. `gather`: others may be missing too, of which nobody has heard yet."""
        granted: asyncio.Future[None] = self._loop.create_future()
        waiting = self._waiting.setdefault(node, {})
        waiting[key] = granted
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
                self._taken[node] -= 1
                self._grant(node)

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
            self._give(node, min(waiting, key=self._rank_of))

    def _give(self, node: str, key: ReplicaKey) -> None:
        granted = self._waiting[node].pop(key)
        if not granted.done():
            self._taken[node] += 1
            self.underway.add(key)
            granted.set_result(None)
