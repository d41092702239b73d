"""Which broker belongs into which directory of which node: the decisions of `broker_fleet.py`.

    home        a data directory on a node. Its broker is known once a number has been found in it or given to it.
    wanted      a home on a living node whose broker has no actor

What must stay true:
- A directory keeps its broker for ever; a node that comes back under another id with its directory brings the same
  broker back. The newest word about a broker's home counts.
- A number is given to one directory only, also if the process that gave it ends right afterwards: at formation the
  numbers follow from the homes alone; later ones are above every number that anybody has ever been seen with.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

UNNUMBERED = -1


@dataclass(frozen=True)
class BrokerHome:
    node_id: str
    directory: str
    broker_id: int = UNNUMBERED


def number_all(homes: Iterable[BrokerHome]) -> tuple[BrokerHome, ...]:
    """The homes of a cluster that is being formed, each with a number of its own."""
    listed = tuple(homes)
    taken = {home.broker_id for home in listed}
    free = (number for number in range(len(listed) + len(taken)) if number not in taken)
    return tuple(
        replace(home, broker_id=next(free)) if home.broker_id == UNNUMBERED else home for home in listed
    )


class BrokerHomes:
    """All homes that have been heard of."""

    def __init__(self) -> None:
        self._homes: dict[tuple[str, str], BrokerHome] = {}
        self._retired: set[int] = set()

    def learn(self, home: BrokerHome) -> None:
        """A home was named or found. A number that is known is not forgotten."""
        place = home.node_id, home.directory
        known = self._homes.get(place)
        if known is not None and home.broker_id == UNNUMBERED:
            return
        if home.broker_id != UNNUMBERED:
            self._retired.discard(home.broker_id)
            for other in self._of(home.broker_id):
                del self._homes[other.node_id, other.directory]
        self._homes[place] = home

    def retire(self, broker_id: int) -> None:
        """Its broker is not to be made again."""
        self._retired.add(broker_id)

    def number(self, taken: Collection[int]) -> None:
        """Give numbers to the homes that have none, above all of `taken`."""
        highest = max((*taken, *self._retired, *(home.broker_id for home in self._homes.values())), default=UNNUMBERED)
        for place, home in list(self._homes.items()):
            if home.broker_id == UNNUMBERED:
                highest += 1
                self._homes[place] = replace(home, broker_id=highest)

    def broker_at(self, node_id: str, directory: str) -> int:
        """UNNUMBERED where it has none, or is unknown."""
        home = self._homes.get((node_id, directory))
        return UNNUMBERED if home is None else home.broker_id

    def knows(self, node_id: str) -> bool:
        return any(home.node_id == node_id for home in self._homes.values())

    def knows_broker(self, broker_id: int) -> bool:
        return bool(self._of(broker_id))

    def wanted(self, living_nodes: Collection[str], running: Collection[int]) -> list[BrokerHome]:
        """Where a broker actor is missing."""
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
