"""The driver of a transaction family on the event loop: what its coordinator is asked, and that it is heard in time.

What must stay true:
- After a request whose answer did not come, the same request may go again: the coordinator knows the holder of a
  family and the batches that were committed.
- As long as the driver holds the family, its coordinator hears of it several times within the members' time-out.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from typing import Final, TypeVar

from raylog.actors.kernel.background import BackgroundTasks
from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.protocol.messages import Done, Message
from raylog.actors.protocol.names import TRANSACTIONS_TOPIC, coordinator_hash
from raylog.actors.protocol.transaction_family_messages import (
    EndFamily,
    FamilyEnded,
    FamilyInitialised,
    InitFamily,
    KeepFamily,
)
from raylog.actors.transactions.rules.family import NO_BATCH
from raylog.api.connection.coordinator_calls import ask_coordinator
from raylog.api.families.member_requests import FamilyTicket, FamilyWork
from raylog.errors import FamilyFenced, ProducerError, RaylogError, TransactionAborted, TransactionPending

_WORDS: Final = 5  # within the members' time-out
_HOLDER_BYTES: Final = 16

_log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer", bound=Message)


class FamilyRequests:
    """Made on its loop; `init`, and in the end `close`."""

    def __init__(self, link: ClusterLink, name: str, timeout_ms: int, keep_ms: int) -> None:
        self.ticket = FamilyTicket(name, -1)
        self.last_batch = NO_BATCH
        self._link = link
        self._name = name
        self._timeout_ms = timeout_ms
        self._keep_ms = keep_ms
        self._holder = os.urandom(_HOLDER_BYTES)
        self._is_kept = False
        self._tasks = BackgroundTasks(self._broke)

    async def init(self, seconds: float) -> None:
        """Raises InvalidTransactionTimeout, InvalidTransactionalId, TransactionPending."""
        asked = InitFamily(self._name, self._holder, self._timeout_ms, self._keep_ms)
        answer = await self._ask("init", asked, FamilyInitialised, seconds)
        self.ticket = FamilyTicket(self._name, answer.epoch)
        self.last_batch = answer.last_batch
        if not self._is_kept:
            self._is_kept = True
            self._tasks.start(self._keep())

    async def commit(self, batch: int, works: Sequence[FamilyWork], seconds: float) -> None:
        """Raises FamilyFenced, FamilyTooLarge, TransactionAborted, TransactionPending."""
        winners = tuple((work.number, work.producer_id, work.epoch) for work in works)
        await self._end("commit", batch, winners, seconds)
        if self.last_batch < batch:
            reason = "a task's transaction was over its time, or an operator has ended it"
            raise TransactionAborted(self._name, reason)

    async def abort(self, seconds: float) -> None:
        """Raises FamilyFenced, TransactionPending."""
        await self._end("abort", NO_BATCH, (), seconds)

    async def close(self) -> None:
        await self._tasks.close()

    async def _end(self, name: str, batch: int, winners: tuple[tuple[int, int, int], ...], seconds: float) -> None:
        asked = EndFamily(self._name, self.ticket.epoch, batch, winners)
        self.last_batch = (await self._ask(name, asked, FamilyEnded, seconds)).last_batch

    async def _keep(self) -> None:
        pause = self._timeout_ms / 1000 / _WORDS
        asked = KeepFamily(self._name, self.ticket.epoch)
        while True:
            await asyncio.sleep(pause)
            try:
                await ask_coordinator(self._link, TRANSACTIONS_TOPIC, coordinator_hash(self._name), asked, Done, pause)
            except FamilyFenced as error:
                _log.warning("Another driver has taken over: %s", error)
                return
            except RaylogError as error:
                _log.warning("The coordinator of the transaction family %r did not hear of it: %s", self._name, error)

    def _broke(self, error: BaseException) -> None:
        """Log that nothing renews the family any more: its members time out, and so its next commit is refused."""
        _log.critical("The coordinator of %r hears no more of its driver.", self._name, exc_info=error)

    async def _ask(self, name: str, message: Message, expected: type[_Answer], seconds: float) -> _Answer:
        try:
            hashed = coordinator_hash(self._name)
            return await ask_coordinator(self._link, TRANSACTIONS_TOPIC, hashed, message, expected, seconds)
        except RaylogError as error:
            if isinstance(error, ProducerError) and not error.retriable:
                raise
            reason = f"{type(error).__name__}: {error.describe().rstrip('.')}"
            raise TransactionPending(self._name, name, round(seconds * 1000), reason) from error
