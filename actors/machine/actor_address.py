"""The addresses of streams that actors tell each other through Ray."""

from __future__ import annotations

from dataclasses import dataclass

from raylog.actors.protocol.endpoint import Endpoint
from raylog.errors import PeerUnreachable


@dataclass(frozen=True)
class Address:
    """The node of a process, and its endpoints."""

    node_id: str
    endpoints: tuple[str, ...]

    def nearest_to(self, node_id: str) -> Endpoint:
        """Return the endpoints for a process on that node: the unix socket on the same Ray node, else TCP."""
        same_node = node_id == self.node_id
        for endpoint in map(Endpoint.parse, self.endpoints):
            if endpoint.is_unix == same_node:
                return endpoint
        raise PeerUnreachable(", ".join(self.endpoints) or "a process", "none of its endpoints is for that node")
