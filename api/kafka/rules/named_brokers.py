"""Names of gateways for clients: which broker a client is sent to, for a partition or for a group.

Any gateway serves everything, so a name decides only how many hops a request takes. A partition is that of the broker
that leads it, if there is a gateway beside it. Everything else is spread over all gateways by a hash, so that each of
them names the same one, and few names change where a gateway comes or goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from crc32c import crc32c

NO_BROKER: Final = -1


class GatewayAddress(NamedTuple):
    """The place at which the clients of a broker's gateway find it."""

    broker_id: int
    host: str
    port: int
    rack: str = ""


class Gateways:
    """The gateways that serve now."""

    def __init__(self, addresses: Iterable[GatewayAddress] = ()) -> None:
        self._by_id = {each.broker_id: each for each in sorted(addresses)}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[GatewayAddress]:
        return iter(self._by_id.values())

    def for_leader(self, broker_id: int, topic_id: bytes, partition: int) -> GatewayAddress | None:
        """Return what to name as a partition's leader, where this broker leads it. None: there is no gateway."""
        return self._by_id.get(broker_id) or self.for_key(b"%b-%d" % (topic_id, partition))

    def for_key(self, key: bytes) -> GatewayAddress | None:
        """Return what serves a key; None: there is no gateway."""
        return max(self, key=lambda each: (crc32c(b"%d %b" % (each.broker_id, key)), each.broker_id), default=None)
