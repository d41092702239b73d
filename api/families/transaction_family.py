"""The driver's side of a transaction family: many tasks write, and one decision says which of it counts.

    TransactionFamily(name) ─► ticket ──► tasks: FamilyMember(ticket) … finish() ──► works ──► commit(batch, works)

What must stay true: a batch is committed once, whichever process drives the family, and whole or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.protocol.names import MAX_FAMILY_BYTES, check_transactional_id
from raylog.actors.transactions.rules.family import FOR_EVER
from raylog.api.connection.client_access import LinkAddress, link_address
from raylog.api.connection.client_runtime import client_runtime
from raylog.api.connection.process_bound import ProcessBound
from raylog.api.families.family_requests import FamilyRequests
from raylog.api.families.member_requests import FamilyTicket, FamilyWork
from raylog.errors import ProducerClosed

if TYPE_CHECKING:
    from raylog.actors.machine.cluster_access import ClusterAccess
    from raylog.api.admin.cluster import Cluster

_CONNECT_SECONDS: Final = 30.0
_CLOSE_SECONDS: Final = 10.0
_GRACE_SECONDS: Final = 1.0  # in which a call that is out of time says so itself
_T = TypeVar("_T")


class TransactionFamily(ProcessBound):
    """Held by the driver of a job; a driver that held it before is fenced, and what its tasks left open is aborted.

        with TransactionFamily("daily-counts") as family:
            if family.last_batch < batch:                       # else an earlier run has committed it
                works = run_tasks(family.ticket)                # each: with FamilyMember(ticket) as member: …
                family.commit(batch, works)

    Numbers of batches go up from 0. Members stay open while this object lives, and `timeout_ms` longer. The last batch
    is remembered for `keep_ms` after the last use; None: for ever. Time-outs of calls are seconds; None: max_block_ms.
    """

    def __init__(
        self,
        name: str,
        *,
        cluster: Cluster | ClusterAccess | str | None = None,
        timeout_ms: int = 60_000,
        keep_ms: int | None = None,
        max_block_ms: int = 60_000,
    ) -> None:
        check_transactional_id(name, MAX_FAMILY_BYTES)
        self.name = name
        self._max_block_seconds = max_block_ms / 1000
        self._is_closed = False
        self._runtime = client_runtime()
        address = link_address(cluster, _CONNECT_SECONDS)
        keep = FOR_EVER if keep_ms is None else keep_ms
        self._link, self._requests = self._runtime.run(self._open(address, timeout_ms, keep), _CONNECT_SECONDS)
        try:
            self._call(self._requests.init, None)
        except BaseException:
            self._runtime.run(self._release(), _CLOSE_SECONDS)
            raise

    @property
    def ticket(self) -> FamilyTicket:
        """The ticket that `FamilyMember` takes, for the tasks."""
        return self._requests.ticket

    @property
    def last_batch(self) -> int:
        """The newest batch that was committed; −1: none was."""
        return self._requests.last_batch

    def commit(self, batch: int, works: Sequence[FamilyWork], timeout: float | None = None) -> None:
        """Let these count, and nothing else that was written since the last decision. Once it is over, readers see it.

        A batch that was committed before is left as it is; then these are aborted. TransactionAborted: one of them
        was ended before, so none counts; FamilyTooLarge: too many; both: write the batch again. TransactionPending:
        not known in time, call it again. FamilyFenced: another driver has taken over.
        """
        self._call(lambda seconds: self._requests.commit(batch, works, seconds), timeout)

    def abort(self, timeout: float | None = None) -> None:
        """Let nothing count that was written since the last decision. TransactionPending, FamilyFenced."""
        self._call(self._requests.abort, timeout)

    def close(self) -> None:
        """Let go of it. What is open is aborted when its time is over, or by the next driver. Twice is once."""
        if not self._is_closed:
            self._is_closed = True
            self._runtime.run(self._release(), _CLOSE_SECONDS)

    def __enter__(self) -> TransactionFamily:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def _open(self, address: LinkAddress, timeout_ms: int, keep_ms: int) -> tuple[ClusterLink, FamilyRequests]:
        link = await self._runtime.acquire_link(address)
        return link, FamilyRequests(link, self.name, timeout_ms, keep_ms)

    async def _release(self) -> None:
        await self._requests.close()
        await self._runtime.release_link(self._link)

    def _call(self, call: Callable[[float], Coroutine[Any, Any, _T]], timeout: float | None) -> _T:
        self._runtime.check("transaction family")
        if self._is_closed:
            raise ProducerClosed("its family was closed")
        seconds = self._max_block_seconds if timeout is None else timeout
        return self._runtime.run(call(seconds), seconds + _GRACE_SECONDS)
