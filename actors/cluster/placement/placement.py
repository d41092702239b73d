"""The choice of brokers for replicas. What counts, in order of weight:

1. The replicas of a partition are on distinct brokers.
2. They are spread over racks, and within that over nodes: no rack gets one more while another could take it.
3. The leaders (first replicas) are spread evenly over brokers, counting the partitions that are there already.
4. So are the replicas.

Equals are told apart by broker id, so the same state gives the same placement. The caller says which brokers
may be used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Site(NamedTuple):
    """The place of a broker."""

    broker: int
    rack: str
    node: str


class Load:
    """The number of replicas and leaders that each broker has; placing adds to it."""

    def __init__(self, replicas: dict[int, int] | None = None, leaders: dict[int, int] | None = None) -> None:
        self.replicas = Counter(replicas or {})
        self.leaders = Counter(leaders or {})

    def add(self, replicas: Sequence[int]) -> None:
        """A partition with these replicas, the first of them the leader."""
        self.replicas.update(replicas)
        self.leaders[replicas[0]] += 1


def place_partitions(
    sites: Sequence[Site], partitions: int, replication_factor: int, load: Load
) -> list[tuple[int, ...]]:
    """Replicas for so many new partitions. There are at least as many sites as replicas are asked for."""
    placed = []
    for _ in range(partitions):
        leader = min(sites, key=lambda site: (load.leaders[site.broker], load.replicas[site.broker], site.broker))
        chosen = [leader]
        while len(chosen) < replication_factor:
            chosen.append(_next_site(sites, chosen, load))
        replicas = tuple(site.broker for site in chosen)
        load.add(replicas)
        placed.append(replicas)
    return placed


def place_another(sites: Sequence[Site], present: Iterable[Site], load: Load) -> int | None:
    """A broker for one more replica beside those; None where each site has one. It is added to the load."""
    beside = list(present)
    taken = {site.broker for site in beside}
    if all(site.broker in taken for site in sites):
        return None
    broker = _next_site(sites, beside, load).broker
    load.replicas[broker] += 1
    return broker


def most_dispensable(present: Sequence[Site], candidates: Sequence[int], load: Load) -> int:
    """The replica that a partition's spread, and then the balance of the brokers, misses least."""
    racks, nodes = _occupied(present)

    def rank(site: Site) -> tuple[int, int, int, int]:
        return racks[site.rack], nodes[site.node], load.replicas[site.broker], site.broker

    return max((site for site in present if site.broker in candidates), key=rank).broker


def _next_site(sites: Sequence[Site], chosen: Sequence[Site], load: Load) -> Site:
    taken = {site.broker for site in chosen}
    racks, nodes = _occupied(chosen)

    def rank(site: Site) -> tuple[int, int, int, int, int]:
        # Of equally loaded brokers rather one that leads a lot: those that lead less are about to get leaders.
        load_here = load.replicas[site.broker]
        return racks[site.rack], nodes[site.node], load_here, -load.leaders[site.broker], site.broker

    return min((site for site in sites if site.broker not in taken), key=rank)


def _occupied(chosen: Iterable[Site]) -> tuple[Counter[str], Counter[str]]:
    sites = list(chosen)
    return Counter(site.rack for site in sites), Counter(site.node for site in sites)
