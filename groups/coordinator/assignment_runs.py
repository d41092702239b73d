"""Runs of a coordinator's assignors: beside its loop, one call of a group at a time (rule 34).

    due ──a moment later──► planned ──► running ──► taken, or thrown away where the group has changed: due again
                                           │
                                           └─ failed ──after a while, or sooner where the group changes──► planned

What must stay true:
- What has been computed is taken only by the group that it was computed for: same epoch, same members.
- What an assignor is told is put together beside the loop too: many members with many names take a while.
- A group whose assignor fails keeps its assignment. The more often it fails, the longer the group waits for the next
  try, also if it changes all the time: so it cannot keep the others' assignors waiting.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from raylog.actors.kernel.background import BackgroundTasks, TimerHandle, Timers
from raylog.actors.kernel.backoff import Backoff
from raylog.errors import AssignorFailed, UnknownAssignor
from raylog.groups.assignors.calling import Assignors, Given, OffLoop, check_assignor
from raylog.groups.records.settings import GroupSettings
from raylog.groups.rules.rebalance import TargetBasis, TargetPlan
from raylog.groups.rules.shard import Due, GroupShard

_log = logging.getLogger(__name__)

_FIRST_PAUSE_MS: Final = 1_000  # of a group that changes, after its second failure; doubled with each further one
_LONG_SECONDS: Final = 1.0


class AssignmentRuns:
    """`changed(group)`: the shard may have something new to tell. Errors that nobody expected end `tasks`' owner."""

    def __init__(
        self,
        shard: GroupShard,
        timers: Timers,
        tasks: BackgroundTasks,
        assignors: Assignors,
        off_loop: OffLoop,
        settings: GroupSettings,
        random: Random,
        changed: Callable[[str], None],
    ) -> None:
        self._shard = shard
        self._timers = timers
        self._tasks = tasks
        self._assignors = assignors
        self._off_loop = off_loop
        self._settings = settings
        self._backoff_ms = Backoff(_FIRST_PAUSE_MS, settings.assignor_retry_ms, random)
        self._changed = changed
        self._waiting: dict[str, TimerHandle] = {}
        self._trying_again: dict[str, TimerHandle] = {}
        self._running: set[str] = set()
        self._failures: dict[str, int] = {}
        self._has_ended = False

    def due(self, group: str) -> None:
        """A new target is. Further changes do not put off a run that waits; a retry after a failure they hasten."""
        if group in self._waiting or group in self._running or self._has_ended:
            return
        again = self._trying_again.pop(group, None)
        if again is not None:
            self._timers.cancel(again)
        self._waiting[group] = self._timers.after(self._pause_ms(group), partial(self._start, group, False))

    def end(self) -> None:
        self._has_ended = True
        self._assignors.close()

    def _pause_ms(self, group: str) -> float:
        """The first failure is forgiven: what the group has changed may be what was wrong."""
        failures = self._failures.get(group, 0)
        if failures < 2:
            return self._settings.rebalance_delay_ms
        return self._backoff_ms.after(failures - 1)

    def _start(self, group: str, again: bool) -> None:
        (self._trying_again if again else self._waiting).pop(group, None)
        self._tasks.start(self._run(group, again))

    async def _run(self, group: str, again: bool) -> None:
        if self._has_ended or group in self._running:
            return
        basis = self._shard.begin_assignment(group, regardless=again)
        if isinstance(basis, TargetBasis):
            self._running.add(group)
            try:
                await self._carry_out(await self._off_loop(basis.plan))
            finally:
                self._running.discard(group)
        elif basis is Due.LATER:
            self._try_again(group)
        else:
            self._failures.pop(group, None)
        self._changed(group)

    async def _carry_out(self, plan: TargetPlan) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            given = await self._called(plan)
        except (AssignorFailed, UnknownAssignor) as error:
            if not self._has_ended:
                self._failed(plan, error)
            return
        took = loop.time() - began
        if took > _LONG_SECONDS:
            _log.warning("The assignor of group %s took %d ms.", plan.group_id, took * 1000)
        if not self._has_ended:
            self._failures.pop(plan.group_id, None)
            self._shard.finish_assignment(plan, given)

    async def _called(self, plan: TargetPlan) -> Given:
        check_assignor(plan.call.name, self._settings.assignors)  # a member of before may ask for it still
        return await self._assignors.run(plan.call)

    def _failed(self, plan: TargetPlan, error: AssignorFailed | UnknownAssignor) -> None:
        self._failures[plan.group_id] = self._failures.get(plan.group_id, 0) + 1
        self._shard.fail_assignment(plan, error)
        self._try_again(plan.group_id)

    def _try_again(self, group: str) -> None:
        delay_ms = self._settings.assignor_retry_ms
        self._trying_again[group] = self._timers.after(delay_ms, partial(self._start, group, True))
