"""`raylog pool …`, with pools in memory."""

from __future__ import annotations

from typing import Any

from tests.unit.api.cli.fake_cluster import FakeCluster, FakePool, run, run_json


def with_pool(**changes: Any) -> FakeCluster:
    cluster = FakeCluster()
    cluster.fake_pools["billing"] = FakePool("billing", **changes)
    return cluster


def test_pools_are_listed_and_described() -> None:
    cluster = with_pool()
    assert "billing" in run(cluster, "pool", "list").stdout
    told = run(cluster, "pool", "describe", "billing").stdout
    assert "1 of 2, 0 to 10 allowed" in told
    assert "billing-0123abcd" in told
    assert "2 actors are wanted" in told
    (found,) = run_json(cluster, "pool", "describe", "billing")
    assert (found["running"], found["actor_rate"], found["actors"][0]["phase"]) == (1, -1, "running")


def test_a_pool_that_ends_meanwhile_is_left_out_of_the_list() -> None:
    cluster = with_pool()
    cluster.fake_pools["pricing"] = FakePool("pricing")
    cluster.fake_pools["pricing"].has_ended = True
    assert [each["group"] for each in run_json(cluster, "pool", "list")] == ["billing"]


def test_bounds_that_are_not_named_stay() -> None:
    cluster = with_pool()
    assert run_json(cluster, "pool", "scale", "billing", "--max", "20") == {
        "group": "billing", "min_actors": 0, "max_actors": 20,
    }  # fmt: skip
    assert cluster.fake_pools["billing"].bounds == (0, 20)
    assert run(cluster, "pool", "scale", "billing").exit_code == 2


def test_pools_are_stopped_unless_a_name_is_wrong() -> None:
    cluster = with_pool()
    refused = run(cluster, "pool", "stop", "billing", "bilking")
    assert refused.exit_code == 1
    assert "'bilking' has no pool" in refused.stderr
    assert not cluster.fake_pools["billing"].is_stopped
    assert "billing is stopped." in run(cluster, "pool", "stop", "billing").stdout
    assert cluster.fake_pools["billing"].is_stopped


def test_what_a_person_should_see_to_is_shown() -> None:
    told = run(with_pool(problem="HandlerFailed: bad"), "pool", "describe", "billing").stdout
    assert "HandlerFailed: bad" in told
