"""Thirty replicas, killed all at once with everything that Ray is, come back from their directories with all they had.

The lives before and after are programs of their own: whatever the first one knew dies with it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import raylog
from raylog.actors.on_ray.runtime.join_ray import join_or_start_ray
from tests.cluster.conftest import StartProgram, kill_tree, until
from tests.cluster.support.chaos_clients import Clients

pytestmark = pytest.mark.cluster

_TOPICS = ("clicks", "orders")
_PARTITIONS = 5
_BATCHES = 20
_WHOLE_SECONDS = 90.0  # on a machine that has something else to do
_PROGRAM = "from tests.cluster.test_cold_start import {life}; {life}({data!r})"


def first_life(data: str) -> None:
    """Prints the offsets of what was acknowledged, by value."""
    start_ray()
    cluster = raylog.start(data, brokers=3, timeout=_WHOLE_SECONDS)
    for topic in _TOPICS:
        cluster.create_topic(topic, partitions=_PARTITIONS, replication_factor=3, timeout=_WHOLE_SECONDS)
    until(lambda: is_whole(cluster), _WHOLE_SECONDS)
    acknowledged = {}
    for topic, partition in all_partitions():
        clients = Clients(cluster.access(), topic, partition, pause=0.0)
        clients.until_acknowledged(_BATCHES)
        clients.finish()
        acknowledged[f"{topic}-{partition}"] = {
            value.decode(): offset for value, offset in clients.history.acknowledged.items()
        }
    tell(acknowledged)


def second_life(data: str) -> None:
    """Prints how long it took until all is led and in sync, and what is there."""
    start_ray()
    began = time.monotonic()
    cluster = raylog.start(data, timeout=_WHOLE_SECONDS)
    started = time.monotonic()
    until(lambda: is_led(cluster), _WHOLE_SECONDS)
    led = time.monotonic()
    until(lambda: is_whole(cluster), _WHOLE_SECONDS)
    seconds = {"started": started - began, "led": led - began, "whole": time.monotonic() - began}
    there = {}
    for topic, partition in all_partitions():
        records = Clients(cluster.access(), topic, partition, writers=0, reads=False).finish()
        there[f"{topic}-{partition}"] = {value.decode(): offset for offset, value in records}
    tell({"seconds": seconds, "there": there, "topics": cluster.list_topics()})


def start_ray() -> None:
    join_or_start_ray(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")


def all_partitions() -> list[tuple[str, int]]:
    return [(topic, partition) for topic in _TOPICS for partition in range(_PARTITIONS)]


def is_led(cluster: raylog.Cluster) -> bool:
    replicas = [each for topic in _TOPICS for each in cluster.describe_replicas(topic)]
    leaders = sum(each.role == "leader" for each in replicas)
    return leaders == len(_TOPICS) * _PARTITIONS and all(each.role in ("leader", "follower") for each in replicas)


def is_whole(cluster: raylog.Cluster) -> bool:
    return is_led(cluster) and all(each.in_sync for topic in _TOPICS for each in cluster.describe_replicas(topic))


def tell(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
    time.sleep(60)


def answer_of(program: subprocess.Popen[str]) -> dict[str, Any]:
    """The first line that is one: Ray has warnings to tell of so many processes."""
    assert program.stdout is not None
    return dict(json.loads(next(line for line in program.stdout if line.startswith("{"))))


@pytest.mark.timeout(400)
def test_thirty_replicas_come_back_from_their_directories(
    ray_folder: Path, tmp_path: Path, start_program: StartProgram
) -> None:
    data = str(tmp_path)
    first = start_program(_PROGRAM.format(life="first_life", data=data))
    acknowledged = answer_of(first)
    kill_tree(first.pid)
    assert not list(tmp_path.glob("broker-*/*-*/clean-shutdown"))

    second = answer_of(start_program(_PROGRAM.format(life="second_life", data=data)))
    assert second["topics"] == sorted(_TOPICS)
    for partition, records in acknowledged.items():
        assert len(records) >= _BATCHES
        assert records.items() <= second["there"][partition].items()
    sys.stderr.write(f"seconds from raylog.start on: {second['seconds']}\n")
