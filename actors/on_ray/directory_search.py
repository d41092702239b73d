"""Looking for brokers' directories on another node of the Ray cluster, by a short task there.

Each node may have its own place for them: the variable RAYLOG_DATA_DIR in the environment of its Ray. Without it, the
path that was given to `raylog.start` counts.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Final

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raylog.actors.on_ray.data_directories import FoundDirectory, check_writable, find_directories, secrets_in
from raylog.actors.protocol.cluster_secrets import ClusterSecrets

NODE_DATA_DIR: Final = "RAYLOG_DATA_DIR"


@dataclass(frozen=True)
class Found:
    directories: tuple[FoundDirectory, ...]
    secrets: ClusterSecrets | None


def search(data_dir: str, brokers: int | None = None) -> Found:
    """Return what is on this machine's disk."""
    directories = find_directories(data_dir, brokers)
    return Found(directories, secrets_in(directories))


def search_for_brokers(data_dir: str, brokers: int | None = None) -> Found:
    """Return the same for a node that will have brokers. DirectoryNotMade, DiskReadOnly: they could keep nothing."""
    found = search(data_dir, brokers)
    check_writable(data_dir, found.directories)
    return found


def _search_here(data_dir: str, brokers: int | None) -> Found:
    return search_for_brokers(os.environ.get(NODE_DATA_DIR) or data_dir, brokers)


def search_node(node_id: str, data_dir: str, brokers: int | None = None) -> Any:
    """Return what is on that node's disk, as a reference to wait for."""
    strategy = NodeAffinitySchedulingStrategy(node_id, soft=False)
    task: Any = ray.remote(_search_here).options(num_cpus=0, max_retries=0, scheduling_strategy=strategy)
    return task.remote(data_dir, brokers)
