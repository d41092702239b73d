"""Which brokers should vote, from who is there; each case is a row."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import pytest

from raylog.actors.cluster.state import ClusterState, Liveness
from raylog.actors.controller.changes import ClusterChanges
from raylog.actors.controller.voter_upkeep import VoterUpkeep
from raylog.actors.kernel.background import Timers
from raylog.actors.metadata_log.writer import MetadataWriter
from raylog.actors.protocol.metadata_quorum_records import Voter
from raylog.actors.protocol.metadata_records import BrokerDraining, BrokerFenced, BrokerRegistration
from tests.unit.actors.kernel.test_timers import in_a_process
from tests.unit.actors.metadata_world import named


class Changes(NamedTuple):
    state: ClusterState
    live: Liveness


class Writer(NamedTuple):
    voters: tuple[Voter, ...]


def state_of(known: tuple[int, ...], alive: tuple[int, ...], draining: tuple[int, ...]) -> ClusterState:
    state = ClusterState()
    for broker_id in known:
        place = ("run", "node", "host", "", (), f"/data-{broker_id}", f"directory-{broker_id}", "boot")
        state.apply(BrokerRegistration(broker_id, broker_id, *place), broker_id)
        if broker_id not in alive:
            state.apply(BrokerFenced(broker_id, "gone"), 100)
        if broker_id in draining:
            state.apply(BrokerDraining(broker_id, True), 100)
    return state


@pytest.mark.parametrize(
    ("voters", "known", "alive", "draining", "wanted"),
    [
        ((1,), (1,), (1,), (), (1,)),
        ((1,), (1, 2), (1, 2), (), (1,)),  # two are no safer than one
        ((1,), (1, 2, 3), (1, 2, 3), (), (1, 2, 3)),
        ((1,), (1, 2, 3), (1, 2), (), (1,)),
        ((1, 2, 3), (1, 2, 3, 4), (1, 2, 3, 4), (), (1, 2, 3)),
        ((1, 2, 3), (1, 2, 3, 4), (1, 2, 3, 4), (3,), (1, 2, 4)),
        ((1, 2, 3), (1, 2, 3), (1, 2, 3), (3,), (1, 2, 3)),  # nobody to take its place
        ((1, 2, 3), (1, 2, 4), (1, 2, 4), (), (1, 2, 4)),  # removed for ever
        ((1, 2, 3), (1, 2, 3, 4), (1, 2, 4), (), (1, 2, 3)),  # away, not for long yet
        ((1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4), (1,), (2, 3, 4)),
        ((1,), (1, 2), (1, 2), (1,), (2,)),
    ],
)
def test_who_should_vote(
    voters: tuple[int, ...],
    known: tuple[int, ...],
    alive: tuple[int, ...],
    draining: tuple[int, ...],
    wanted: tuple[int, ...],
) -> None:
    async def main(_timers: Timers) -> None:
        changes = Changes(state_of(known, alive, draining), Liveness(set(alive), {}))
        upkeep = VoterUpkeep(cast(ClusterChanges, changes), cast(MetadataWriter, Writer(named(*voters))), refuse)
        assert upkeep.wanted() == named(*wanted)

    in_a_process(main, 0.1)


def refuse(reason: Any) -> None:
    raise AssertionError(reason)


@pytest.mark.parametrize("alive", [(1, 2, 3), (1, 2, 3, 4)])
def test_a_voter_on_another_disk_takes_the_place_of_its_former_self(alive: tuple[int, ...]) -> None:
    async def main(_timers: Timers) -> None:
        former = (*named(1), (2, "a disk that is gone"), *named(3))
        changes = Changes(state_of(alive, alive, ()), Liveness(set(alive), {}))
        upkeep = VoterUpkeep(cast(ClusterChanges, changes), cast(MetadataWriter, Writer(former)), refuse)
        assert upkeep.wanted() == named(1, 2, 3)

    in_a_process(main, 0.1)
