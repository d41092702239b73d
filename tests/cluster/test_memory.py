"""Ray's memory monitor kills workers when a node runs full: what it takes, and what it leaves."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import ray
from ray.exceptions import OutOfMemoryError

import raylog
from tests.cluster.conftest import until

pytestmark = pytest.mark.cluster

_MIB = 2**20
_ROOM = 2048 * _MIB


def memory(name: str) -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name + ":"))


def hog(size: int) -> int:
    held = [bytearray(b"x") * (64 * _MIB) for _ in range(size // (64 * _MIB))]
    return len(held)


def test_replicas_outlive_a_task_that_eats_the_memory(ray_folder: Path, tmp_path: Path) -> None:
    total, free = memory("MemTotal"), memory("MemAvailable")
    if free < 4 * _ROOM:
        pytest.skip("the machine has too little free memory to fill some of it")
    limits = {"memory_usage_threshold": (total - free + _ROOM) / total, "memory_monitor_refresh_ms": 50}
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        object_store_memory=100 * _MIB,
        _system_config=limits,
    )
    try:
        cluster = raylog.start(tmp_path)
        cluster.create_topic("clicks", partitions=2)
        before = [(each.pid, each.incarnation) for each in cluster.describe_replicas("clicks")]
        with pytest.raises(OutOfMemoryError):
            ray.get(ray.remote(hog).options(max_retries=0).remote(3 * _ROOM), timeout=60)
        until(lambda: all(each.role == "leader" for each in cluster.describe_replicas("clicks")))
        assert [(each.pid, each.incarnation) for each in cluster.describe_replicas("clicks")] == before
        cluster.shutdown()
    finally:
        ray.shutdown()
