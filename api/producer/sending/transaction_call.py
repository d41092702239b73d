"""One call of a program to its transactional producer: how long it may take, and what it asks of the coordinator."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.names import TRANSACTIONS_TOPIC, coordinator_hash
from raylog.api.connection.coordinator_calls import ask_coordinator
from raylog.errors import ProducerError, RaylogError, TransactionPending

_Answer = TypeVar("_Answer", bound=Message)


class TransactionCall:
    """Begins when it is made. What is not known when its time is over is TransactionPending."""

    def __init__(self, link: ClusterLink, transactional_id: str, call: str, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._link = link
        self._transactional_id = transactional_id
        self._call = call
        self._seconds = seconds
        self._until = self._loop.time() + seconds

    @property
    def left(self) -> float:
        return max(0.0, self._until - self._loop.time())

    def pending(self, reason: str) -> TransactionPending:
        return TransactionPending(self._transactional_id, self._call, round(self._seconds * 1000), reason)

    def pending_by(self, error: RaylogError) -> TransactionPending:
        return self.pending(f"{type(error).__name__}: {error.describe().rstrip('.')}")

    async def ask(self, message: Message, expected: type[_Answer]) -> _Answer:
        """Ask the transaction's coordinator. TransactionPending, and errors of producers that time does not heal."""
        hashed = coordinator_hash(self._transactional_id)
        try:
            return await ask_coordinator(self._link, TRANSACTIONS_TOPIC, hashed, message, expected, self.left)
        except RaylogError as error:
            if isinstance(error, ProducerError) and not error.retriable:
                raise
            raise self.pending_by(error) from error
