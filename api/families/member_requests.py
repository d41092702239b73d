"""A member of a transaction family on the event loop: it joins, and in the end has all delivered. Its driver ends it.

    join     JoinFamily ──► an open transaction under an identity of its own
    finish   flush, and all is delivered ──► what the driver has to be told, so that it counts

What must stay true: nothing here asks for the end of the transaction. What is not finished, or not told, does not
count.
"""

from __future__ import annotations

from typing import NamedTuple

from raylog.actors.protocol.transaction_family_messages import FamilyJoined, JoinFamily
from raylog.actors.transactions.rules.family import split_member
from raylog.api.producer.rules.producer_batch import Writer
from raylog.api.producer.sending.transaction_requests import TransactionCall, TransactionRequests
from raylog.errors import InvalidTransactionState


class FamilyTicket(NamedTuple):
    """The data that a task needs to join the family of its job. To be sent to the task."""

    family: str
    epoch: int


class FamilyWork(NamedTuple):
    """The records that a member has delivered: to be sent to its driver, which makes them count."""

    number: int
    producer_id: int
    epoch: int


class MemberRequests(TransactionRequests):
    """The transaction requests of one sender, whose options have the family as their transactional id."""

    async def join(self, ticket: FamilyTicket, seconds: float) -> None:
        """Raises FamilyFenced. TransactionPending: not in time."""
        call = self._called("join", seconds)
        async with self._turn:
            self.transaction.check_uninitialised()
            answer = await call.ask(JoinFamily(ticket.family, ticket.epoch), FamilyJoined)
            self.transaction.joined(answer.transactional_id, Writer(answer.producer_id, answer.epoch, True))

    async def finish(self, seconds: float) -> FamilyWork:
        """Raises TransactionAborted: something of it was not delivered. TransactionPending: finish again."""
        await super().commit(seconds)
        writer, member = self.transaction.writer, split_member(self.transaction.transactional_id)
        assert writer is not None
        assert member is not None
        return FamilyWork(member[1], writer.producer_id, writer.epoch)

    async def commit(self, seconds: float) -> None:  # noqa: ARG002
        raise InvalidTransactionState("A member's transaction is committed by the driver of its family: call finish.")

    async def _end(self, call: TransactionCall, *, commits: bool) -> None:  # noqa: ARG002
        """Ask nobody: the driver ends the transaction, or its time does."""
        if not commits:
            assert self.transaction.writer is not None
            self.transaction.ended(self.transaction.writer)
