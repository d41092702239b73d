"""What workers find to do, and when they are to look again."""

from __future__ import annotations

import time
from random import Random

import pytest

from raylog.actors.kernel.backoff import Backoff
from raylog.api.connection.records import ConsumerRecord, TopicPartition
from raylog.api.parallel.rules.parallel_work import UNORDERED, ParallelWork
from raylog.api.parallel.shared_work import SharedWork

P = TopicPartition("t", 0)


def work_with_failures() -> SharedWork:
    """One record waits to be tried again, since a while; one is running."""
    work = SharedWork(ParallelWork(UNORDERED, 10, 2**30, None, Backoff(0.0, 0.0, Random(1))))
    work.take({P: [ConsumerRecord("t", 0, offset, 0, 0, None, b"v", (), 0) for offset in range(2)]})
    failing, _ = work.start()
    running, _ = work.start()
    assert failing is not None
    assert running is not None
    assert work.fail(failing, ValueError(), is_final=False)
    return work


def test_what_has_failed_is_started_when_it_is_due() -> None:
    work = work_with_failures()
    task, _ = work.start()
    assert task is not None
    assert task.attempts == 2


@pytest.mark.parametrize("way", ["halted", "closed"])
def test_nobody_waits_for_what_is_never_started(way: str) -> None:
    work = work_with_failures()
    if way == "halted":
        work.halt(None, ValueError())
    else:
        work.close()
    assert work.start() == (None, None)


def test_a_signal_ends_the_next_wait() -> None:
    work = work_with_failures()
    work.progress.expect()
    work.progress.wake()
    work.progress.wake()
    began = time.monotonic()
    work.progress.wait(20.0)
    assert time.monotonic() - began < 10.0


def test_the_first_reason_counts() -> None:
    work = work_with_failures()
    first = ValueError("first")
    work.halt(None, first)
    work.halt(None, ValueError("second"))
    assert work.halted_by is first
