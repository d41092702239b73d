"""The transactions of a producer, as programs call them, from any thread.

    init_transactions ─► begin_transaction ─► send … ─► send_offsets_to_transaction ─► commit_transaction ─┐
                               ▲                  └───────────────┴───────────────────► abort_transaction ──┤
                               └─────────────────────────────────────────────────────────────────────────────┘

What must stay true: outside of a transaction `send` takes nothing, not even over its fast path. The routes that the
fast path needs are laid when a transaction begins, and removed when it takes no more records.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from raylog.api.connection.records import GroupMetadata
from raylog.api.producer.producer_core import ProducerCore
from raylog.api.producer.sending.transaction_requests import GivenOffsets, Offsets
from raylog.errors import RaylogError


class TransactionalProducer:
    """The transactional methods of `Producer`; for producers with a `transactional_id`.

    Errors say what helps: `error.retriable`, the same call again; `error.abortable`, abort_transaction, and then the
    next transaction; `error.fatal`, only another producer.
    """

    _core: ProducerCore

    def init_transactions(self, timeout: float | None = None) -> None:
        """Take the transactional id, once and before any other transactional call. The producer that had it is fenced.

        A transaction which that one has left open is aborted first. TransactionPending: not within `timeout` seconds
        (max_block_ms by default); call it again.
        """
        core = self._core
        core.call("init_transactions", core.transactional().init, timeout)

    def begin_transaction(self) -> None:
        """Begin a transaction: from here on `send` takes records, of any topic, and they belong to it.

        InvalidTransactionState: the producer is in another state, which the error names.
        """
        core = self._core
        requests = core.transactional()
        core.call("begin_transaction", lambda _: requests.begin(), None)
        core.lay_routes()

    def send_offsets_to_transaction(
        self,
        offsets: Offsets,
        group_metadata: GroupMetadata,
        timeout: float | None = None,
    ) -> None:
        """Commit offsets of what was read together with what was written: both, or neither.

            with producer.transaction():
                ...
                producer.send_offsets_to_transaction({("orders", 0): 42}, consumer.group_metadata())

        `offsets`: by partition, the offset of the next record to read. `group_metadata`: of the consumer that has read,
        which has `enable_auto_commit=False`. Until the transaction has ended nobody is told what the group has
        committed there.
        OffsetsRefused, TransactionAborted, TransactionTimedOut: it has to be aborted, because the consumer is no longer
        a member, for example. TransactionPending: not within `timeout` seconds (max_block_ms by default); call it
        again, or commit, which sends the offsets too.
        """
        given = GivenOffsets.checked(offsets, group_metadata)
        core = self._core
        core.call("send_offsets_to_transaction", partial(core.transactional().send_offsets, given), timeout)

    def commit_transaction(self, timeout: float | None = None) -> None:
        """Deliver all records of the transaction, and let readers see them all at once.

        TransactionAborted, TransactionTimedOut: it has to be aborted. TransactionPending: the outcome is not known
        within `timeout` seconds (max_block_ms by default); call it again. ProducerFenced: another producer has taken
        the transactional id.
        """
        core = self._core
        core.call("commit_transaction", core.transactional().commit, timeout)

    def abort_transaction(self, timeout: float | None = None) -> None:
        """Abort: no reader of committed records sees any of it. Undelivered records fail with TransactionAborted.

        TransactionPending: the outcome is not known within `timeout` seconds (max_block_ms by default); call it again.
        ProducerFenced.
        """
        core = self._core
        core.call("abort_transaction", core.transactional().abort, timeout)

    @contextmanager
    def transaction(self, timeout: float | None = None) -> Iterator[None]:
        """Run the block as one transaction: it is committed at the end, or aborted if the block raises.

            with producer.transaction():
                producer.send("orders", b"an order")
                producer.send("payments", b"its payment")

        It raises what beginning, committing and aborting raise; `timeout` is that of the commit or the abort. If the
        commit fails and the transaction has to be aborted, it is, and the commit's error is raised.
        """
        self.begin_transaction()
        try:
            yield
        except BaseException:
            self._abort_if_open(timeout)
            raise
        try:
            self.commit_transaction(timeout)
        except RaylogError as error:
            if error.abortable:
                self._abort_if_open(timeout)
            raise

    def _abort_if_open(self, timeout: float | None) -> None:
        if self._core.transactional().transaction.can_abort:
            self.abort_transaction(timeout)
