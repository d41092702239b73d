"""Which replicas get a process of their own, and how many processes a broker should have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.actors.cluster.cluster_settings import OWN_REPLICAS_MAX, SHARED_HOSTS, alter_cluster_settings
from raylog.actors.cluster.placement.hosts import HostLimits, host_limits, room_for, wanted_hosts
from raylog.actors.cluster.state import ClusterState
from raylog.actors.protocol.host_messages import OWN, SHARED
from tests.unit.actors.small_cluster import SmallCluster

LIMITS = HostLimits(own=2, shared=1)


@pytest.mark.parametrize(
    ("policy", "is_internal", "own_now", "room"),
    [
        ("auto", False, 0, OWN),
        ("auto", False, 1, OWN),
        ("auto", False, 2, SHARED),
        ("own", False, 9, OWN),
        ("shared", False, 0, SHARED),
        ("auto", True, 0, SHARED),
        ("own", True, 0, SHARED),
    ],
)
def test_a_replica_has_its_own_process_while_there_are_few(
    policy: str, is_internal: bool, own_now: int, room: str
) -> None:
    assert room_for(policy, is_internal=is_internal, own_now=own_now, limits=LIMITS) == room


def test_shared_processes_are_as_many_as_a_broker_has_cores_for() -> None:
    state = SmallCluster(4).state  # each on a node of its own
    assert host_limits(state, 1, cores=8) == HostLimits(4, 8)
    assert host_limits(state, 1, cores=0) == HostLimits(4, 1)
    assert host_limits(ClusterState(), 7, cores=2) == HostLimits(4, 2)  # it is not registered yet
    for record in alter_cluster_settings(state, {OWN_REPLICAS_MAX: 0, SHARED_HOSTS: 3}):
        state.apply(record, 0)
    assert host_limits(state, 1, cores=8) == HostLimits(0, 3)


rooms = st.lists(st.sampled_from([OWN, SHARED]), max_size=6)


@given(spare=st.integers(0, 3), shared=st.integers(0, 3), waiting=rooms, most=st.integers(1, 3))
def test_one_stands_ready_besides_all_that_are_waited_for(
    spare: int, shared: int, waiting: list[str], most: int
) -> None:
    wanted = wanted_hosts(spare, shared, waiting, HostLimits(4, most))
    there = spare + wanted
    assert there >= waiting.count(OWN) + 1
    if SHARED in waiting and shared < most:
        assert there >= waiting.count(OWN) + 2
    if not waiting and not shared:
        assert there == max(spare, 1)


@given(own=st.integers(0, 5), most=st.integers(1, 3))
def test_asking_ends_when_all_are_there(own: int, most: int) -> None:
    limits = HostLimits(9, most)
    waiting = [OWN] * own + [SHARED]
    assert wanted_hosts(own + most + 1, 0, waiting, limits) == 0
    assert wanted_hosts(1, most, [], limits) == 0
