"""A transaction coordinator that counts its steps, so that something can be killed between any two of them.

A step is what others can see of it: a batch in its log, a marker. There is a point before and one behind each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from raylog.actors.coordinators.claimed_log import CoordinatorLog
from raylog.actors.kernel.environment import Environment
from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.protocol.coordinator_records import Entry
from raylog.actors.protocol.coordinator_spec import CoordinatorSpec
from raylog.actors.protocol.transaction_messages import TransactionRecord
from raylog.actors.transactions.coordinator import TransactionCoordinator

_FOR_EVER = 1e9


class Points:
    """Counts the points that are passed once it is armed, and calls `kill` at one of them, once.

    `ends_here`: whoever passes it is to go no further.
    """

    def __init__(self, *, ends_here: bool) -> None:
        self.passed: list[str] = []
        self._ends_here = ends_here
        self._at: int | None = None
        self._kill: Callable[[], None] = lambda: None

    def arm(self, at: int, kill: Callable[[], None]) -> None:
        self.passed = []
        self._at, self._kill = at, kill

    @property
    def is_armed(self) -> bool:
        return self._at is not None

    def stops_at(self, name: str) -> bool:
        if self._at is None:
            return False
        self.passed.append(name)
        if len(self.passed) < self._at:
            return False
        self._at = None
        self._kill()
        return self._ends_here


class _StepwiseLog:
    def __init__(self, log: CoordinatorLog, points: Points) -> None:
        self._log = log
        self._points = points

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def append(self, entries: Sequence[Entry], *, is_urgent: bool = True) -> asyncio.Future[None]:
        if self._points.stops_at("before a record"):
            return asyncio.get_running_loop().create_future()
        return asyncio.ensure_future(self._committed(self._log.append(entries, is_urgent=is_urgent)))

    async def _committed(self, appended: asyncio.Future[None]) -> None:
        await appended
        if self._points.stops_at("behind a record"):
            await asyncio.sleep(_FOR_EVER)


def stepwise(points: Points) -> Callable[..., TransactionCoordinator]:
    """Make a stepwise coordinator, for `SimulatedCluster.coordinator_makers`."""

    def make(env: Environment, spec: CoordinatorSpec, log: CoordinatorLog, link: ClusterLink) -> TransactionCoordinator:
        counted: Any = _StepwiseLog(log, points)
        made = TransactionCoordinator(env, spec, counted, link)
        write = made._markers._write

        async def write_all(record: TransactionRecord) -> None:
            for partition in record.partitions:  # one after the other, so that some have theirs and some have not
                if points.stops_at("before a marker"):
                    await asyncio.sleep(_FOR_EVER)
                await write(record, partition)
                if points.stops_at("behind a marker"):
                    await asyncio.sleep(_FOR_EVER)

        made._markers.write_all = write_all  # type: ignore[method-assign]
        return made

    return make
