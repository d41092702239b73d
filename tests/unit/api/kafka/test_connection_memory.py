"""The memory of one connection: what it counts, and what it waits for."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("kafka", reason="the extra `kafka` is not installed")

from raylog.api.kafka.connection_memory import LONG_ANSWER_BYTES, STALL_SECONDS, ConnectionMemory
from raylog.api.kafka.rules.memory_budget import FREE_BYTES, MemoryBudget

_MOST = 4 * LONG_ANSWER_BYTES
_METADATA, _HEARTBEAT = 3, 12


class Clock:
    def __init__(self) -> None:
        self.now = 50.0
        self.called: list[Any] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, call: Any) -> None:
        self.called.append(call)


class Stage:
    """A connection, and another one that holds the rest."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.budget = MemoryBudget(_MOST)
        self.other = self.budget.account()
        self.account = self.budget.account()
        self.memory = ConnectionMemory(self.clock, self.account, self.go_on)  # type: ignore[arg-type] # all it uses

    def go_on(self) -> None:
        raise AssertionError("it is called in a later turn")

    def fill(self) -> None:
        self.other.take(_MOST - self.other.held)

    def free(self) -> None:
        self.other.take(-self.other.held)


def test_what_is_held_counts_once() -> None:
    stage = Stage()
    stage.memory.count(held=1_000, midway=0)
    assert stage.account.held == 1_000
    assert stage.memory.may_read(midway=70_000)
    assert stage.memory.may_read(midway=70_000)
    stage.memory.count(held=1_000, midway=70_000)
    assert stage.account.held == 71_000
    stage.memory.count(held=71_512, midway=0)  # it is whole
    assert stage.account.held == 71_512
    stage.memory.count(held=0, midway=0)
    assert stage.budget.held == 0


def test_a_large_request_is_read_on_once_there_is_room_for_all_of_it() -> None:
    stage = Stage()
    stage.fill()
    assert not stage.memory.may_read(midway=70_000)
    stage.memory.count(held=0, midway=70_000)
    assert (stage.account.held, stage.clock.called) == (0, [])
    assert not stage.memory.may_read(midway=70_000)
    stage.free()
    assert (stage.account.held, stage.clock.called) == (70_000, [stage.go_on])
    stage.fill()
    assert stage.memory.may_read(midway=70_000)


def test_one_that_holds_much_reads_nothing_while_there_is_no_room() -> None:
    stage = Stage()
    stage.memory.count(held=FREE_BYTES, midway=0)
    stage.fill()
    assert stage.memory.may_read(midway=0)
    assert stage.memory.most_read == FREE_BYTES
    stage.memory.count(held=FREE_BYTES + 1, midway=0)
    assert not stage.memory.may_read(midway=0)
    stage.free()
    assert (stage.clock.called, stage.account.held) == ([stage.go_on], FREE_BYTES + 1)
    assert stage.memory.may_read(midway=0)
    assert stage.memory.most_read is None


def test_a_long_answer_has_room_before_its_request_begins() -> None:
    stage = Stage()
    stage.fill()
    assert stage.memory.may_begin(_HEARTBEAT)
    assert not stage.memory.may_begin(_METADATA)
    assert not stage.memory.may_begin(_METADATA)
    stage.free()
    assert (stage.clock.called, stage.account.held) == ([stage.go_on], LONG_ANSWER_BYTES)
    stage.fill()
    stage.memory.count(held=100, midway=0)
    assert stage.memory.may_begin(_METADATA)
    assert stage.account.held == LONG_ANSWER_BYTES + 100
    stage.memory.is_answered()
    stage.memory.count(held=5_000, midway=0)
    assert stage.account.held == 5_000


def test_a_client_that_moves_too_little_has_stalled() -> None:
    stage = Stage()
    memory, clock = stage.memory, stage.clock
    assert not memory.has_stalled(waits=100_000, moved=0)
    clock.now += STALL_SECONDS - 0.1
    assert not memory.has_stalled(waits=100_000, moved=99_999)
    clock.now += 0.1
    assert memory.has_stalled(waits=100_000, moved=99_999)
    assert not memory.has_stalled(waits=100_000, moved=100_000)  # which begins anew
    clock.now += STALL_SECONDS
    assert memory.has_stalled(waits=50_000, moved=199_999)
    assert not memory.has_stalled(waits=FREE_BYTES, moved=199_999)
    assert not memory.has_stalled(waits=50_000, moved=199_999)
    clock.now += STALL_SECONDS
    memory.nobody_waits()
    assert not memory.has_stalled(waits=50_000, moved=199_999)
