"""State of a transactional producer. Decides, and touches nothing.

    phase           allows                                             comes from
    uninitialised   init                                               the start
    ready           begin                                              init, a commit, an abort
    open            send, send offsets, commit (→ flushing), abort     begin
    flushing        what was taken is sent; commit again, abort        commit
    committing      commit again                                       all is delivered: the coordinator is asked
    aborting        abort again                                        abort
    abortable       abort                                              open, flushing: something of it has failed;
                                                                       committing: the coordinator has aborted it
    fatal           close                                              another producer has its transactional id

What must stay true:
- What is sent, is sent while the transaction is open or flushing, and under its own identity; in every other phase
  what is still held fails with `refusal`.
- Once the coordinator was asked to commit, nothing here aborts: the outcome is its to tell.
- A transaction whose leader says "fenced" is abortable: its coordinator may have timed it out. If another producer has
  taken the transactional id, the coordinator says so when it is asked to abort, and that is fatal.

Phases are changed on the event loop and read from every thread.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final

from raylog.actors.protocol.transaction_messages import TransactionPartition
from raylog.api.producer.rules.producer_batch import Writer
from raylog.errors import InvalidTransactionState, RaylogError, TransactionAborted, UnknownTransactionalId

_MOST_TOGETHER: Final = 64  # what is told of partitions is told to each of their leaders


class Phase(Enum):
    UNINITIALISED = "has not called init_transactions"
    READY = "has no open transaction: call begin_transaction"
    OPEN = "has an open transaction"
    FLUSHING = "is committing its transaction"
    COMMITTING = "has asked for a commit, and must call commit_transaction until it knows the outcome"
    ABORTING = "is aborting its transaction"
    ABORTABLE = "has to abort its transaction"
    FATAL = "cannot go on"


class ProducerTransaction:
    """`on_refusal` is called when `send` has to take nothing more."""

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.phase = Phase.UNINITIALISED
        self.writer: Writer | None = None
        self.number = 0  # of transactions that were begun
        self.has_sent = False  # something of this transaction, which its coordinator may know of
        self._beginning: dict[TransactionPartition, None] = {}  # where its first batch is under way
        self.on_refusal: Callable[[], object] = lambda: None
        self._error: RaylogError | None = None

    @property
    def is_taking(self) -> bool:
        """Whether `send` may take records."""
        return self.phase is Phase.OPEN

    @property
    def is_sending(self) -> bool:
        """Whether what was taken may be sent."""
        return self.phase is Phase.OPEN or self.phase is Phase.FLUSHING

    @property
    def can_abort(self) -> bool:
        return self.phase in (Phase.OPEN, Phase.FLUSHING, Phase.ABORTING, Phase.ABORTABLE)

    def refusal(self) -> RaylogError:
        """Return the error for sends, and for records that are held, while nothing is taken or sent."""
        if self.phase is Phase.FATAL and self._error is not None:
            return self._error
        if self.phase in (Phase.ABORTABLE, Phase.ABORTING):
            reason = "abort_transaction was called" if self._error is None else self._error.describe().rstrip(".")
            return TransactionAborted(self.transactional_id, reason)
        return self._out_of_order()

    # --- steps, in the order of a transaction ---

    def check_uninitialised(self) -> None:
        self._allow(Phase.UNINITIALISED)

    def initialised(self, writer: Writer) -> None:
        self._allow(Phase.UNINITIALISED)
        self.writer = writer
        self.phase = Phase.READY

    def joined(self, transactional_id: str, writer: Writer) -> None:
        """A transaction of a family's member, which is open already."""
        self.initialised(writer)
        self.transactional_id = transactional_id
        self.begin()

    def check_taking(self) -> None:
        self._allow(Phase.OPEN)

    def begin(self) -> None:
        self._allow(Phase.READY)
        self.number += 1
        self.has_sent = False
        self._beginning.clear()
        self._error = None
        self.phase = Phase.OPEN

    def begins_in(self, partition: TransactionPartition) -> None:
        """Note that the transaction's first batch in a partition is being sent."""
        if len(self._beginning) < _MOST_TOGETHER:
            self._beginning[partition] = None

    def has_begun_in(self, partition: TransactionPartition) -> None:
        self._beginning.pop(partition, None)

    def begins_with(self, partition: TransactionPartition) -> tuple[TransactionPartition, ...]:
        """Return the other partitions in which the transaction's first batch is under way."""
        return tuple(each for each in self._beginning if each != partition)

    def commit(self) -> None:
        self._allow(Phase.OPEN, Phase.FLUSHING, Phase.COMMITTING)
        if self.phase is Phase.OPEN:
            self._refuse(Phase.FLUSHING)

    def flushed(self) -> None:
        """All that was taken is delivered; or raise why not."""
        self._allow(Phase.FLUSHING)
        self.phase = Phase.COMMITTING

    def abort(self) -> None:
        self._allow(Phase.OPEN, Phase.FLUSHING, Phase.ABORTING, Phase.ABORTABLE)
        self._refuse(Phase.ABORTING)

    def ended(self, writer: Writer) -> None:
        """Either way; `writer` is the next transaction's."""
        self._allow(Phase.COMMITTING, Phase.ABORTING)
        self.writer = writer
        self.phase = Phase.READY

    # --- failures ---

    def failed(self, error: RaylogError) -> bool:
        """A record of it will not arrive. Whether that is news."""
        if not self.is_sending:
            return False
        if isinstance(error, UnknownTransactionalId):
            self.doomed(error)
        else:
            self._error = error
            self._refuse(Phase.ABORTABLE)
        return True

    def ended_by_coordinator(self, error: RaylogError) -> None:
        """Note that the coordinator aborted what was to be committed."""
        self._allow(Phase.COMMITTING)
        self._error = error
        self.phase = Phase.ABORTABLE

    def doomed(self, error: RaylogError) -> None:
        """Note that the transaction cannot go on."""
        self._error = error
        self._refuse(Phase.FATAL)

    def _refuse(self, phase: Phase) -> None:
        self.phase = phase
        self.on_refusal()

    def _allow(self, *phases: Phase) -> None:
        if self.phase in phases:
            return
        if self.phase in (Phase.ABORTABLE, Phase.FATAL):
            raise self.refusal()
        raise self._out_of_order()

    def _out_of_order(self) -> InvalidTransactionState:
        return InvalidTransactionState(f"The producer of {self.transactional_id!r} {self.phase.value}.")
