"""How a leader reaches the transaction coordinators: over a link of its process, made when it is needed first."""

from __future__ import annotations

from typing import Final

from raylog.actors.kernel.environment import Environment
from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.protocol.coordinator_names import TRANSACTIONS_TOPIC, coordinator_hash
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.transaction_messages import AddPartition

_FIND_SECONDS: Final = 5.0
_ASK_SECONDS: Final = 5.0


class TransactionJoins:
    """Of one replica's process. `broker` is the one beside it."""

    def __init__(self, env: Environment, broker: Endpoint, node_id: str) -> None:
        self._env = env
        self._broker = broker
        self._node_id = node_id
        self._link: ClusterLink | None = None

    async def add(self, asked: AddPartition) -> None:
        """Done: the partition is in the transaction. CoordinatorNotReady, StreamError, what the coordinator raises."""
        if self._link is None:
            self._link = ClusterLink(self._env, [self._broker], self._node_id)
        hashed = coordinator_hash(asked.transactional_id)
        place = await self._link.find_coordinator(TRANSACTIONS_TOPIC, hashed, _FIND_SECONDS)
        await self._link.ask(place, asked, timeout=_ASK_SECONDS)

    async def close(self) -> None:
        if self._link is not None:
            await self._link.close()
