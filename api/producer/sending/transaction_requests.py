"""A producer's transactions on the event loop: what its coordinator is asked, and when.

    init     InitProducer ──► identity                       whoever had the transactional id before is fenced
    offsets  AddGroup ──► StageOffsets                       the group's coordinator keeps them until the end
    commit   flush, and all is delivered ──► EndTransaction ──► the next identity
    abort    nothing more is sent, what is held fails ──► EndTransaction ──► the next identity

What must stay true:
- A commit is asked for when every record that was taken is acknowledged and all offsets are staged, and only then.
- Each call ends within its time, and may be made again: the coordinator answers a request that comes twice as it did
  the first time (rule 21).
- Whatever may have been sent of a transaction, even if nobody answered, its end is asked of the coordinator; so the
  next transaction has another epoch, and nothing late can join it (rule 20). Where nothing was sent, nobody is asked.

It runs without threads and Ray, in the simulator as well.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from raylog.actors.protocol.transaction_messages import (
    EndTransaction,
    InitProducer,
    ProducerInitialised,
    TransactionEnded,
)
from raylog.api.producer.rules.producer_batch import ProducerBatch, Writer
from raylog.api.producer.rules.producer_transaction import Phase, ProducerTransaction
from raylog.api.producer.sending.sender import Sender
from raylog.api.producer.sending.transaction_call import TransactionCall
from raylog.api.producer.sending.transaction_offsets import GivenOffsets, TransactionOffsets
from raylog.errors import (
    InvalidTransactionState,
    ProducerFenced,
    RaylogError,
    TransactionPending,
    TransactionTimedOut,
    UnknownTransactionalId,
)

_GATE_RETRY_SECONDS: Final = 0.002
_NO_IDENTITY: Final = -1

_log = logging.getLogger(__name__)


class TransactionRequests:
    """The transactions of one sender, whose options have a transactional id. Made on its loop."""

    def __init__(self, sender: Sender) -> None:
        assert sender.transaction is not None
        self.transaction: ProducerTransaction = sender.transaction
        self._sender = sender
        self._name = self.transaction.transactional_id
        self._offsets = TransactionOffsets(sender.link, self.transaction)
        self._turn = asyncio.Lock()  # one call after the other, also after one that was interrupted

    def _called(self, name: str, seconds: float) -> TransactionCall:
        return TransactionCall(self._sender.link, self._name, name, seconds)

    async def init(self, seconds: float) -> None:
        """Raises ProducerError, TransactionPending."""
        call = self._called("init_transactions", seconds)
        async with self._turn:
            self.transaction.check_uninitialised()
            timeout_ms = self._sender.options.transaction_timeout_ms
            asked = InitProducer(self._name, timeout_ms, _NO_IDENTITY, _NO_IDENTITY)
            answer = await call.ask(asked, ProducerInitialised)
            self.transaction.initialised(Writer(answer.producer_id, answer.epoch, True))

    async def begin(self) -> None:
        """Raises InvalidTransactionState, or why the one before is not over."""
        async with self._turn:
            self.transaction.begin()
            self._offsets.begin()

    async def send_offsets(self, given: GivenOffsets, seconds: float) -> None:
        """Raises OffsetsRefused, TransactionAborted: abort it. TransactionPending: again, or commit, which does it as
        well.
        """
        call = self._called("send_offsets_to_transaction", seconds)
        async with self._turn:
            self.transaction.check_taking()
            if given.offsets:
                self._offsets.give(given)
                await self._stage(call)

    async def commit(self, seconds: float) -> None:
        """Raises TransactionAborted, TransactionTimedOut: abort it. ProducerFenced. TransactionPending: commit again.
        """
        call = self._called("commit_transaction", seconds)
        async with self._turn:
            self.transaction.commit()
            if self.transaction.phase is Phase.FLUSHING:
                await self._deliver_all(call)
                await self._stage(call)
                self.transaction.flushed()
            await self._end(call, commits=True)

    async def abort(self, seconds: float) -> None:
        """Raises ProducerFenced. TransactionPending: abort again."""
        call = self._called("abort_transaction", seconds)
        async with self._turn:
            self.transaction.abort()
            while not self._sender.refuse_unsent():
                if not call.left:
                    raise call.pending("another thread is sending")
                await asyncio.sleep(_GATE_RETRY_SECONDS)
            await self._end(call, commits=False)

    async def give_up(self, seconds: float) -> None:
        """The producer is closed: what is open is aborted, here or by its coordinator when its time is over."""
        if not self.transaction.can_abort:
            return
        try:
            await self.abort(seconds)
        except RaylogError as error:
            _log.warning("A producer is closed, and its open transaction is not known to be aborted: %s", error)

    async def _deliver_all(self, call: TransactionCall) -> None:
        waiting = [_resolved(batch) for batch in self._sender.accumulator.flush()]
        self._sender.drain()
        if waiting and (await asyncio.wait(waiting, timeout=call.left))[1]:
            raise call.pending("not all of its records are delivered")

    async def _stage(self, call: TransactionCall) -> None:
        """Stage the offsets that were given."""
        if not self._offsets:
            return
        writer = self.transaction.writer
        assert writer is not None
        self.transaction.has_sent = True
        try:
            await self._offsets.stage_all(writer, call)
        except TransactionPending:
            raise
        except RaylogError as error:
            self._sender.transaction_failed(error)
            if error.abortable:
                raise
            raise self.transaction.refusal() from error

    async def _end(self, call: TransactionCall, *, commits: bool) -> None:
        transaction = self.transaction
        writer = transaction.writer
        assert writer is not None
        if transaction.has_sent:
            asked = EndTransaction(self._name, writer.producer_id, writer.epoch, commits)
            try:
                answer = await call.ask(asked, TransactionEnded)
            except TransactionTimedOut as error:
                transaction.ended_by_coordinator(error)
                raise
            except (InvalidTransactionState, ProducerFenced, UnknownTransactionalId) as error:
                transaction.doomed(error)
                raise
            writer = Writer(answer.producer_id, answer.epoch, True)
        transaction.ended(writer)


def _resolved(batch: ProducerBatch) -> asyncio.Future[None]:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def tell() -> None:
        if not done.done():
            done.set_result(None)

    batch.listen(tell)
    return done
