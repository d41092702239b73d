"""The part of a cluster's handle that looks after transactions: calls to their coordinators, over a link.

Every call has a time-out and ends in an answer or in one typed error. All may be repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from raylog.api.admin.rules.transaction_descriptions import (
    HangingTransaction,
    HangingTransactions,
    TransactionDescription,
    TransactionListing,
)
from raylog.api.connection.link_calls import call_over_link

if TYPE_CHECKING:
    from raylog.actors.link.cluster_link import ClusterLink
    from raylog.actors.link.hanging_transactions import Hanging
    from raylog.api.admin.transaction_administration import TransactionAdministration
    from raylog.api.connection.controller_calls import ControllerCalls

_T = TypeVar("_T")
_CALL_SECONDS: Final = 30.0


class ClusterTransactions:
    """`Cluster` is one of these."""

    _calls: ControllerCalls

    # --- transactions ---------------------------------------------------------------------------------------------

    def list_transactions(self, *, timeout: float = _CALL_SECONDS) -> tuple[TransactionListing, ...]:
        """All transactional ids that are known, by name: where each one's transaction stands."""
        return self._look_at_transactions(lambda admin: admin.list_transactions(), timeout)

    def describe_transaction(self, transactional_id: str, *, timeout: float = _CALL_SECONDS) -> TransactionDescription:
        """Return what the coordinator of a transactional id knows of it. UnknownTransactionalId.

        >>> cluster.describe_transaction("transfers").partitions
        """
        return self._look_at_transactions(lambda admin: admin.describe(transactional_id), timeout)

    def abort_transaction(self, transaction: str | HangingTransaction, *, timeout: float = _CALL_SECONDS) -> None:
        """End the open transaction of this transactional id, or one that hangs, for good; its producer is fenced.

        UnknownTransactionalId. InvalidTransactionState: none is open, or it does not hang.
        """
        if isinstance(transaction, HangingTransaction):
            hanging = transaction
            self._look_at_transactions(lambda admin: admin.abort_hanging(hanging), timeout)
        else:
            name = transaction
            self._look_at_transactions(lambda admin: admin.abort(name), timeout)

    def find_hanging_transactions(
        self, *, topics: Collection[str] | None = None, timeout: float = _CALL_SECONDS
    ) -> HangingTransactions:
        """Find transactions that are open in a partition though no coordinator knows of them. There should be none.

        In these topics; None: in all, and among the offsets that transactions have staged for groups. A tuple, whose
        `unasked` names the partitions whose leader or group coordinator did not answer, and why. UnknownTopic; what
        a transaction coordinator's silence raises, for without it nobody knows what hangs.

        >>> for hanging in cluster.find_hanging_transactions():
        ...     cluster.abort_transaction(hanging)
        """
        return self._look_at_transactions(lambda admin: admin.find_hanging(topics), timeout)

    def _look_at_transactions(
        self, call: Callable[[TransactionAdministration], Coroutine[Any, Any, _T]], timeout: float
    ) -> _T:
        from raylog.api.admin.transaction_administration import TransactionAdministration

        def administration(link: ClusterLink) -> TransactionAdministration:
            async def end_hanging(hanging: Hanging, left: float) -> None:
                ask = partial(self._calls.ask, "end_hanging", hanging, left, timeout=left, repeatable=True)
                await asyncio.get_running_loop().run_in_executor(None, ask)

            return TransactionAdministration(link, timeout, end_hanging)

        return call_over_link(self, lambda link: call(administration(link)), timeout)
