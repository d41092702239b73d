"""Moves of replicas, so that brokers hold equally many: the decision of `raylog cluster rebalance`.

A replica moves from the broker that holds most to one that holds least, as long as they differ by more than one, and
only where the partition's spread over racks and nodes does not become worse. As few move as that takes. The new broker
takes the replica's place in the order, so preferred leaders move with it. Then leaders are evened out by exchanging the
first replica with another one of the same partition, which moves no data.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from raylog.actors.cluster.placement.placement import Site

Partition: TypeAlias = tuple[str, int]
Placement: TypeAlias = dict[Partition, tuple[int, ...]]


class Move(NamedTuple):
    partition: Partition
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def moves_data(self) -> bool:
        return set(self.before) != set(self.after)


def plan(placement: Mapping[Partition, Sequence[int]], sites: Iterable[Site]) -> list[Move]:
    """`placement`: the replicas there are; `sites`: brokers that may be used. What changes, by partition."""
    usable = {site.broker: site for site in sites}
    now: Placement = {partition: tuple(replicas) for partition, replicas in sorted(placement.items())}
    if usable:
        _even_replicas(now, usable)
        _even_leaders(now, usable)
    changed = ((partition, tuple(placement[partition]), after) for partition, after in now.items())
    return [Move(*each) for each in changed if each[1] != each[2]]


def _even_replicas(now: Placement, usable: Mapping[int, Site]) -> None:
    while True:
        load = _load(now, usable)
        step = next(_steps(now, load, usable), None)
        if step is None:
            return
        partition, giver, taker = step
        now[partition] = tuple(taker if each == giver else each for each in now[partition])


def _steps(now: Placement, load: Counter[int], usable: Mapping[int, Site]) -> Iterator[tuple[Partition, int, int]]:
    """Yield moves that would even the load out, the largest difference first."""
    pairs = [(giver, taker) for giver in usable for taker in usable if load[giver] - load[taker] > 1]
    for giver, taker in sorted(pairs, key=lambda pair: (load[pair[1]] - load[pair[0]], pair)):
        for partition, replicas in now.items():
            if giver in replicas and taker not in replicas and _keeps_spread(replicas, giver, taker, usable):
                yield partition, giver, taker


def _keeps_spread(replicas: Sequence[int], giver: int, taker: int, usable: Mapping[int, Site]) -> bool:
    after = [taker if each == giver else each for each in replicas]
    return _spread(after, usable) >= _spread(replicas, usable)


def _spread(replicas: Sequence[int], usable: Mapping[int, Site]) -> tuple[int, int]:
    """Return on how many racks and nodes the replicas are."""
    sites = [usable[each] for each in replicas if each in usable]
    return len({site.rack for site in sites}), len({site.node for site in sites})


def _load(now: Placement, usable: Mapping[int, Site]) -> Counter[int]:
    return Counter({broker: sum(broker in replicas for replicas in now.values()) for broker in usable})


def _even_leaders(now: Placement, usable: Mapping[int, Site]) -> None:
    leaders = Counter(dict.fromkeys(usable, 0))
    leaders.update(replicas[0] for replicas in now.values())
    is_changed = True
    while is_changed:
        is_changed = False
        for partition, replicas in now.items():
            first = replicas[0]
            heirs = [each for each in replicas[1:] if each in usable]
            heir = min(heirs, key=lambda each: (leaders[each], each), default=first)
            if leaders[first] - leaders[heir] > 1:
                others = [first if each == heir else each for each in replicas[1:]]
                now[partition] = (heir, *others)
                leaders[first] -= 1
                leaders[heir] += 1
                is_changed = True
