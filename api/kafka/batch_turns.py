"""The turns of a connection's batches: each is sent, waits or is refused, as `rules/producer_order.py` decides."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from raylog.api.kafka.rules.producer_order import (
    Ending,
    Leadership,
    Numbered,
    Partition,
    ProducerOrder,
    Turn,
    Verdict,
)


class BatchTurns:
    """The batches of idempotent producers that come over one connection.

    `may_send`, then sending without another wait, then `ended`. A batch that cannot be sent is `not_sent`.
    """

    def __init__(self) -> None:
        self._order = ProducerOrder()
        self._waiting: dict[Turn, asyncio.Future[None]] = {}

    def arrived(self, partition: Partition, batch: Numbered, leadership: Leadership) -> Turn:
        """Take a batch, in the order in which they come."""
        return self._order.arrived(partition, batch, leadership)

    def not_sent(self, partition: Partition, batch: Numbered) -> None:
        """Take a batch that cannot be sent, and has to come again."""
        self._order.not_sent(partition, batch)

    async def may_send(self, turn: Turn) -> bool:
        """Return whether it is to be sent, now and at once; else it is refused."""
        if turn.verdict is Verdict.WAIT:
            self._waiting[turn] = asyncio.get_running_loop().create_future()
            await self._waiting[turn]
        if turn.verdict is Verdict.REFUSE:
            return False
        following = self._order.begun(turn)
        self._wake(() if following is None else (following,))
        return True

    def ended(self, turn: Turn, ending: Ending) -> None:
        """Note what became of a batch that was sent."""
        self._wake(self._order.ended(turn, ending))

    def _wake(self, turns: Iterable[Turn]) -> None:
        for turn in turns:
            future = self._waiting.pop(turn, None)  # one that was woken before may hear another verdict
            if future is not None and not future.done():
                future.set_result(None)
