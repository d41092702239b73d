"""Names of raylog's actors in Ray. Each cluster has its own namespace, so two clusters never meet."""

from __future__ import annotations

import re
from typing import Final

from raylog.errors import InvalidConfig

CONTROLLER: Final = "controller"
BROKER_RESOURCE: Final = "raylog_broker"
DEFAULT_CLUSTER: Final = "default"

_POOL: Final = "pool:"
_POOL_ACTOR: Final = "pool-actor:"
_POOL_ACTOR_ID: Final = re.compile(r"-[0-9a-f]{8}")
_CLUSTER_NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,99}")
_BROKER: Final = re.compile(r"broker-(\d+)")
_HOST: Final = "host-"
_NODE_DIGITS: Final = 12
_COORDINATORS: Final = "coordinators-"


def namespace(cluster: str) -> str:
    """Return the Ray namespace of the cluster of this name. InvalidConfig: it cannot be a name."""
    if ":" in cluster:
        raise InvalidConfig("cluster", cluster, "the name of a cluster and no address: brokers are found through Ray")
    if not _CLUSTER_NAME.fullmatch(cluster):
        raise InvalidConfig("cluster", cluster, "1 to 100 letters, digits, dots, underscores or hyphens")
    return f"raylog/{cluster}"


def broker_name(broker_id: int) -> str:
    return f"broker-{broker_id}"


def housekeeper_name(broker_id: int) -> str:
    return f"housekeeper-{broker_id}"


def gateway_name(broker_id: int) -> str:
    return f"gateway-{broker_id}"


def broker_id_of(actor_name: str) -> int | None:
    """Return the id of the broker whose actor has this name; None: no broker's."""
    match = _BROKER.fullmatch(actor_name)
    return int(match[1]) if match else None


def host_name(broker_id: int, incarnation: int) -> str:
    """Return a name for one incarnation: an actor that is being killed may keep its own name for a while."""
    return f"{_HOST}{broker_id}-{incarnation:x}"


def coordinators_name(broker_id: int, node_id: str) -> str:
    """Return the name of the process for the coordinators of a broker, which may move to another node."""
    return f"{_COORDINATORS}{broker_id}-{node_id[:_NODE_DIGITS]}"


def pool_name(group_id: str) -> str:
    """Return the name of the supervisor of a group's pool."""
    return f"{_POOL}{group_id}"


def group_of_pool(actor_name: str) -> str | None:
    """Return the group whose pool's supervisor has this name; None: no supervisor's."""
    return actor_name.removeprefix(_POOL) if actor_name.startswith(_POOL) else None


def pool_actor_name(worker: str) -> str:
    """Return the name of an actor of a pool. `worker`: its group, a hyphen, and 8 hexadecimal digits."""
    return f"{_POOL_ACTOR}{worker}"


def pool_worker_of(actor_name: str, group_id: str) -> str | None:
    """Return the worker whose actor has this name; None: it is none of this group's pool."""
    worker = actor_name.removeprefix(_POOL_ACTOR)
    is_ours = actor_name.startswith(_POOL_ACTOR) and worker.startswith(group_id)
    return worker if is_ours and _POOL_ACTOR_ID.fullmatch(worker[len(group_id) :]) else None
