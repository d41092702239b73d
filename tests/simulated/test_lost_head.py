"""Ray's head is lost, and the controller with it, for a minute: groups keep their partitions and go on committing.

A coordinator without a controller cannot know whether it was replaced, so it appends to its log before each answer
(rule 25); its partition's leader takes that as long as it has its followers.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

import pytest

from raylog.groups.records.messages import PartitionId
from tests.simulator.cluster.group_cluster import GROUPS, GroupCluster
from tests.simulator.world.world import World
from tests.unit.actors.control_cluster import CALM

_LOOKS: Final = 6
_LOOK_SECONDS: Final = 10.0  # longer than a member's session
_BACK_SECONDS: Final = 10.0
_AFTER_SECONDS: Final = 5.0


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """The cluster warns of what is lost."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", range(4))
def test_groups_go_on_without_a_controller_and_are_left_alone_when_it_comes_back(seed: int) -> None:
    with World(seed, settings=CALM) as world:  # no process ends: nobody could start another one
        groups = GroupCluster(world)
        for group in GROUPS:
            groups.start_member(group)
            groups.start_member(group)
        assert world.run_until_idle_or(lambda: has_settled(groups), 60.0)
        before = memberships(groups)
        coordinators = serving(groups)

        groups.cluster.lose_head()
        for _ in range(_LOOKS):
            told = groups.checker.commits_told
            world.run_for(_LOOK_SECONDS)
            assert groups.checker.commits_told > told
            assert memberships(groups) == before
        groups.cluster.bring_head_back()
        assert world.run_until_idle_or(lambda: groups.cluster.serving() is not None, _BACK_SECONDS)
        world.run_for(_AFTER_SECONDS)
        assert memberships(groups) == before
        assert coordinators <= serving(groups), "one was replaced that ran"
        groups.cluster.is_over = True


def has_settled(groups: GroupCluster) -> bool:
    """Each member has a share."""
    return not groups.unsettled() and all(reads for _, reads in memberships(groups).values())


def memberships(groups: GroupCluster) -> dict[str, tuple[str, set[PartitionId]]]:
    """Return by process as which member it reads what."""
    living = [each for group in GROUPS for each in groups.alive(group)]
    return {each.name: (each.member.member_id, set(each.member.reads)) for each in living}


def serving(groups: GroupCluster) -> set[tuple[str, int, int]]:
    """Coordinators by topic, partition and epoch."""
    return set(groups.cluster.serving_coordinators())
