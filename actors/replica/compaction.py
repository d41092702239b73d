"""Compaction of a replica's log: when it is due, and how the result comes into the log.

    a while → worth while? plan → the broker's housekeeping process does it → put in place, step by step → a while …

What must stay true:
- The event loop plans, and renames files. All that scans or syncs is done elsewhere.
- A compaction that fails leaves the log as good as before, and is tried again later. Damage that the log itself
  confirms goes to `DamageCare` (rule 14).
- While the log's files are being replaced here, nobody else replaces them (`files`). A cut of the log may: it comes
  first, and makes the compaction outdated.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Final

from raylog.actors.housekeeping.calls import HousekeeperCalls
from raylog.actors.kernel.backoff import Backoff
from raylog.actors.replica.hosted_log import HostedLog
from raylog.errors import LogDamaged, LogOffline, OffsetOutOfRange, RaylogError, RemoteFailed
from raylog.storage.compaction import plan_files
from raylog.storage.compaction.cleaner import CompactionReport
from raylog.storage.compaction.last_writes import LastWriteRows
from raylog.storage.compaction.plan import CompactionPlan
from raylog.storage.compaction.swap import draft_suffix, remove_drafts
from raylog.storage.log.compaction import Installation

LOOK_SECONDS: Final = 15.0
LONGEST_PAUSE: Final = 600.0
_DATED_AT_ONCE: Final = 16
_PRODUCERS_AT_ONCE: Final = 5000
_log = logging.getLogger(__name__)


class LogCompaction:
    """Compacts the log of one replica."""

    def __init__(self, hosted: HostedLog, housekeeper: HousekeeperCalls, files: asyncio.Lock) -> None:
        self._hosted = hosted
        self._housekeeper = housekeeper
        self._files = files
        self._failed: list[str] = []  # what may still come of them is removed once more at the next look

    async def run(self) -> None:
        """Look now and then whether a compaction is due, as long as the log is online."""
        random = self._hosted.env.random
        backoff = Backoff(2 * LOOK_SECONDS, LONGEST_PAUSE, random)
        pause = LOOK_SECONDS * (0.5 + random.random())
        while not self._hosted.failed.done():
            await asyncio.sleep(pause)
            try:
                await self._look()
                backoff.reset()
                pause = LOOK_SECONDS * (0.5 + random.random())
            except LogOffline:
                break
            except RaylogError as error:
                pause = backoff.next()
                _log.info("%s: its compaction waits: %s", self._hosted.name, error)
        self._hosted.check_offline()

    async def _look(self) -> None:
        await self._remove_drafts(self._failed)
        self._failed = []
        plan = await self._plan() if self._hosted.log.config.is_compacted else None
        if plan is None:
            return
        try:
            await self._save_plan_files(plan)
            report = await self._housekeeper.compact(plan)
            async with self._files:
                await self._install(report)
            await self._remove_drafts([plan.run])
        except RaylogError as error:
            self._failed = [plan.run]
            await self._remove_drafts(self._failed)
            if isinstance(error, RemoteFailed) and isinstance(error.error, LogDamaged):
                self._look_at(error.error, plan)
            raise

    async def _plan(self) -> CompactionPlan | None:
        log = self._hosted.log
        if log.config.min_compaction_lag_ms > 0:
            async with self._files:
                for first in range(0, len(log.segments.sealed), _DATED_AT_ONCE):
                    await self._hosted.carry_out(log.plan_dating(log.segments.sealed[first : first + _DATED_AT_ONCE]))
        return log.plan_compaction(self._hosted.env.wall_ms())

    async def _save_plan_files(self, plan: CompactionPlan) -> None:
        """Write the plan's files. A log may know a million producers, so the loop collects a few thousand at a time."""
        rows, producers = LastWriteRows(), self._hosted.log.producers
        producer_ids = producers.ids()
        for first in range(0, len(producer_ids), _PRODUCERS_AT_ONCE):
            rows.add(producers.last_writes(producer_ids[first : first + _PRODUCERS_AT_ONCE]))
            await asyncio.sleep(0)
        await self._hosted.beside(partial(plan_files.save, self._hosted.log.disk, plan, rows))

    async def _install(self, report: CompactionReport) -> None:
        step: Installation | None = self._hosted.log.plan_installation(report, self._hosted.env.wall_ms())
        while step is not None:
            step = await self._hosted.carry_out(step)

    async def _remove_drafts(self, runs: list[str]) -> None:
        log = self._hosted.log
        for run in runs:
            if log.offline_because is None:
                await self._hosted.beside(partial(remove_drafts, log.directory, draft_suffix(run)))

    def _look_at(self, damage: LogDamaged, plan: CompactionPlan) -> None:
        """Read in the log what the other process could not read, if the log has the same segments still."""
        log = self._hosted.log
        name = damage.path.rpartition("/")[2]
        if log.shape != plan.made_for or not name[:20].isdigit():
            return
        try:
            segment = log.segments.containing(int(name[:20]))
            position, offset = segment.boundary_before(min(damage.position, segment.size))
            while position <= damage.position and offset < segment.next_offset:
                header = log.inspect(offset)
                position, offset = position + header.size, header.next_offset
        except OffsetOutOfRange:
            return  # it lies before the log's start
        _log.warning("%s: the housekeeping process found damage that is not there: %s", self._hosted.name, damage)
