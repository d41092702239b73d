"""The transactions of a producer, as programs call them, from any thread.

    init_transactions ─► begin_transaction ─► send … ─► send_offsets_to_transaction ─► commit_transaction ─┐
                               ▲                  └───────────────┴───────────────────► abort_transaction ──┤
                               └─────────────────────────────────────────────────────────────────────────────┘

What must stay true: outside of a transaction `send` takes nothing, not even over its fast path; the routes that this
needs are laid when a transaction begins, and taken up when it takes no more.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeVar

from raylog.api.client_runtime import ClientRuntime
from raylog.api.producer_options import ProducerOptions
from raylog.api.record_future import refuse_on_serving_thread
from raylog.api.records import GroupMetadata
from raylog.api.transaction_offsets import GivenOffsets, Offsets
from raylog.api.transaction_requests import TransactionRequests
from raylog.errors import InvalidTransactionState, RaylogError, RequestTimedOut, TransactionPending

_GRACE_SECONDS: Final = 1.0  # in which a call that is out of time says so itself
_T = TypeVar("_T")


class ProducerTransactions:
    """What `Producer` has beside sending; for producers with a `transactional_id`.

    Errors say what helps: `error.retriable`, the same call again; `error.abortable`, abort_transaction, and then the
    next transaction; `error.fatal`, only another producer. Time-outs are seconds; None: max_block_ms.
    """

    options: ProducerOptions
    _runtime: ClientRuntime
    _requests: TransactionRequests | None

    def init_transactions(self, timeout: float | None = None) -> None:
        """Take the transactional id, once and before all else. A producer that had it before is fenced.

        What that one has left open is aborted first. TransactionPending: not in time, call it again.
        """
        self._call("init_transactions", self._transactional().init, timeout)

    def begin_transaction(self) -> None:
        """From here on `send` takes records, which belong to this transaction, whatever their topics are.

        InvalidTransactionState: the producer is in another state, which the error names.
        """
        requests = self._transactional()
        self._call("begin_transaction", lambda _: requests.begin(), None)
        self._lay_routes()

    def send_offsets_to_transaction(
        self,
        offsets: Offsets,
        group_metadata: GroupMetadata,
        timeout: float | None = None,
    ) -> None:
        """Let the offsets of what was read be committed with what was written: both, or neither.

            with producer.transaction():
                ...
                producer.send_offsets_to_transaction({("orders", 0): 42}, consumer.group_metadata())

        `offsets`: by partition, of the next record to be read. The consumer has `enable_auto_commit=False`. Until the
        transaction has ended nobody is told what the group has committed there.
        OffsetsRefused, TransactionAborted, TransactionTimedOut: it has to be aborted, for the consumer is no member any
        more, say. TransactionPending: call it again; a commit makes good for it too.
        """
        given = GivenOffsets.checked(offsets, group_metadata)
        self._call("send_offsets_to_transaction", partial(self._transactional().send_offsets, given), timeout)

    def commit_transaction(self, timeout: float | None = None) -> None:
        """Deliver all, and let readers see it, as a whole.

        TransactionAborted, TransactionTimedOut: it has to be aborted. TransactionPending: not known in time, call it
        again. ProducerFenced: another producer has taken the transactional id.
        """
        self._call("commit_transaction", self._transactional().commit, timeout)

    def abort_transaction(self, timeout: float | None = None) -> None:
        """Let nothing of it be seen. Records that were not delivered yet fail with TransactionAborted.

        TransactionPending: not known in time, call it again. ProducerFenced.
        """
        self._call("abort_transaction", self._transactional().abort, timeout)

    @contextmanager
    def transaction(self, timeout: float | None = None) -> Iterator[None]:
        """One transaction: it is committed at the end of the block, or aborted if the block raises.

            with producer.transaction():
                producer.send("orders", b"an order")
                producer.send("payments", b"its payment")

        What beginning, committing and aborting raise. A commit that has to be aborted is, and raises why.
        """
        self.begin_transaction()
        try:
            yield
        except BaseException:
            self.abort_if_open(timeout)
            raise
        try:
            self.commit_transaction(timeout)
        except RaylogError as error:
            if error.abortable:
                self.abort_if_open(timeout)
            raise

    def abort_if_open(self, timeout: float | None = None) -> None:
        """Abort the transaction if there is one that can be."""
        if self._transactional().transaction.can_abort:
            self.abort_transaction(timeout)

    def _transactional(self) -> TransactionRequests:
        self._check()
        if self._requests is None:
            raise InvalidTransactionState("This producer has no transactional_id.")
        return self._requests

    def _call(self, name: str, call: Callable[[float], Coroutine[Any, Any, _T]], timeout: float | None) -> _T:
        """TransactionPending also where this process has come to nothing in that time: the same call goes on."""
        refuse_on_serving_thread()
        seconds = self.options.max_block_ms / 1000 if timeout is None else timeout
        try:
            return self._runtime.run(call(seconds), seconds + _GRACE_SECONDS)
        except RequestTimedOut as error:
            transactional_id = self.options.transactional_id or ""
            reason = error.describe().rstrip(".")
            raise TransactionPending(transactional_id, name, round(1000 * seconds), reason) from error

    def _check(self) -> None:
        raise NotImplementedError

    def _lay_routes(self) -> None:
        raise NotImplementedError
