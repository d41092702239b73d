"""`sticky`: as even as can be, and moving as little as that allows.

What must stay true:
- No assignment is more even: the numbers of partitions of the members, sorted, are the best that the subscriptions
  allow. (Where all want the same topics they differ by at most one.)
- No assignment that is as even leaves more partitions with their owner, as long as all members want the same topics, or
  there are at most `EXACT_MEMBERS` of them, with few partitions (`_EXACT_STEPS`). Beyond that it is even, and moves
  little.

Two ways lead there. With equal subscriptions each member keeps up to its share, which is the optimum. Otherwise it is a
flow problem: a partition that goes from one member to another, and one from that to a third, and so on, is a path (or a
circle) over members; an assignment that no path makes more even, or as even with fewer moves, is optimal, because
the cost of a flow with convex costs has no local optimum that is not the global one.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from raylog.groups.assignors.assignment import (
    Assignment,
    Subscriber,
    TopicPartition,
    TopicShape,
    subscribers_by_topic,
)

EXACT_MEMBERS: Final = 24
_EXACT_STEPS: Final = 4_000_000  # of looking for a better circle: a second or two
_Path: TypeAlias = "list[tuple[int, int, TopicPartition | None]]"  # (from, to, what moves)


def sticky_assignor(subscribers: Sequence[Subscriber], topics: Mapping[str, TopicShape]) -> Assignment:
    ordered = sorted(subscribers, key=lambda each: each.place)
    wanted = [
        (name, number) for name in subscribers_by_topic(ordered, topics) for number in range(topics[name].partitions)
    ]
    homes = _homes(ordered, wanted)
    if len({each.topics.intersection(topics) for each in ordered}) == 1:
        held = [set(partitions) for partitions in _equal_shares(len(ordered), wanted, homes)]
    else:
        even = _Evening(ordered, wanted, homes)
        even.level()
        if len(ordered) <= EXACT_MEMBERS:
            even.cancel_circles()
        held = even.held
    return {member.member_id: sorted(held[number]) for number, member in enumerate(ordered)}


def _homes(ordered: Sequence[Subscriber], wanted: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the present owner of each partition, if it still wants it; of two who claim it the first."""
    exists = set(wanted)
    homes: dict[TopicPartition, int] = {}
    for number, member in enumerate(ordered):
        for partition in member.owned:
            if partition in exists and partition[0] in member.topics:
                homes.setdefault(partition, number)
    return homes


def _equal_shares(
    members: int, wanted: Sequence[TopicPartition], homes: Mapping[TopicPartition, int]
) -> list[list[TopicPartition]]:
    """Let everybody keep up to their share. The larger shares go to those who have most."""
    has: list[list[TopicPartition]] = [[] for _ in range(members)]
    for partition in wanted:
        if partition in homes:
            has[homes[partition]].append(partition)
    share, more = divmod(len(wanted), members)
    larger = set(sorted(range(members), key=lambda member: (-len(has[member]), member))[:more])
    room = [share + (member in larger) for member in range(members)]
    held = [has[member][: room[member]] for member in range(members)]
    kept = {partition for partitions in held for partition in partitions}
    free = deque(partition for partition in wanted if partition not in kept)
    for member in range(members):
        while len(held[member]) < room[member]:
            held[member].append(free.popleft())
    return held


