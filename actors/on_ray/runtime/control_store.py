"""The place of the data of Ray's control store, which decides what the loss of Ray's head costs.

    in memory            lost with the head: the nodes end, and a cold start from the disks brings raylog back
    in Redis, on a disk  the nodes wait for the head to come back; brokers, replicas and coordinators go on meanwhile

A variable tells each process at its start how long to wait. All processes on a node inherit it from the node's Ray.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

MEMORY: Final = "memory"
REDIS: Final = "redis"
ROCKSDB: Final = "rocksdb"
PATIENCE: Final = "RAY_gcs_rpc_server_reconnect_timeout_s"
PATIENCE_SECONDS: Final = 600  # by itself Ray ends each process after 60 s without its control store

_REDIS_ADDRESS: Final = "RAY_REDIS_ADDRESS"
_STORAGE: Final = "RAY_gcs_storage"
_MEANS: Final = {
    MEMORY: "in memory: losing Ray's head is a cold start",
    REDIS: "in Redis: the workers outlive the loss of Ray's head",
    ROCKSDB: "on the head's disk: the workers outlive the loss of Ray's head",
}


def control_store(environment: Mapping[str, str]) -> str:
    """Return it by the environment that the head's Ray was started in, in the order in which Ray looks at it."""
    if environment.get(_STORAGE) == ROCKSDB:
        return ROCKSDB
    return REDIS if environment.get(_REDIS_ADDRESS) else MEMORY


def what_it_means(store: str) -> str:
    """Return a description for people."""
    return _MEANS.get(store, "not known")
