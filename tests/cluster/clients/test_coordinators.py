"""Coordinators are there before their first use, and those of a process that is killed serve elsewhere."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

import pytest
import ray

import raylog
from raylog.actors.cluster.coordinator_state import COORDINATORS
from raylog.api.admin.cluster_health import problems
from tests.cluster.conftest import until

pytestmark = pytest.mark.cluster


def hosts() -> dict[str, int]:
    """The processes that hold coordinators, by their actors' names."""
    found = {}
    for each in ray.util.list_named_actors(all_namespaces=True):
        if each["name"].startswith("coordinators-"):
            with suppress(ray.exceptions.RayActorError, ValueError):  # it has just ended
                actor = ray.get_actor(each["name"], namespace=each["namespace"])
                found[each["name"]] = ray.get(actor.__ray_call__.remote(lambda _: os.getpid()), timeout=20.0)
    return found


def all_serve(cluster: raylog.Cluster) -> bool:
    coordinators = cluster.describe_cluster().coordinators
    return len(coordinators) == 2 * COORDINATORS and all(each.serving for each in coordinators)


def test_a_cluster_that_nobody_has_used_becomes_healthy_with_all_coordinators(cluster: raylog.Cluster) -> None:
    until(lambda: not problems(cluster.describe_cluster()))
    assert all_serve(cluster)
    assert len(hosts()) == 3
    # Where a busy machine starts one process long after the others, its coordinators serve elsewhere until it is there.
    until(lambda: {each.broker for each in cluster.describe_cluster().coordinators} == {0, 1, 2}, 90.0)


def test_the_first_poll_of_a_group_waits_for_no_process(cluster: raylog.Cluster) -> None:
    until(lambda: all_serve(cluster))
    cluster.create_topic("first-poll", partitions=1)
    with raylog.Producer(cluster=cluster) as producer:
        producer.send("first-poll", b"record").result(10.0)
    began = time.monotonic()
    with raylog.Consumer("first-poll", cluster=cluster, group_id="first", auto_offset_reset="earliest") as consumer:
        assert consumer.poll(timeout_ms=10_000)
    assert time.monotonic() - began < 3.0  # a process takes longer on a busy machine


def test_those_of_a_killed_process_serve_in_others_and_it_comes_back(cluster: raylog.Cluster) -> None:
    until(lambda: all_serve(cluster))
    before = hosts()
    name, pid = sorted(before.items())[0]
    epochs = {(each.topic, each.partition): each.epoch for each in cluster.describe_cluster().coordinators}
    os.kill(pid, signal.SIGKILL)
    until(lambda: all_serve(cluster) and any(
        each.epoch > epochs[each.topic, each.partition] for each in cluster.describe_cluster().coordinators
    ))  # fmt: skip
    until(lambda: hosts().get(name, pid) != pid)
    assert {other: hosts()[other] for other in before if other != name} == {
        other: before[other] for other in before if other != name
    }
