"""Decisions of `broker_fleet.py`: which broker belongs into which directory of which node.

    home        a data directory on a node. Its broker is known once a number has been found in it or given to it.
    wanted      a home on a living node whose broker has no actor

What must stay true:
- A directory keeps its broker for ever. A node that comes back under another id with its directory brings the same
  broker back. The newest report of a broker's home counts.
- A number that was read from a directory, or under which a broker has run, is bound to the data of that directory. It
  is never given to a blank one (`may_claim`).
- A start adds no brokers to a node that has some in another folder, unless it was told to (`beside_others`): those of
  a wrong path would be there for good.
- A number is given to one directory only, also if the process that gave it ends right afterwards. At formation the
  numbers follow from the homes alone; later ones are written into the metadata log before they are given.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from os.path import dirname
from typing import Final

from raylog.errors import BrokerWasRemoved

UNNUMBERED: Final = -1
MAX_VOTERS: Final = 3


@dataclass(frozen=True)
class BrokerHome:
    node_id: str
    directory: str
    broker_id: int = UNNUMBERED
    is_claimed: bool = False  # the number stands in the directory, or did


def number_all(homes: Iterable[BrokerHome]) -> tuple[BrokerHome, ...]:
    """Return the homes of a cluster that is being formed, each with a number of its own."""
    listed = tuple(homes)
    taken = {home.broker_id for home in listed}
    free = (number for number in range(len(listed) + len(taken)) if number not in taken)
    return tuple(
        replace(home, broker_id=next(free)) if home.broker_id == UNNUMBERED else home for home in listed
    )


def first_voters(homes: Sequence[BrokerHome]) -> tuple[int, ...]:
    """Return the first voters of a new cluster: up to three brokers, on as many nodes as possible."""
    rank: dict[str, int] = {}
    ranked = []
    for home in homes:
        rank[home.node_id] = rank.get(home.node_id, -1) + 1
        ranked.append((rank[home.node_id], home.broker_id))
    voters = [broker for _, broker in sorted(ranked)[:MAX_VOTERS]]
    return tuple(voters if len(voters) != 2 else voters[:1])  # two are no safer than one


def moved(homes: Iterable[BrokerHome], before: str, now: str) -> tuple[BrokerHome, ...]:
    """Return the homes after the node `before` has come back under the id `now`."""
    return tuple(replace(home, node_id=now) if home.node_id == before else home for home in homes)


def without_removed(homes: Sequence[BrokerHome], removed: Collection[int]) -> Sequence[BrokerHome]:
    """Return the homes in which a broker may run. BrokerWasRemoved: there is none among these."""
    kept = [home for home in homes if home.broker_id not in removed]
    if homes and not kept:
        raise BrokerWasRemoved(homes[0].directory, homes[0].broker_id)
    return kept


class BrokerHomes:
    """All homes that are known."""

    def __init__(self) -> None:
        self._homes: dict[tuple[str, str], BrokerHome] = {}
        self._retired: set[int] = set()
        self._bound: set[int] = set()

    def learn(self, home: BrokerHome) -> None:
        """Note a home. A known number is not forgotten, unless its broker was removed."""
        place = home.node_id, home.directory
        known = self._homes.get(place)
        if known is not None and home.broker_id == UNNUMBERED and known.broker_id not in self._retired:
            return
        if home.is_claimed:
            self.bind(home.broker_id)
        if home.broker_id != UNNUMBERED:
            self._retired.discard(home.broker_id)
            for other in self._of(home.broker_id):
                del self._homes[other.node_id, other.directory]
        self._homes[place] = home

    def bind(self, broker_id: int) -> None:
        """Note that the directory of this broker holds its identity."""
        self._bound.add(broker_id)

    def may_claim(self, broker_id: int) -> bool:
        """Return whether the directory of this broker may still be blank."""
        return broker_id not in self._bound

    def retire(self, broker_id: int) -> None:
        """Note that this broker is not to be made again."""
        self._retired.add(broker_id)

    def keep(self, broker_id: int) -> None:
        """Undo `retire`: the broker is to be made again."""
        self._retired.discard(broker_id)

    def unnumbered(self, living_nodes: Collection[str]) -> list[BrokerHome]:
        """Return the homes that could run if they had a number."""
        homes = self._homes.values()
        return [home for home in homes if home.broker_id == UNNUMBERED and home.node_id in living_nodes]

    def highest(self) -> int:
        """Return the highest of all numbers that are known here."""
        return max((*self._retired, *(home.broker_id for home in self._homes.values())), default=UNNUMBERED)

    def number(self, homes: Sequence[BrokerHome], first: int) -> None:
        """Give these homes the numbers from `first` on."""
        for number, home in enumerate(homes, first):
            self._homes[home.node_id, home.directory] = replace(home, broker_id=number)

    def copied(self, home: BrokerHome, hosts: Mapping[str, str]) -> BrokerHome | None:
        """Return the home of this broker on another living node; None: there is none. `hosts`: of the living nodes.

        A node that has come back under another id may still be taken for alive under the former one.
        """
        for known in self._of(home.broker_id) if home.is_claimed else ():
            is_same = known.directory == home.directory and hosts.get(known.node_id) == hosts.get(home.node_id)
            if known.node_id in hosts and known.broker_id not in self._retired and not is_same:
                return known
        return None

    def beside_others(self, home: BrokerHome) -> str:
        """Return another folder, in which this home's node has brokers; empty: this home would add none beside those.

        A home that is known, or holds the identity of a broker, adds none. Nor does one in a folder with others: there
        somebody has asked for more brokers by their number.
        """
        if home.broker_id != UNNUMBERED or (home.node_id, home.directory) in self._homes:
            return ""
        present = [each for each in self._homes.values() if each.node_id == home.node_id]
        folders = sorted({dirname(each.directory) for each in present if each.broker_id not in self._retired})
        return "" if dirname(home.directory) in folders else ", ".join(folders)

    def broker_at(self, node_id: str, directory: str) -> int:
        """Return the number of the broker there; UNNUMBERED: none, or unknown."""
        home = self._homes.get((node_id, directory))
        return UNNUMBERED if home is None else home.broker_id

    def place_on_node(self, home: BrokerHome) -> int:
        """Return how many brokers of the same node come before this one: the same as long as none is removed."""
        beside = [each for each in self._homes.values() if each.node_id == home.node_id]
        return sum(UNNUMBERED < each.broker_id < home.broker_id for each in beside)

    def knows(self, node_id: str) -> bool:
        return any(home.node_id == node_id for home in self._homes.values())

    def knows_broker(self, broker_id: int) -> bool:
        return bool(self._of(broker_id))

    def wanted(self, living_nodes: Collection[str], running: Collection[int]) -> list[BrokerHome]:
        """Return the homes whose broker actor is missing."""
        return [
            home
            for home in self._homes.values()
            if home.node_id in living_nodes
            and home.broker_id not in running
            and home.broker_id not in self._retired
            and home.broker_id != UNNUMBERED
        ]

    def _of(self, broker_id: int) -> list[BrokerHome]:
        return [home for home in self._homes.values() if home.broker_id == broker_id]
