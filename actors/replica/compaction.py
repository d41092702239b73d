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

LOOK_SECONDS: Final = 15.0
LONGEST_QUIET_SECONDS: Final = 60.0  # between looks at a log to which nothing is written; age alone may make it due
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
        self._loop = asyncio.get_running_loop()
        self._backoff = Backoff(2 * LOOK_SECONDS, LONGEST_PAUSE, hosted.env.random)
        self._due: float | None = None
        self._due_if_quiet = 0.0
        self._quiet_seconds = LOOK_SECONDS
        self._seen = -1, -1  # log end and high watermark at the last look
        self._compacting: asyncio.Task[None] | None = None
        self._failed: list[str] = []  # what may still come of them is removed once more at the next look

    def look(self) -> float | None:
        """Begin to compact, if it is time to see to that. Return the seconds until it is; None: not of this topic."""
        if not (self._hosted.log.config.is_compacted or self._failed):
            self._due = None
            return None
        now = self._loop.time()
        if self._due is None:
            self._due = self._due_if_quiet = now + self._pause()
        due = self._due_if_quiet if self._ends() == self._seen else self._due
        if now >= due and self._compacting is None:
            self._compacting = self._hosted.start(self._compact())
        return LOOK_SECONDS if self._compacting is not None else due - now

    def _ends(self) -> tuple[int, int]:
        return self._hosted.log.log_end_offset, self._hosted.log.high_watermark

    def _pause(self) -> float:
        return LOOK_SECONDS * (0.5 + self._hosted.env.random.random())

    async def _compact(self) -> None:
        before, self._seen = self._seen, self._ends()
        try:
            is_quiet = not await self._compact_if_worth_while() and before == self._seen
            self._backoff.reset()
            pause = self._pause()
            self._quiet_seconds = min(2 * self._quiet_seconds, LONGEST_QUIET_SECONDS) if is_quiet else pause
        except LogOffline:
            self._hosted.check_offline()
            return
        except RaylogError as error:
            pause = self._quiet_seconds = self._backoff.next()
            _log.info("%s: its compaction waits: %s", self._hosted.name, error)
        now = self._loop.time()
        self._due, self._due_if_quiet, self._compacting = now + pause, now + self._quiet_seconds, None

    async def _compact_if_worth_while(self) -> bool:
        """Return whether there was anything to do."""
        await self._remove_drafts(self._failed)
        self._failed = []
        plan = await self._plan() if self._hosted.log.config.is_compacted else None
        if plan is None:
            return False
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
        self._hosted.changed()
        return True

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
        await self._hosted.carry_out_all(self._hosted.log.plan_installation(report, self._hosted.env.wall_ms()))

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
