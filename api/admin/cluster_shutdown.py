"""Stopping a whole cluster: cleanly where its parts still answer, and surely in the end."""

from __future__ import annotations

import logging
import time
from typing import Final

import ray
from ray.exceptions import RayError
from ray.util import list_named_actors

from raylog.actors.protocol.actor_names import CONTROLLER, namespace, pool_name
from raylog.api.admin.pool_handle import PoolHandle, pool_groups
from raylog.api.connection.controller_calls import ControllerCalls
from raylog.errors import ClusterNotFound, ClusterNotReady, RaylogError, UnknownPool

_POOLS_SHARE: Final = 0.5  # of the time is for pools, which commit what they have done
_CLEAN_SECONDS: Final = 5.0  # for actors that have been stopped to end by themselves
_KILL_SECONDS: Final = 10.0  # for Ray to see that killed actors are gone
_LOOK_SECONDS: Final = 0.02
_NAMESPACES: Final = "raylog/"
_log = logging.getLogger(__name__)


def end_actors(calls: ControllerCalls, timeout: float) -> None:
    """Returns when none of the cluster's actors has a name in Ray any more. ClusterNotReady: some would not go."""
    _stop_pools(calls.cluster, _POOLS_SHARE * timeout)
    try:
        calls.ask("stop", timeout, timeout=timeout)
    except ClusterNotFound:
        pass  # it is stopped, or half of it
    except (RaylogError, RayError) as error:
        _log.warning("The cluster %r is not stopped cleanly: %s", calls.cluster, error)
    else:
        _until_gone(calls.cluster, [CONTROLLER], _CLEAN_SECONDS)
    left = _kill_all(calls.cluster)
    if left:
        reason = f"killed, but not gone: {', '.join(left)}"
        raise ClusterNotReady(calls.cluster, round(1000 * (timeout + _KILL_SECONDS)), reason)


def _stop_pools(cluster: str, timeout: float) -> None:
    """Let the consumers of pools end what they have in hand, while there are brokers to commit to."""
    pools = [PoolHandle(cluster, group) for group in pool_groups(actor_names(cluster))]
    deadline = time.monotonic() + timeout
    for pool in pools:
        pool.begin_stop()
    for pool in pools:
        try:
            pool.stop(max(0.1, deadline - time.monotonic()))
        except UnknownPool:
            continue  # it has ended
        except (RaylogError, RayError) as error:
            _log.warning("The pool of group %r is not stopped cleanly: %s", pool.group_id, error)


def _kill_all(cluster: str) -> list[str]:
    """First those that would start others again: the controller, and pools. Returns who is left."""
    makers = [CONTROLLER, *map(pool_name, pool_groups(actor_names(cluster)))]
    for names in (makers, actor_names(cluster)):
        for name in names:
            try:
                ray.kill(ray.get_actor(name, namespace=namespace(cluster)))
            except ValueError:
                continue  # it has ended meanwhile
    return _until_gone(cluster, [], _KILL_SECONDS)


def _until_gone(cluster: str, except_for: list[str], timeout: float) -> list[str]:
    """Wait until the others have no names any more; who still has one."""
    deadline = time.monotonic() + timeout
    while left := [name for name in actor_names(cluster) if name not in except_for]:
        if time.monotonic() >= deadline:
            break
        time.sleep(_LOOK_SECONDS)
    return left


def cluster_names() -> list[str]:
    """Return the names of all clusters on this Ray."""
    spaces = {entry["namespace"] for entry in list_named_actors(all_namespaces=True)}
    return sorted(each.removeprefix(_NAMESPACES) for each in spaces if each.startswith(_NAMESPACES))


def actor_names(cluster: str) -> list[str]:
    """Return the names of all actors of the cluster that Ray does not take for dead."""
    ours = namespace(cluster)
    return [entry["name"] for entry in list_named_actors(all_namespaces=True) if entry["namespace"] == ours]
