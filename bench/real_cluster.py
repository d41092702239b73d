"""A cluster on a Ray of its own on this machine, in a folder that is removed afterwards, and topics to measure on."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import ray
import ray.util

import raylog
from raylog.actors.on_ray.runtime.join_ray import join_or_start_ray
from raylog.actors.protocol.names import OFFSETS_TOPIC
from raylog.api.admin.cluster import Cluster


@contextmanager
def own_ray(cpus: int = 2) -> Iterator[str]:
    """Yield a folder for data beside a Ray of its own. `cpus`: what Ray believes it has, and so how many workers it
    keeps idle.
    """
    folder = tempfile.mkdtemp(prefix="raylog-bench-", dir=os.environ.get("RAYLOG_BENCH_DIR"))
    short = tempfile.mkdtemp(prefix="rb-")  # the paths of Ray's sockets have to be short
    os.environ["RAY_TMPDIR"] = short
    os.environ.pop("RAY_ADDRESS", None)
    try:
        join_or_start_ray(num_cpus=cpus, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        yield folder
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(short, ignore_errors=True)


@contextmanager
def real_cluster(brokers: int = 3, cpus: int = 2, kafka: str | None = None) -> Iterator[Cluster]:
    """Yield a new cluster on a Ray of its own. `kafka`: where gateways listen."""
    with own_ray(cpus) as folder:
        cluster = raylog.start(f"{folder}/data", brokers=brokers, kafka=kafka)
        yield cluster
        cluster.shutdown()


@contextmanager
def topic(cluster: Cluster, name: str, replicas: int, partitions: int = 3) -> Iterator[str]:
    """Make a topic, and delete it afterwards, so that its files do not fill the page cache for the next measure."""
    cluster.create_topic(name, partitions=partitions, replication_factor=replicas)
    yield name
    cluster.delete_topic(name)


def coordinator_pids() -> list[int]:
    """Return the processes that hold coordinators."""
    return actor_pids("coordinators-")


def coordinator_pid(cluster: Cluster, partition: int, topic: str = OFFSETS_TOPIC) -> int | None:
    """Return the process that holds the coordinator of this partition. None: it does not serve yet."""
    for each in cluster.describe_cluster().coordinators:
        if (each.topic, each.partition, each.serving) == (topic, partition, True):
            return actor_pids(f"coordinators-{each.broker}-")[0]
    return None


def actor_pids(prefix: str) -> list[int]:
    """The processes of all actors whose names begin so."""
    names = [each for each in ray.util.list_named_actors(all_namespaces=True) if each["name"].startswith(prefix)]
    actors = [ray.get_actor(each["name"], namespace=each["namespace"]) for each in names]
    return [ray.get(actor.__ray_call__.remote(lambda _: os.getpid()), timeout=20.0) for actor in actors]
