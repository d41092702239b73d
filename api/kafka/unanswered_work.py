"""Work that its client does not wait for: batches with acks=0. It is finished though the client closes its connection.

What must stay true: once its client has gone, what such work holds counts in the memory of all clients (rule 31). It
ends within its own time-out, and nothing of it is left when the gateway is closed.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any, Final, TypeVar

from raylog.actors.kernel.rare_log import RareLog
from raylog.api.kafka.rules.memory_budget import Account, MemoryBudget
from raylog.errors import RaylogError

_of_clients: Final = RareLog(logging.getLogger(__name__))

_Outcome = TypeVar("_Outcome")


class UnansweredWork:
    """The work of clients that have gone."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._left: set[asyncio.Future[Any]] = set()
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._left)

    async def finish(self, work: asyncio.Future[list[_Outcome]], size: int) -> list[_Outcome]:
        """Return the outcomes of this work. If this is cancelled, the work goes on, and holds so many bytes."""
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            self._keep(work, size)
            raise

    def close(self) -> None:
        """Finish nothing any more."""
        self._is_closed = True
        for work in self._left:
            work.cancel()

    def _keep(self, work: asyncio.Future[Any], size: int) -> None:
        if self._is_closed:
            work.cancel()
            return
        account = self._budget.account()
        account.take(size)
        self._left.add(work)
        work.add_done_callback(partial(self._is_done, account))

    def _is_done(self, account: Account, work: asyncio.Future[Any]) -> None:
        self._left.discard(work)
        account.close()
        for outcome in () if self._is_closed else work.result():
            if isinstance(outcome, RaylogError):
                _of_clients.warning("A batch with acks=0, of a Kafka client that has gone, is refused: %s", outcome)
