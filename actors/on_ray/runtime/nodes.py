"""The nodes of the Ray cluster, by Ray's own list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import ray

from raylog.actors.protocol.actor_names import BROKER_RESOURCE

HEAD_RESOURCE: Final = "node:__internal_head__"  # the head has one of it, and no other node has any
_RACK_LABELS: Final = ("raylog-rack", "ray.io/availability-zone")


@dataclass(frozen=True)
class RayNode:
    node_id: str
    host: str
    is_head: bool
    is_for_brokers: bool  # it carries the resource that says so
    cpus: float
    rack: str = ""  # by the label raylog-rack, or else by its availability zone


def living_nodes() -> tuple[RayNode, ...]:
    """Return all nodes that Ray takes for alive. It asks Ray's control store and blocks: not for an event loop."""
    entries: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return tuple(_node(entry) for entry in entries if entry["Alive"])


def nodes_for_brokers(nodes: Sequence[RayNode], home: str) -> tuple[RayNode, ...]:
    """Return the nodes for brokers: those with the resource; without any, the node `home`."""
    marked = tuple(node for node in nodes if node.is_for_brokers)
    return marked or tuple(node for node in nodes if node.node_id == home)


def _node(entry: dict[str, Any]) -> RayNode:
    resources, labels = entry["Resources"], entry.get("Labels") or {}
    return RayNode(
        node_id=entry["NodeID"],
        host=entry["NodeManagerAddress"],
        is_head=HEAD_RESOURCE in resources,
        cpus=resources.get("CPU", 0.0),
        is_for_brokers=resources.get(BROKER_RESOURCE, 0) > 0,
        rack=next((labels[name] for name in _RACK_LABELS if labels.get(name)), ""),
    )
