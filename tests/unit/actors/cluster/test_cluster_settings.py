"""Settings of the whole cluster: what they take, and that they are in every copy of its state."""

from __future__ import annotations

import pytest

from raylog.actors.cluster.cluster_settings import (
    GROUP_ASSIGNORS,
    allowed_assignors,
    alter_cluster_settings,
    describe_cluster_settings,
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
    assert describe_cluster_settings(state) == {GROUP_ASSIGNORS: ""}
    assert allowed_assignors(_after(state, " b.c , a.b,,a.b")) == ("a.b", "b.c")
    assert alter_cluster_settings(state, {GROUP_ASSIGNORS: "b.c,a.b"}) == []
    copy = ClusterState()
    for record in state.to_records():
        copy.apply(record, 0)
    assert describe_cluster_settings(copy) == {GROUP_ASSIGNORS: "a.b,b.c"}
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
