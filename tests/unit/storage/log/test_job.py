"""The steps of a job, in which order they come, and what a failure or an end between them leaves."""

from __future__ import annotations

import pytest

from raylog.errors import DiskBusy, DiskFailed, LogOffline
from raylog.storage.log.job import Job
from raylog.storage.log.partition_log import PartitionLog
from tests.unit.storage.small_log import append, new_log


class Noted(Job[str]):
    """Notes its steps; `work` and `apply` raise what they are told."""

    def __init__(self, log: PartitionLog) -> None:
        super().__init__(log)
        self.steps: list[str] = []
        self.work_raises: Exception | None = None
        self.apply_raises: Exception | None = None

    def work(self) -> None:
        self.steps.append("work")
        if self.work_raises is not None:
            raise self.work_raises

    def _take_in(self) -> str:
        self.steps.append("apply")
        if self.apply_raises is not None:
            raise self.apply_raises
        return "done"

    def abandon(self) -> None:
        self.steps.append("abandon")


def test_a_job_works_and_is_applied() -> None:
    job = Noted(new_log()[0])
    assert job.has_work
    assert job.run() == "done"
    assert job.steps == ["work", "apply"]


def test_a_job_whose_work_fails_is_abandoned_and_not_applied() -> None:
    log, _ = new_log()
    job = Noted(log)
    job.work_raises = DiskBusy("no handle is free")
    with pytest.raises(DiskBusy):
        job.run()
    assert job.steps == ["work", "abandon"]
    assert log.offline_because is None


def test_a_job_is_not_applied_to_a_log_that_went_offline_meanwhile() -> None:
    log, _ = new_log()
    job = Noted(log)
    job.work()
    log.go_offline(DiskFailed("a sync failed"))
    with pytest.raises(LogOffline):
        job.apply()
    assert job.steps == ["work"]


def test_a_failed_disk_in_the_last_step_takes_the_log_offline() -> None:
    log, _ = new_log()
    job = Noted(log)
    job.apply_raises = DiskFailed("a write failed")
    with pytest.raises(DiskFailed):
        job.run()
    assert job.steps == ["work", "apply"]  # what was done cannot be taken back
    assert isinstance(log.offline_because, DiskFailed)


def test_a_log_that_is_offline_plans_nothing() -> None:
    log, _ = new_log()
    append(log)
    log.go_offline(DiskFailed("a sync failed"))
    plans = (
        log.plan_flush,
        log.plan_checkpoint,
        lambda: log.plan_deletion(0),
        lambda: log.plan_removal(0),
        lambda: log.plan_dating(log.segments.sealed),
        lambda: log.plan_truncation(0, 0),
        lambda: log.plan_copy("why", 0),
    )
    for plan in plans:
        with pytest.raises(LogOffline):
            plan()
