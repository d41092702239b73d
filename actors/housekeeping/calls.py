"""A replica's request for a compaction: the broker says where its housekeeping process is, and that gets the plan.

What must stay true: the stream lives for one plan. Its end tells the housekeeping process that nobody waits any more,
and tells the replica that nobody works any more; so neither needs to watch the other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from raylog.actors.housekeeping.compaction_messages import compact_log, report_of
from raylog.actors.kernel.environment import Environment
from raylog.actors.kernel.stream_interface import Response, expected
from raylog.actors.kernel.stream_requests import refuse_all
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.housekeeping_messages import FindHousekeeper, HousekeeperFound, LogCompacted
from raylog.actors.protocol.messages import Message
from raylog.errors import StreamNotOpen
from raylog.storage.compaction.cleaner import CompactionReport
from raylog.storage.compaction.plan import CompactionPlan

_COMPACT_SECONDS: Final = 6 * 3600.0  # with the time it waits for others; a process that hangs is killed long before

AskBroker: TypeAlias = Callable[[Message], Awaitable[Response]]


class HousekeeperCalls:
    """Requests for compactions. `ask_broker` carries a request to the replica's broker."""

    def __init__(self, env: Environment, ask_broker: AskBroker) -> None:
        self._env = env
        self._ask_broker = ask_broker

    async def compact(self, plan: CompactionPlan) -> CompactionReport:
        """Have this plan carried out. StreamError, or RemoteFailed with the reason: the log is as it was."""
        found = expected((await self._ask_broker(FindHousekeeper())).message, HousekeeperFound, "the broker")
        if not found.endpoints:
            raise StreamNotOpen("the housekeeping process", "the broker knows of none")
        stream = await self._env.dial(Endpoint.parse(found.endpoints[0]), "replica", refuse_all)
        try:
            answer = await stream.request(compact_log(plan), timeout=_COMPACT_SECONDS)
        finally:
            await stream.close(timeout=0)
        return report_of(expected(answer.message, LogCompacted, stream.peer), plan)
