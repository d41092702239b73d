"""The options that all of raylog's actors have in common."""

from __future__ import annotations

from typing import Any, Final

from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raylog.actors.on_ray.runtime.nodes import HEAD_RESOURCE
from raylog.actors.protocol.actor_names import namespace

_RESOURCE_PIECE: Final = 0.001
_REQUESTS_AT_ONCE: Final = 8


def actor_options(cluster: str, name: str, node_id: str, **more: Any) -> dict[str, Any]:
    """Return the options of a detached, named actor on this node only, which takes none of its CPUs."""
    bound = NodeAffinitySchedulingStrategy(node_id, soft=False)
    return {**_common(cluster, name), "scheduling_strategy": bound, **more}


def head_actor_options(cluster: str, name: str, **more: Any) -> dict[str, Any]:
    """Return the same for an actor on Ray's head, whichever node that is.

    A head that was lost comes back as another node. An actor bound to the id of the former one could never run again.
    """
    return {**_common(cluster, name), "resources": {HEAD_RESOURCE: _RESOURCE_PIECE}, **more}


def pool_actor_options(cluster: str, name: str) -> dict[str, Any]:
    """Return the same for a pool's supervisor, on any node. Ray starts it again: it keeps nothing of its own, and the
    store says where it goes on.
    """
    return {**_common(cluster, name), "max_restarts": -1, "max_concurrency": _REQUESTS_AT_ONCE}


def _common(cluster: str, name: str) -> dict[str, Any]:
    """Return options without retries by Ray (rule 26): a call that Ray repeats by itself might be carried out twice."""
    return {
        "name": name,
        "namespace": namespace(cluster),
        "lifetime": "detached",
        "num_cpus": 0,
        "max_restarts": 0,
        "max_task_retries": 0,
    }
