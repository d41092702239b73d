"""What workers find to do, and when they are to look again."""

from __future__ import annotations

import time

import pytest

from raylog.api.connection.records import ConsumerRecord, TopicPartition
from raylog.api.parallel.rules.parallel_work import UNORDERED, ParallelWork
from raylog.api.parallel.shared_work import WorkFloor

P = TopicPartition("t", 0)


def floor_with_failures() -> WorkFloor:
    """One record waits to be tried again, since a while; one is running."""
    floor = WorkFloor(ParallelWork(UNORDERED, 10, 2**30, None, 0.0, 0.0))
    floor.take({P: [ConsumerRecord("t", 0, offset, 0, 0, None, b"v", (), 0) for offset in range(2)]})
    failing, _ = floor.start()
    running, _ = floor.start()
    assert failing is not None
    assert running is not None
    assert floor.fail(failing, ValueError(), is_final=False)
    return floor


def test_what_has_failed_is_started_when_it_is_due() -> None:
    floor = floor_with_failures()
    task, _ = floor.start()
    assert task is not None
    assert task.attempts == 2


@pytest.mark.parametrize("way", ["halted", "closed"])
def test_nobody_waits_for_what_is_never_started(way: str) -> None:
    floor = floor_with_failures()
    if way == "halted":
        floor.halt(None, ValueError())
    else:
        floor.close()
    assert floor.start() == (None, None)


def test_a_signal_ends_the_next_wait() -> None:
    floor = floor_with_failures()
    floor.progress.expect()
    floor.progress.wake()
    floor.progress.wake()
    began = time.monotonic()
    floor.progress.wait(20.0)
    assert time.monotonic() - began < 10.0


def test_the_first_reason_counts() -> None:
    floor = floor_with_failures()
    first = ValueError("first")
    floor.halt(None, first)
    floor.halt(None, ValueError("second"))
    assert floor.halted_by is first
