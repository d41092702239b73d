"""Groups on a replicated offsets topic, with coordinators, members, replicas and controllers killed and stopped."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.simulation.group_cluster import GROUPS, GroupCluster
from tests.simulation.world import World

_FAULT_SECONDS = 20.0
_SETTLE_SECONDS = 40.0


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """The cluster warns of each fault."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", range(4))
def test_no_partition_has_two_owners_and_no_committed_offset_is_lost(seed: int) -> None:
    with World(seed) as world:
        groups = GroupCluster(world)
        for group in GROUPS:
            groups.start_member(group)
            groups.start_member(group)
        assert world.run_until_idle_or(lambda: not groups.unsettled(), 30.0), groups.unsettled()
        end = world.now + _FAULT_SECONDS
        while world.now < end:
            world.run_for(groups.random.uniform(0.3, 2.0))
            groups.disturb()
        for group in GROUPS:
            if not groups.alive(group):
                groups.start_member(group)
        assert world.run_until_idle_or(lambda: not groups.unsettled(), _SETTLE_SECONDS), groups.unsettled()
        told = groups.checker.commits_told
        world.run_for(3.0)
        assert groups.checker.commits_told > told
        groups.check_log()
        groups.cluster.is_over = True
        assert groups.checker.committed >= groups.checker.commits_told > 50
        assert len(groups.cluster.coordinators) > 3
