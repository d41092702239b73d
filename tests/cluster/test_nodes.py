"""Several Ray nodes on one machine: who becomes a broker, who comes back as one."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster as RayCluster

import raylog
from raylog.actors.on_ray.runtime.nodes import living_nodes
from raylog.errors import ClusterNotFound
from raylog.spark_bridge.sessions import spark_on_ray
from raylog.spark_bridge.sessions.spark_on_ray import look_at_nodes
from tests.cluster.conftest import until

pytestmark = pytest.mark.cluster


@pytest.fixture
def ray_nodes(ray_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RayCluster]:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    cluster = RayCluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
    yield cluster
    ray.shutdown()
    cluster.shutdown()  # type: ignore[no-untyped-call]


def add_broker_node(cluster: RayCluster, data_dir: Path) -> Any:
    return cluster.add_node(
        num_cpus=1, resources={"raylog_broker": 1}, env_vars={"RAYLOG_DATA_DIR": str(data_dir)}, wait=True
    )


def brokers_alive(cluster: raylog.Cluster) -> dict[int, str]:
    return {each.broker: each.directory for each in cluster.describe_cluster().brokers if each.alive}


def test_each_node_tells_whether_it_has_a_java_and_one_that_has_died_does_not_count(
    ray_nodes: RayCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All nodes are on one host here. A node with CPUs and one without are asked."""
    ray_nodes.add_node(num_cpus=0, wait=True)
    real = living_nodes()
    assert sorted(look.has_cpus for look in look_at_nodes(60.0)) == [False, True]

    gone = replace(real[0], node_id="ab" * 28, host="10.9.9.9")
    answers = iter([(*real, gone), real])
    monkeypatch.setattr(spark_on_ray, "living_nodes", lambda: next(answers))
    assert len(look_at_nodes(60.0)) == len(real)
    answers = iter([(*real, gone)] * 2)
    told = {look.host: look.missing for look in look_at_nodes(60.0)}
    assert told[gone.host].startswith("it could not be asked for a Java")


def test_marked_nodes_become_brokers_and_a_node_that_comes_back_is_the_same_one(
    ray_nodes: RayCluster, tmp_path: Path
) -> None:
    add_broker_node(ray_nodes, tmp_path / "a")
    second = add_broker_node(ray_nodes, tmp_path / "b")
    with pytest.raises(ClusterNotFound, match=r"3 nodes .* form=True"):
        raylog.start(tmp_path / "unused")

    cluster = raylog.start(tmp_path / "unused", form=True)
    homes = {str(tmp_path / name / "broker-0") for name in "ab"}
    until(lambda: set(brokers_alive(cluster).values()) == homes)
    before = brokers_alive(cluster)
    assert not (tmp_path / "unused").exists()

    add_broker_node(ray_nodes, tmp_path / "c")
    until(lambda: brokers_alive(cluster) == {**before, 2: str(tmp_path / "c" / "broker-0")})
    cluster.create_topic("clicks", replication_factor=3)

    ray_nodes.remove_node(second, allow_graceful=False)
    until(lambda: len(brokers_alive(cluster)) == 2)
    add_broker_node(ray_nodes, tmp_path / "b")
    until(lambda: {**before, 2: str(tmp_path / "c" / "broker-0")} == brokers_alive(cluster))
    until(lambda: all(each.in_sync and each.role != "offline" for each in cluster.describe_replicas("clicks")))
    cluster.shutdown()
