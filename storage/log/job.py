"""Slow work for a log in three steps, so that its owner need not wait for the disk.

    plan     the owner calls `log.plan_…`, which makes the job from the log as it is
    work     any thread: waits for the disk. The owner goes on meanwhile
    apply    the owner: the log takes in what was done, and checks whether it still fits
    abandon  the owner, in place of `apply`, where `work` failed

What must stay true: `work` changes nothing that the owner has in memory. The log may be appended to, cut or closed
while it runs, so `apply` trusts nothing that was read for the plan without a check.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from raylog.storage.log.state import LogState, while_open

_R = TypeVar("_R")


class Job(ABC, Generic[_R]):
    """One piece of slow work for one log. `_R` is what the owner learns from `apply`."""

    def __init__(self, log: LogState) -> None:
        self._log = log

    @property
    def has_work(self) -> bool:
        """Whether `work` has anything to do. Where it has not, it may be left out."""
        return True

    @abstractmethod
    def work(self) -> None:
        """Do what waits for the disk, on any thread."""

    def apply(self) -> _R:
        """Take the result into the log. LogOffline: the log has gone offline since."""
        return _apply(self._log, self)

    @abstractmethod
    def _take_in(self) -> _R:
        """Take the result in; the log is online."""

    def abandon(self) -> None:
        """Take note that `work` failed. Most jobs are planned anew the next time, and need nothing."""

    def run(self) -> _R:
        """All steps at once, on the owner's thread."""
        try:
            self.work()
        except BaseException:
            self.abandon()
            raise
        return self.apply()


@while_open
def _apply(_: LogState, job: Job[_R]) -> _R:
    return job._take_in()
