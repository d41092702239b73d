"""Upkeep of a replica's log: checkpoints, due flushes, retention, forgotten producers, compaction.

What must stay true:
- None of it is needed for an acknowledged record to survive. Each step may fail, and is done again the next time.
- Retention is due by what the log holds, looked at in every round. A clock of its own would begin anew with each
  process: with a leader that is killed every 25 s, a log of `retention.bytes` 1 MB grew to 15 MB.
- What waits for the disk is done beside the event loop: a checkpoint syncs twice (5 ms on the disk of a laptop), and
  freeing the blocks of a file of 1 GiB took 0.1 to 0.2 s.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Final

from raylog.actors.housekeeping.calls import HousekeeperCalls
from raylog.actors.replica.compaction import LogCompaction
from raylog.actors.replica.hosted_log import HostedLog
from raylog.errors import DiskError, LogDamaged, LogOffline
from raylog.storage.directory.partition_directory import LogCheckpoint

_ROUND_SECONDS: Final = 1.0
_CHECKPOINT_ROUNDS: Final = 5
_EXPIRY_ROUNDS: Final = 60
_FIRST_EXPIRY: Final = 10  # a process that never lives for a minute forgets idle producers too
_ROUNDS_AFTER_FAILURE: Final = 10
_SPARED_MS: Final = 60_000  # what was just written can be read for that long, however old its timestamps
_DELETED_AT_ONCE: Final = 8  # segments, in one turn of the loop
_LOOK_AGAIN_SECONDS: Final = 0.1
_LET_GO_LOOKS: Final = 20
_log = logging.getLogger(__name__)


class LogUpkeep:
    """Rounds of upkeep for the log of one replica."""

    def __init__(self, hosted: HostedLog, housekeeper: HousekeeperCalls) -> None:
        self._hosted = hosted
        self._files = asyncio.Lock()  # held while segments are replaced or removed
        self._compaction = LogCompaction(hosted, housekeeper, self._files)
        self._written: LogCheckpoint | None = None
        self._retention_waits = 0  # rounds, after the disk refused

    async def run(self) -> None:
        """Make rounds, as long as the log is online."""
        self._hosted.start(self._compaction.run())
        number = 0
        while not self._hosted.failed.done():
            await asyncio.sleep(_ROUND_SECONDS * (0.5 + self._hosted.env.random.random()))
            number += 1
            try:
                await self._round(number)
            except LogOffline:
                break
        self._hosted.check_offline()

    async def _round(self, number: int) -> None:
        """Take each step by itself: on a full disk the one that fails must not keep back the one that frees space."""
        self._hosted.appended()  # flush.ms
        await self._step(self._retain())
        await self._step(self._remove_files())
        if number % _EXPIRY_ROUNDS == _FIRST_EXPIRY:
            self._hosted.log.expire_producers(self._hosted.env.wall_ms())
        if number % _CHECKPOINT_ROUNDS == 0:
            await self._step(self._checkpoint())

    async def _step(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except (DiskError, LogDamaged) as error:
            _log.warning("%s: a step of its upkeep waits: %s", self._hosted.name, error)

    async def _retain(self) -> None:
        if self._retention_waits:
            self._retention_waits -= 1
        elif not self._files.locked() and self._is_retention_due():
            self._retention_waits = _ROUNDS_AFTER_FAILURE
            async with self._files:
                await self._delete_old_segments()
            self._retention_waits = 0

    def _is_retention_due(self) -> bool:
        log, now_ms = self._hosted.log, self._hosted.env.wall_ms()
        return log.may_have_old_segments(now_ms, decides=self._hosted.is_leading, spared_ms=_SPARED_MS)

    async def _checkpoint(self) -> None:
        marks = self._hosted.log.marks.now()
        if marks != self._written and await self._hosted.carry_out(self._hosted.log.plan_checkpoint()):
            self._written = marks

    async def _delete_old_segments(self) -> None:
        """The leader alone decides. A follower with a wrong clock would delete what the others keep, and they too."""
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
        if not removal.has_work:
            return
        for _ in range(_LET_GO_LOOKS):
            if not log.flushes.is_letting_go:
                break
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)
        await self._hosted.carry_out(removal)