class _Evening:
    """An assignment that is made more even step by step. Members are numbers."""

    def __init__(
        self, ordered: Sequence[Subscriber], wanted: Sequence[TopicPartition], homes: Mapping[TopicPartition, int]
    ) -> None:
        self._homes = homes
        self._wants = [each.topics for each in ordered]
        self._fans: dict[str, list[int]] = defaultdict(list)
        for number, member in enumerate(ordered):
            for topic in member.topics:
                self._fans[topic].append(number)
        self._weight = len(wanted) + 1  # one step of evenness is worth more than all moves together
        self.held: list[set[TopicPartition]] = [set() for _ in ordered]
        for partition in wanted:
            if partition in homes:
                self.held[homes[partition]].add(partition)
        self._offers: dict[int, list[TopicPartition]] = {}
        self._hand_out([partition for partition in wanted if partition not in homes])

    def _hand_out(self, free: Iterable[TopicPartition]) -> None:
        """Each to the member with the fewest, of those who want its topic."""
        fewest: dict[str, list[tuple[int, int]]] = {}
        for partition in free:
            topic = partition[0]
            if topic not in fewest:
                fewest[topic] = [(len(self.held[number]), number) for number in self._fans[topic]]
                heapq.heapify(fewest[topic])
            heap = fewest[topic]
            while heap[0][0] != len(self.held[heap[0][1]]):  # it has got more by another topic
                heapq.heapreplace(heap, (len(self.held[heap[0][1]]), heap[0][1]))
            load, least = heap[0]
            self.held[least].add(partition)
            heapq.heapreplace(heap, (load + 1, least))

    def level(self) -> None:
        """Shift partitions along shortest paths from members to members with two fewer, until there is no such path.

        The member with most is looked at first. Where no path leads from it to somebody with two fewer, none leads
        there from anybody who can be reached from it, now or later: a later path that came by would begin at a member
        with more. So all these are settled, and searches go around them.
        """
        settled: set[int] = set()
        most = [(-len(held), number) for number, held in enumerate(self.held)]
        heapq.heapify(most)
        while most:
            load, start = heapq.heappop(most)
            if start in settled or -load != len(self.held[start]):
                continue
            end = self._level_from(start, settled)
            if end is not None:
                for number in (start, end):
                    heapq.heappush(most, (-len(self.held[number]), number))

    def _level_from(self, start: int, settled: set[int]) -> int | None:
        """Move one partition along a path. Returns who has one more now, at its other end; None: there is no path, and
        who was met is settled.
        """
        came_from: dict[int, tuple[int, TopicPartition]] = {}
        offered: set[str] = set()  # topics whose subscribers have all been reached
        queue = deque([start])
        few = len(self.held[start]) - 2
        while queue:
            member = queue.popleft()
            for partition in self._one_of_each_topic(member):
                if partition[0] in offered:
                    continue
                offered.add(partition[0])
                for other in self._fans[partition[0]]:
                    if other != start and other not in came_from and other not in settled:
                        came_from[other] = (member, partition)
                        if len(self.held[other]) <= few:
                            self._shift_back(start, other, came_from)
                            return other
                        queue.append(other)
        settled.add(start)
        settled.update(came_from)
        return None

    def _one_of_each_topic(self, member: int) -> list[TopicPartition]:
        """Return what this member would give away first: what is not at home here."""
        if member not in self._offers:
            of_topic: dict[str, TopicPartition] = {}
            for partition in sorted(self.held[member], key=lambda each: (self._homes.get(each) == member, each)):
                of_topic.setdefault(partition[0], partition)
            self._offers[member] = list(of_topic.values())
        return self._offers[member]

    def _shift_back(self, start: int, end: int, came_from: Mapping[int, tuple[int, TopicPartition]]) -> None:
        while end != start:
            giver, partition = came_from[end]
            self.held[giver].remove(partition)
            self.held[end].add(partition)
            self._offers.pop(giver, None)
            self._offers.pop(end, None)
            end = giver

    # --- moving as little as possible -----------------------------------------------------------------------------

    def cancel_circles(self) -> None:
        """Make circles of moves as long as one is worth something. The last number is the rest of the world."""
        for _ in range(1 + _EXACT_STEPS // (1 + sum(map(len, self.held)) * len(self.held))):
            circle = self._worthy_circle()
            if not circle:
                return
            for giver, taker, partition in circle:
                if partition is not None:
                    self.held[giver].remove(partition)
                    self.held[taker].add(partition)

    def _worthy_circle(self) -> _Path:
        """Bellman and Ford: a circle with negative cost, or nothing."""
        edges = self._edges()
        members = len(self.held) + 1
        cost = [0] * members
        by = [-1] * members  # the edge that each was last reached by
        changed: int | None = None
        for _ in range(members):
            changed = None
            for number, (giver, taker, price, _) in enumerate(edges):
                if cost[giver] + price < cost[taker]:
                    cost[taker] = cost[giver] + price
                    by[taker] = changed = number
            if changed is None:
                return []
        assert changed is not None
        return self._circle(edges, by, edges[changed][1])

    def _circle(
        self, edges: Sequence[tuple[int, int, int, TopicPartition | None]], by: Sequence[int], inside: int
    ) -> _Path:
        for _ in by:  # so many steps back one is on the circle for certain
            inside = edges[by[inside]][0]
        circle: _Path = []
        member = inside
        while not circle or member != inside:
            giver, taker, _, partition = edges[by[member]]
            circle.append((giver, taker, partition))
            member = giver
        return circle

    def _edges(self) -> list[tuple[int, int, int, TopicPartition | None]]:
        """(from, to, price, what moves). To and from the rest of the world: what one more or less makes uneven."""
        world = len(self.held)
        edges: list[tuple[int, int, int, TopicPartition | None]] = []
        for giver, held in enumerate(self.held):
            edges.append((giver, world, self._weight * (2 * len(held) + 1), None))
            edges.append((world, giver, self._weight * (1 - 2 * len(held)), None))
            best: dict[int, tuple[int, TopicPartition]] = {}
            for partition in sorted(held):
                home = self._homes.get(partition)
                for taker in self._fans[partition[0]]:
                    if taker != giver:
                        price = (home == giver) - (home == taker)
                        if taker not in best or price < best[taker][0]:
                            best[taker] = (price, partition)
            edges += [(giver, taker, price, partition) for taker, (price, partition) in best.items()]
        return edges
