"""Which replicas get a process of their own, and how many processes a broker should have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.actors.cluster.cluster_settings import OWN_REPLICAS_MAX, SHARED_HOSTS, alter_cluster_settings
from raylog.actors.cluster.placement.hosts import (
    HALF_LIFE_SECONDS,
    HostLimits,
    HostLoad,
    WrittenBytes,
    host_limits,
    least_loaded,
    room_for,
    wanted_hosts,
)
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


# --- which of the shared ones -----------------------------------------------------------------------------------------


def test_the_host_with_fewest_replicas_takes_the_next_whatever_is_written() -> None:
    assert least_loaded([HostLoad(50, 0.0), HostLoad(40, 9e9), HostLoad(60, 0.0)]) == 1
    assert least_loaded([HostLoad(3, 0.0), HostLoad(2, 9e9)]) == 1
    assert least_loaded([HostLoad(0, 9e9)]) == 0


def test_where_they_have_much_the_same_the_one_that_is_written_to_least_does() -> None:
    assert least_loaded([HostLoad(100, 9e9), HostLoad(109, 1e6), HostLoad(111, 0.0)]) == 1
    assert least_loaded([HostLoad(5, 2.0), HostLoad(5, 1.0)]) == 1


def test_as_many_at_once_are_spread_evenly() -> None:
    replicas = [0, 0, 0]
    for _ in range(300):
        replicas[least_loaded([HostLoad(count, 0.0) for count in replicas])] += 1
    assert replicas == [100, 100, 100]


def test_what_was_written_counts_ever_less() -> None:
    written = WrittenBytes()
    written.add(1000, 10.0)
    assert written.at(10.0) == 1000
    assert written.at(10.0 + HALF_LIFE_SECONDS) == pytest.approx(500)
    written.add(500, 10.0 + HALF_LIFE_SECONDS)
    assert written.at(10.0 + HALF_LIFE_SECONDS) == pytest.approx(1000)
    assert written.at(10.0 + 40 * HALF_LIFE_SECONDS) < 1
