"""An interrupt at each step of taking records: no byte of the buffer is lost to it, and nothing is left unsent.

Steps are lines, found by tracing. Those that open and close the gate and the lock are left out: between the end of
what they guard and their opening no interrupt falls, but a tracer can.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

import pytest

from raylog.api.producer.buffer.record_accumulator import BufferPool, Clocks, PartitionQueue, RecordAccumulator
from raylog.api.producer.rules.producer_batch import Columns, Outcome

_LIMIT: Final = 2_000
_TRACED: Final = {
    *("_append", "_make_room", "_new_batch", "_stamp", "_seal", "_tell_of_sealed", "tell", "append_batch"),
    "_move",
}


class Interrupt(BaseException):
    """Stands for KeyboardInterrupt."""


class World:
    def __init__(self) -> None:
        self.pool = BufferPool(_LIMIT)
        self.is_woken = False
        clocks = Clocks(lambda: 1000.0, lambda: 5.0, _never)
        self.accumulator = RecordAccumulator(self.pool, 500, 120.0, clocks, self._wake)
        self.accumulator.portion = 200
        self.queue = self.accumulator.queue("clicks", 0)

    def _wake(self) -> None:
        self.is_woken = True

    def send(self, size: int = 100) -> bool:
        return self.accumulator.append(self.queue, None, bytes(size)) is not None

    def deliver(self) -> int:
        """As the loop does once it is told; how many records that was."""
        count = 0
        while self.accumulator.told:
            queue: PartitionQueue = self.accumulator.told.popleft()
            assert self.accumulator.seal_open(queue)
            while queue.sealed:
                batch = self.accumulator.take(queue)
                batch.resolve(Outcome(0))
                self.accumulator.let_go(batch)
                count += batch.count
        self.is_woken = False
        return count


def _never(_seconds: float) -> None:
    raise AssertionError("The gate is closed for ever.")


def interrupted_at(step: int, work: Callable[[], object]) -> bool:
    """Do it, with an interrupt at that step; whether there was such a step."""
    left = step

    def at_line(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal left
        if event == "line":
            left -= 1
            if left < 0:
                sys.settrace(None)
                raise Interrupt
        return at_line

    def at_call(frame: FrameType, _event: str, _argument: object) -> Any:
        return at_line if frame.f_code.co_name in _TRACED and "/api/" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(at_call)
    try:
        work()
    except Interrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def a_first_record(world: World) -> None:
    world.send()


def a_portion_that_is_used_up(world: World) -> None:
    world.send(50)
    world.send(100)


def a_full_batch(world: World) -> None:
    for _ in range(4):
        world.send()


def no_room(world: World) -> None:
    while world.send(350):
        pass


def a_batch_of_its_own(world: World) -> None:
    world.send()
    world.accumulator.append_batch(world.queue, Columns(None, [b"v"] * 3, None, 5), 400)


@pytest.mark.parametrize(
    "work", [a_first_record, a_portion_that_is_used_up, a_full_batch, no_room, a_batch_of_its_own]
)
def test_an_interrupt_at_any_step_costs_no_room_and_leaves_nothing_unsent(work: Callable[[World], None]) -> None:
    step = 0
    while True:
        world = World()
        if not interrupted_at(step, lambda world=world: work(world)):  # type: ignore[misc]
            break
        held = list(world.accumulator.unresolved)
        world.deliver()
        assert world.send(), f"after step {step}"
        assert world.is_woken or not world.queue.records, f"the loop is not told after step {step}"
        assert world.deliver() == 1
        assert world.pool.free == _LIMIT, f"{_LIMIT - world.pool.free} bytes are lost by an interrupt at step {step}"
        assert not world.accumulator.unresolved
        assert all(batch.outcome is not None for batch in held if batch.count), f"after step {step}"
        step += 1
    assert step > 10


def test_a_record_behind_an_interrupt_is_told_of_before_anything_is_delivered() -> None:
    """The interrupt has opened a batch that the loop has not heard of."""
    step = 0
    while True:
        world = World()
        if not interrupted_at(step, lambda world=world: world.send()):  # type: ignore[misc]
            break
        assert world.send()
        assert world.is_woken, f"after step {step}"
        assert world.deliver() >= 1
        assert world.pool.free == _LIMIT
        step += 1
    assert step > 10
