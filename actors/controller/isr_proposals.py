"""ISR proposals of one turn of the loop as one change: when a host dies, a thousand leaders propose at once.

What must stay true: each proposal is decided by itself, on the state as it is then, and answered by itself. A partition
is in a change once at most, since what is decided on it follows from its own records (`sessions.py`).
"""

from __future__ import annotations

import asyncio
from typing import Final, TypeAlias

from raylog.actors.cluster.election.isr_changes import propose_isr
from raylog.actors.cluster.partition import PartitionId
from raylog.actors.controller.changes import ClusterChanges
from raylog.actors.protocol.control_messages import ProposeIsr
from raylog.actors.protocol.messages import Message
from raylog.errors import RaylogError, TooManyBytesInFlight

MOST_AT_ONCE: Final = 500  # partitions in one change, some 100 KiB

_Decided: TypeAlias = "asyncio.Future[None]"


class IsrProposals:
    """Proposals that wait for the end of this turn."""

    def __init__(self, changes: ClusterChanges) -> None:
        self._changes = changes
        self._loop = asyncio.get_running_loop()
        self._waiting: list[tuple[ProposeIsr, _Decided]] = []

    async def carry(self, proposal: ProposeIsr) -> None:
        """Decide it with the others of this turn, and return once it is recorded. Raises what `propose_isr` does."""
        decided: _Decided = self._loop.create_future()
        self._waiting.append((proposal, decided))
        if len(self._waiting) == 1:
            self._loop.call_soon(self._decide)
        await decided

    def _decide(self) -> None:
        waiting, self._waiting = self._waiting, []
        records: list[Message] = []
        agreed: list[_Decided] = []
        seen: set[PartitionId] = set()
        for proposal, decided in waiting:
            partition = proposal.topic_id, proposal.partition
            if decided.done():  # nobody waits for it any more
                continue
            if partition in seen or len(seen) == MOST_AT_ONCE:
                self._waiting.append((proposal, decided))
                continue
            try:
                records += propose_isr(self._changes.state, self._changes.live, proposal)
            except RaylogError as error:
                decided.set_exception(error)
                continue
            seen.add(partition)
            agreed.append(decided)
        if self._waiting:
            self._loop.call_soon(self._decide)
        if agreed:
            self._record(records, agreed)

    def _record(self, records: list[Message], agreed: list[_Decided]) -> None:
        try:
            committed = self._changes.submit(records)
        except TooManyBytesInFlight as error:
            _fail(agreed, error)
        else:
            committed.add_done_callback(lambda done: _answer(agreed, done))


def _answer(agreed: list[_Decided], committed: asyncio.Future[int]) -> None:
    error = asyncio.CancelledError() if committed.cancelled() else committed.exception()
    if error is not None:
        _fail(agreed, error)
        return
    for decided in agreed:
        if not decided.done():
            decided.set_result(None)


def _fail(agreed: list[_Decided], error: BaseException) -> None:
    for decided in agreed:
        if decided.done():
            continue
        if isinstance(error, asyncio.CancelledError):
            decided.cancel()
        else:
            decided.set_exception(error)
