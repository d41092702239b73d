"""Beginnings and ends of several logs in one answer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from raylog.actors.kernel.stream_interface import Response
from raylog.actors.protocol.messages import NO_PARTITION, NO_TOPIC
from raylog.actors.protocol.replication_messages import EARLIEST, LATEST, ListedOffsets, ListOffsets
from tests.simulator.world.world import World
from tests.unit.actors.control_cluster import CALM
from tests.unit.actors.replica.test_host import TOPIC_ID, HostWorld


@pytest.fixture
def it() -> Iterator[HostWorld]:
    with World(5, settings=CALM) as world:
        found = HostWorld(world)
        found.open(0, 1, 2)
        found.lead(0, 1)
        found.world.run_for(1.0)
        yield found


def listed(it: HostWorld, timestamp: int, *asked: tuple[int, int]) -> list[tuple[int, int]]:
    partitions = tuple((TOPIC_ID, partition, epoch) for partition, epoch in asked)
    answer = it.ask(ListOffsets(timestamp, False, partitions), NO_PARTITION, topic_id=NO_TOPIC)
    assert isinstance(answer, Response)
    assert isinstance(answer.message, ListedOffsets)
    return [(partition, offset) for _, partition, offset, _, _ in answer.message.found]


def test_what_is_known_at_once_is_told_and_all_else_left_out(it: HostWorld) -> None:
    it.append(1)
    it.append(1)
    assert listed(it, LATEST, (0, 1), (1, 1)) == [(0, 0), (1, 2)]
    assert listed(it, EARLIEST, (0, 1), (1, 1)) == [(0, 0), (1, 0)]
    assert listed(it, LATEST, (1, 1), (2, 1), (7, 1), (0, 9)) == [(1, 2)]
    assert listed(it, 1, (0, 1), (1, 1)) == []
