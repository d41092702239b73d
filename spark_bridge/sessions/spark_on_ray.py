"""Parts of Ray that Spark needs: Java on its nodes, CPUs, names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raylog.actors.on_ray.runtime.java_runtime import MAJOR, java_of_path, major_version
from raylog.actors.on_ray.runtime.nodes import living_nodes
from raylog.spark_bridge.sessions.rules.nodes import NodeLook

_NO_COMMAND: Final = b"--java_worker_command="


def look_at_nodes(timeout: float) -> list[NodeLook]:
    """Whether each has a Java for Spark; that of this process comes first.

    RayDP asks for Java workers, and Ray, which has no command for them, would let it wait.
    """
    here = ray.get_runtime_context().get_node_id()
    tasks = {_ask(node.node_id): node for node in sorted(living_nodes(), key=lambda node: node.node_id != here)}
    ray.wait(list(tasks), num_returns=len(tasks), timeout=timeout)
    answers = {node: _answer(task) for task, node in tasks.items()}
    living = {node.node_id for node in living_nodes()}  # one that has died meanwhile is of no concern
    return [NodeLook(node.host, node.cpus > 0, told) for node, told in answers.items() if node.node_id in living]


def logs_folder() -> str:
    folder: str = ray._private.worker._global_node.get_logs_dir_path()  # type: ignore[attr-defined]
    return folder


def cpus_of_ray() -> str:
    """Return Ray's CPUs, for a person."""
    free: dict[str, float] = ray.available_resources()  # type: ignore[no-untyped-call]
    total: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return f"Ray has {total.get('CPU', 0):g} CPUs, of which {free.get('CPU', 0):g} are free"


def actor_named(name: str) -> Any:
    """Return the actor of this name in this process's namespace; None: there is none."""
    try:
        return ray.get_actor(name)
    except ValueError:
        return None


def end_actor(name: str) -> None:
    actor = actor_named(name)
    if actor is not None:
        ray.kill(actor)


def _ask(node_id: str) -> Any:
    strategy = NodeAffinitySchedulingStrategy(node_id, soft=False)
    task: Any = ray.remote(_what_is_missing).options(num_cpus=0, max_retries=0, scheduling_strategy=strategy)
    return task.remote()


def _answer(task: Any) -> str:
    try:
        told: str = ray.get(task, timeout=0)
        return told
    except GetTimeoutError:
        return "it did not tell in time whether it has a Java"
    except RayError as error:
        return f"it could not be asked for a Java ({type(error).__name__})"


def _what_is_missing() -> str:
    """Return what that node lacks, with the environment that its Ray was started in."""
    java = java_of_path(os.environ)
    if _started_without_java():
        return "there was no `java` on PATH when it was started"
    if java is None:
        return "there is no `java` on its PATH"
    major = major_version(java)
    return "" if major == MAJOR else f"the `java` on its PATH is of version {major}, and Spark needs {MAJOR}"


def _started_without_java() -> bool:
    """Whether the node's Ray, this worker's parent, has no command to start Java workers by."""
    try:
        command = Path(f"/proc/{os.getppid()}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return _NO_COMMAND in command
