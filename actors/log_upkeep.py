"""What a replica does for its log now and then: checkpoints, due flushes, retention, forgotten producers.

What must stay true: none of it is needed for an acknowledged record to survive, and each of it may fail and be done
again the next time. Steps that take long run beside the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from raylog.actors.hosted_log import HostedLog
from raylog.errors import DiskError, LogOffline
from raylog.storage.partition_directory import LogCheckpoint

_ROUND_SECONDS: Final = 1.0
_CHECKPOINT_ROUNDS: Final = 5
_RETENTION_ROUNDS: Final = 60
_log = logging.getLogger(__name__)


class LogUpkeep:
    """One replica's round."""

    def __init__(self, hosted: HostedLog) -> None:
        self._hosted = hosted
        self._written: LogCheckpoint | None = None

    async def run(self) -> None:
        """For as long as the log is online."""
        number = 0
        while not self._hosted.failed.done():
            await asyncio.sleep(_ROUND_SECONDS * (0.5 + self._hosted.env.random.random()))
            number += 1
            try:
                self._round(number)
            except LogOffline:
                break
            except DiskError as error:
                _log.warning("%s: its upkeep waits: %s", self._hosted.name, error)
        self._hosted.check_offline()

    def _round(self, number: int) -> None:
        log, now_ms = self._hosted.log, self._hosted.env.wall_ms()
        self._hosted.appended()  # flush.ms
        if number % _CHECKPOINT_ROUNDS == 0 and log.marks() != self._written:
            log.checkpoint()
            self._written = log.marks()
        if number % _RETENTION_ROUNDS == 0:
            for expired in log.delete_old_segments(now_ms):
                _log.info("%s: %s", self._hosted.name, expired)
            log.expire_producers(now_ms)
        log.remove_deleted_files(now_ms)
