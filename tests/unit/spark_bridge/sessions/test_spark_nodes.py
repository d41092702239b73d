"""Which nodes need a Java, and where RayDP's master goes."""

from __future__ import annotations

import pytest

from raylog.errors import RayWithoutJava
from raylog.spark_bridge.sessions.rules.nodes import NodeLook, place_of_master

GOOD = NodeLook("10.0.0.1", True, "")
HEAD = NodeLook("10.0.0.2", False, "there is no `java` on its PATH")


def test_where_all_nodes_have_a_java_the_master_may_be_anywhere() -> None:
    assert place_of_master([GOOD, NodeLook("10.0.0.3", False, "")]) == ""


def test_a_node_to_which_executors_may_come_needs_a_java() -> None:
    other = NodeLook("10.0.0.3", True, "there was no `java` on PATH when it was started")
    with pytest.raises(RayWithoutJava, match=r"10\.0\.0\.3 cannot run .* when it was started"):
        place_of_master([GOOD, other])


def test_of_two_nodes_on_one_host_both_count() -> None:
    with pytest.raises(RayWithoutJava, match=r"10\.0\.0\.1"):
        place_of_master([GOOD, NodeLook(GOOD.host, True, "there is no `java` on its PATH")])


@pytest.mark.parametrize("looks", [[HEAD, GOOD], [GOOD, HEAD]])
def test_a_node_without_cpus_needs_none_and_the_master_is_kept_away(looks: list[NodeLook]) -> None:
    assert place_of_master(looks) == "node:10.0.0.1"


def test_the_master_cannot_be_told_from_a_node_of_the_same_address() -> None:
    """Its resource would be theirs too."""
    beside = NodeLook(GOOD.host, False, "there is no `java` on its PATH")
    with pytest.raises(RayWithoutJava, match=r"10\.0\.0\.1"):
        place_of_master([GOOD, beside])
    assert place_of_master([GOOD, beside, NodeLook("10.0.0.3", True, "")]) == "node:10.0.0.3"


def test_without_any_java_nothing_begins() -> None:
    with pytest.raises(RayWithoutJava):
        place_of_master([HEAD])
