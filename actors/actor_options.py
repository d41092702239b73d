"""The options that all of raylog's actors have in common."""

from __future__ import annotations

from typing import Any

from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raylog.actors.actor_names import namespace


def actor_options(cluster: str, name: str, node_id: str, **more: Any) -> dict[str, Any]:
    """Detached, named, on this node or nowhere, and without a claim on its CPUs.

    `max_task_retries=0` (rule 26): a call that Ray repeats behind our back might be carried out twice.
    """
    return {
        "name": name,
        "namespace": namespace(cluster),
        "lifetime": "detached",
        "num_cpus": 0,
        "max_restarts": 0,
        "max_task_retries": 0,
        "scheduling_strategy": NodeAffinitySchedulingStrategy(node_id, soft=False),
        **more,
    }
