"""What a controller's log and state say of themselves when something in them is broken."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from raylog.actors.cluster.state import ReplicaKey
from raylog.actors.controller.controller import ControllerReign
from raylog.actors.metadata_log.writer import _Uncommitted
from raylog.errors import ControllerStopped
from tests.simulator.world.world import World
from tests.unit.actors.control_cluster import CALM, ControlCluster


@pytest.fixture
def reign() -> Iterator[ControllerReign]:
    with World(7, settings=CALM) as world:
        cluster = ControlCluster(world)
        cluster.form()
        cluster.create_topic()
        yield cluster.controller.reign


def test_a_sound_controller_has_nothing_to_say(reign: ControllerReign) -> None:
    assert list(reign.changes.broken_invariants()) == []


def wait_for(reign: ControllerReign, end_offset: int, size: int) -> None:
    done: asyncio.Future[int] = asyncio.Future(loop=asyncio.new_event_loop())
    reign.writer._uncommitted.append(_Uncommitted(end_offset, size, done))
    done.get_loop().close()


def committed_and_still_waited_for(reign: ControllerReign) -> None:
    wait_for(reign, reign.writer.version, 0)


def waits_behind_the_end(reign: ControllerReign) -> None:
    wait_for(reign, reign.writer.tail.end_offset + 1, 0)


def bytes_not_counted(reign: ControllerReign) -> None:
    wait_for(reign, reign.writer.version + 1, 7)


def ended_and_still_waited_for(reign: ControllerReign) -> None:
    wait_for(reign, reign.writer.version + 1, 0)
    reign.writer._ended = ControllerStopped("It was stopped.")


def state_behind_the_log(reign: ControllerReign) -> None:
    reign.changes._fold.version = reign.writer.tail.end_offset + 1


def replica_without_its_broker(reign: ControllerReign) -> None:
    reign.changes.replica_lives(ReplicaKey(b"t" * 16, 0, 99), 1)


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (committed_and_still_waited_for, "what waits ends at"),
        (waits_behind_the_end, "the log ends at"),
        (bytes_not_counted, "0 bytes are counted as uncommitted"),
        (ended_and_still_waited_for, "it has ended"),
        (state_behind_the_log, "the state stands at"),
        (replica_without_its_broker, "are taken for alive"),
    ],
)
def test_a_broken_controller_says_what_is_broken(
    reign: ControllerReign, break_it: Callable[[ControllerReign], None], said: str
) -> None:
    break_it(reign)
    found = "; ".join(reign.changes.broken_invariants())
    reign.writer._uncommitted.clear()
    assert said in found
