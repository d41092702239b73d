"""Changed settings of a topic, on the disk of each of its replicas.

What must stay true: the log goes by settings that are on disk, or newer ones are on their way there. What is written
never claims that all is synced which the log counts while that is not so: see `PartitionDirectory.write_config`.
"""

from __future__ import annotations

from collections.abc import Mapping

from raylog.config import ConfigValue, TopicConfig
from raylog.storage.log.flushing import write_flush_policy
from raylog.storage.log.job import Job
from raylog.storage.log.state import LogState


class LogSettings(Job[None]):
    """Writes them down and takes them over. Where others were written meanwhile, it changes nothing."""

    def __init__(self, log: LogState, overrides: Mapping[str, ConfigValue]) -> None:
        super().__init__(log)
        self._config = TopicConfig.parse(overrides)
        self._write = log.directory.begin_config(self._config, all_synced=False)  # appends go on meanwhile
        self._is_written = False

    def work(self) -> None:
        self._is_written = self._write.carry_out()

    def _take_in(self) -> None:
        if self._is_written:
            log = self._log
            log.config = self._config
            log.flushes.counted_unsynced = log.log_end_offset
            write_flush_policy(log)


def update_config(log: LogState, overrides: Mapping[str, ConfigValue]) -> None:
    """Take over the topic's changed settings."""
    LogSettings(log, overrides).run()
