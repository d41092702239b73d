"""Upkeep of a replica's log: checkpoints, due flushes, retention, forgotten producers, compaction.

The sweep of the host calls `look` when something has changed, when `look` has asked for it, and else now and then.

What must stay true:
- None of it is needed for an acknowledged record to survive. Each step may fail, and is done again the next time.
- A log to which nothing happens costs a few comparisons a look, and has neither a task nor a timer.
- Retention is due by what the log holds, looked at each time. A clock of its own would begin anew with each
  process: with a leader that is killed every 25 s, a log of `retention.bytes` 1 MB grew to 15 MB.
- What waits for the disk is done beside the event loop: a checkpoint syncs twice (5 ms on the disk of a laptop), and
  freeing the blocks of a file of 1 GiB took 0.1 to 0.2 s.
- Few checkpoints of a host are written at once, and not many in a second: what waits for the same threads is more
  urgent, epochs of new leaders and openings.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, TypeAlias

from raylog.actors.housekeeping.calls import HousekeeperCalls
from raylog.actors.replica.compaction import LogCompaction
from raylog.actors.replica.hosted_log import HostedLog
from raylog.actors.replica.sweep import CheckpointTurns
from raylog.errors import DiskError, LogDamaged, LogOffline

_EXPIRY_SECONDS: Final = 60.0
_FIRST_EXPIRY_SECONDS: Final = 10.0  # a process that never lives for a minute forgets idle producers too
_AFTER_FAILURE_SECONDS: Final = 10.0
_SPARED_MS: Final = 60_000  # what was just written can be read for that long, however old its timestamps
_DELETED_AT_ONCE: Final = 8  # segments, in one turn of the loop
_LOOK_AGAIN_SECONDS: Final = 0.1
_LET_GO_LOOKS: Final = 20
_log = logging.getLogger(__name__)

_Step: TypeAlias = Callable[[], Awaitable[None]]


class LogUpkeep:
    """Upkeep of the log of one replica."""

    def __init__(self, hosted: HostedLog, housekeeper: HousekeeperCalls, turns: CheckpointTurns) -> None:
        self._hosted = hosted
        self._turns = turns
        self._loop = asyncio.get_running_loop()
        self._files = asyncio.Lock()  # held while segments are replaced or removed
        self._compaction = LogCompaction(hosted, housekeeper, self._files)
        self._working: asyncio.Task[None] | None = None
        now = self._loop.time()
        self._checkpoint_at = now + turns.checkpoint_seconds * (0.5 + hosted.env.random.random())
        self._expiry_at = now + _FIRST_EXPIRY_SECONDS
        self._retention_at = now

    def look(self) -> float | None:
        """Begin what is due. Return in how many seconds more will be; None: not before something has changed."""
        now, now_ms = self._loop.time(), self._hosted.env.wall_ms()
        self._hosted.flush_if_due()
        if now >= self._expiry_at:
            self._expiry_at = now + _EXPIRY_SECONDS
            self._hosted.log.expire_producers(now_ms)
        if self._working is None and (steps := self._due_steps(now, now_ms)):
            self._working = self._hosted.start(self._work(steps))
        waits = (self._compaction.look(), self._until_checkpoint(now), *self._until_time_is_over(now_ms))
        return min((each for each in waits if each is not None), default=None)

    def _due_steps(self, now: float, now_ms: int) -> list[_Step]:
        steps: list[_Step] = []
        if self._is_retention_due(now, now_ms):
            steps.append(self._retain)
        if (wait_ms := self._hosted.log.removals.due_in_ms(now_ms)) is not None and wait_ms <= 0:
            steps.append(self._remove_files)
        if self._has_new_marks and now >= self._checkpoint_at:
            steps.append(self._checkpoint)
        return steps

    async def _work(self, steps: list[_Step]) -> None:
        """Take each step by itself: on a full disk the one that fails must not keep back the one that frees space."""
        for step in steps:
            try:
                await step()
            except (DiskError, LogDamaged) as error:
                _log.warning("%s: a step of its upkeep waits: %s", self._hosted.name, error)
            except LogOffline:
                self._hosted.check_offline()
                return
        self._working = None
        self._hosted.changed()

    # --- what comes by time ---

    def _until_checkpoint(self, now: float) -> float | None:
        return max(0.0, self._checkpoint_at - now) if self._has_new_marks and self._working is None else None

    def _until_time_is_over(self, now_ms: int) -> Iterator[float]:
        """Yield the seconds until a flush, a removal and a deletion by age. What is due already has been begun."""
        log = self._hosted.log
        for wait_ms in (
            log.flushes.due_in_ms(log.config, now_ms),
            log.removals.due_in_ms(now_ms),
            log.old_segments_due_in_ms(now_ms, decides=self._hosted.is_leading, spared_ms=_SPARED_MS),
        ):
            if wait_ms is not None and wait_ms > 0:
                yield wait_ms / 1000

    # --- the steps ---

    def _is_retention_due(self, now: float, now_ms: int) -> bool:
        if now < self._retention_at or self._files.locked():
            return False
        return self._hosted.log.may_have_old_segments(now_ms, decides=self._hosted.is_leading, spared_ms=_SPARED_MS)

    async def _retain(self) -> None:
        self._retention_at = self._loop.time() + _AFTER_FAILURE_SECONDS
        async with self._files:
            await self._delete_old_segments()
        self._retention_at = self._loop.time()

    @property
    def _has_new_marks(self) -> bool:
        log = self._hosted.log
        return log.marks.now() != log.directory.marks_on_disk

    async def _checkpoint(self) -> None:
        async with self._turns.checkpoints:
            self._checkpoint_at = self._loop.time() + self._turns.checkpoint_seconds
            await self._hosted.carry_out(self._hosted.log.plan_checkpoint())

    async def _delete_old_segments(self) -> None:
        """Delete them, as the leader alone decides.

        A follower with a wrong clock would delete what the others keep, and they too.
        """
        hosted, log, is_done = self._hosted, self._hosted.log, False
        while not is_done:
            await hosted.carry_out(log.plan_dating(log.segments.sealed[:_DELETED_AT_ONCE]))
            deletion = log.plan_deletion(
                hosted.env.wall_ms(), _DELETED_AT_ONCE, decides=lambda: hosted.is_leading, spared_ms=_SPARED_MS
            )
            deleted = await hosted.carry_out(deletion)
            is_done = len(deleted) < _DELETED_AT_ONCE
        hosted.when_start_moves()

    async def _remove_files(self) -> None:
        log = self._hosted.log
        removal = log.plan_removal(self._hosted.env.wall_ms())
        for _ in range(_LET_GO_LOOKS):
            if not log.flushes.is_letting_go:
                break
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)
        await self._hosted.carry_out(removal)
