"""One cluster for all tests of this folder, found under the default name: each test has topics of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import ray

import raylog


@pytest.fixture(scope="session")
def cluster(process_ray: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[raylog.Cluster]:
    kafka = "127.0.0.1:0" if find_spec("kafka") is not None else None  # the extra `kafka`
    running = raylog.start(tmp_path_factory.mktemp("cluster"), brokers=3, kafka=kafka)
    yield running
    running.shutdown()


def kill_coordinators() -> None:
    """SIGKILL for the processes of all coordinators, those of groups and those of transactions."""
    prefix = "coordinators-"
    names = [each for each in ray.util.list_named_actors(all_namespaces=True) if each["name"].startswith(prefix)]
    assert len(names) == 3
    for each in names:
        actor = ray.get_actor(each["name"], namespace=each["namespace"])
        os.kill(ray.get(actor.__ray_call__.remote(lambda _: os.getpid()), timeout=20.0), signal.SIGKILL)
