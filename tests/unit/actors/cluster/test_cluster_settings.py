"""Settings of the whole cluster: what they take, and that they are in every copy of its state."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from raylog.actors.cluster.cluster_settings import (
    GROUP_ASSIGNORS,
    OWN_REPLICAS_MAX,
    SHARED_HOSTS,
    allowed_assignors,
    alter_cluster_settings,
    describe_cluster_settings,
    number_of,
)
from raylog.actors.cluster.state import ClusterState
from raylog.config import ConfigValue
from raylog.errors import InvalidConfig, UnknownConfig


def _after(state: ClusterState, value: ConfigValue | None) -> ClusterState:
    for record in alter_cluster_settings(state, {GROUP_ASSIGNORS: value}):
        state.apply(record, 0)
    return state


def test_assignors_are_allowed_and_forbidden_again() -> None:
    state = ClusterState()
    assert allowed_assignors(state) == ()
    assert describe_cluster_settings(state)[GROUP_ASSIGNORS] == ""
    assert allowed_assignors(_after(state, " b.c , a.b,,a.b")) == ("a.b", "b.c")
    assert alter_cluster_settings(state, {GROUP_ASSIGNORS: "b.c,a.b"}) == []
    copy = ClusterState()
    for record in state.to_records():
        copy.apply(record, 0)
    assert describe_cluster_settings(copy)[GROUP_ASSIGNORS] == "a.b,b.c"
    assert allowed_assignors(_after(state, None)) == ()


@pytest.mark.parametrize(
    "value", ["range", "a.", ".a", "a b.c", "a.b;c.d", "x." * 200 + "y", ",".join(map("m.f{}".format, range(51)))]
)
def test_what_is_no_list_of_functions_is_refused(value: str) -> None:
    with pytest.raises(InvalidConfig):
        alter_cluster_settings(ClusterState(), {GROUP_ASSIGNORS: value})


def test_an_unknown_setting_is_refused_and_the_nearest_named() -> None:
    with pytest.raises(UnknownConfig, match=r"group\.assignors"):
        alter_cluster_settings(ClusterState(), {"group.asignors": "a.b"})


def _with(state: ClusterState, changes: Mapping[str, ConfigValue | None]) -> ClusterState:
    for record in alter_cluster_settings(state, changes):
        state.apply(record, 0)
    return state


def test_numbers_are_described_with_their_defaults_and_recorded_only_where_they_differ() -> None:
    state = ClusterState()
    described = describe_cluster_settings(state)
    assert (described[OWN_REPLICAS_MAX], described[SHARED_HOSTS]) == (4, 0)
    assert alter_cluster_settings(state, {OWN_REPLICAS_MAX: 4, SHARED_HOSTS: "0"}) == []
    _with(state, {OWN_REPLICAS_MAX: " 07 ", SHARED_HOSTS: 2})
    assert state.settings == ((OWN_REPLICAS_MAX, "7"), (SHARED_HOSTS, "2"))
    assert describe_cluster_settings(state)[OWN_REPLICAS_MAX] == number_of(state, OWN_REPLICAS_MAX) == 7
    assert _with(state, {OWN_REPLICAS_MAX: None, SHARED_HOSTS: 0}).settings == ()


@pytest.mark.parametrize("value", ["", "-1", "1.5", "many", "1001", "٣"])
def test_what_is_no_number_in_its_bounds_is_refused(value: str) -> None:
    with pytest.raises(InvalidConfig, match="from 0 to 1000"):
        alter_cluster_settings(ClusterState(), {OWN_REPLICAS_MAX: value})
