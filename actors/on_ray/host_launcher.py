"""Starts hosts of replicas as Ray actors on their brokers' nodes. The controller's core decides when (rule 26)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import ray
from ray.exceptions import RayError

from raylog.actors.machine.lean_process import lean
from raylog.actors.machine.real_environment import Place
from raylog.actors.on_ray.actor_end import end_of
from raylog.actors.on_ray.actor_options import actor_options
from raylog.actors.on_ray.host_actor import ReplicaHostActor
from raylog.actors.on_ray.runtime.nodes import RayNode, living_nodes
from raylog.actors.protocol.actor_names import host_name, namespace
from raylog.actors.protocol.cluster_secrets import KeyRing
from raylog.actors.protocol.replica_spec import HostSpec
from raylog.errors import HostNotStarted

_BEFORE_AND_AFTER: Final = 2
_MOST_AT_ONCE: Final = 12

_log = logging.getLogger(__name__)


class RayHostLauncher:
    """A `HostLauncher`. `on_ended` is called on the loop when a process that was started has ended."""

    def __init__(
        self, cluster: str, cluster_id: str, keys: KeyRing, on_ended: Callable[[HostSpec], None]
    ) -> None:
        self._on_ended = on_ended
        self._watches: set[asyncio.Task[None]] = set()
        self._cluster = cluster
        self._cluster_id = cluster_id
        self._keys = keys
        self._nodes: dict[str, RayNode] = {}  # a node keeps its address and its CPUs as long as its id
        self._class = ray.remote(lean(ReplicaHostActor))

    async def start(self, spec: HostSpec) -> None:
        """Ask Ray for the actor, without waiting for its process: its broker learns of that first."""
        try:
            actor = await asyncio.get_running_loop().run_in_executor(None, partial(self._create, spec))
        except (RayError, ValueError) as error:  # ValueError: the name is taken
            raise HostNotStarted(spec.broker_id, repr(error)) from error
        watch = asyncio.ensure_future(self._watch(spec, actor))
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)

    def starts_at_once(self, node_id: str) -> int:
        """Return how many processes to start at once: Ray starts as many as the node has CPUs, and others open logs."""
        node = self._nodes.get(node_id)
        return _MOST_AT_ONCE if node is None else min(_MOST_AT_ONCE, round(node.cpus) + _BEFORE_AND_AFTER)

    async def stop(self, spec: HostSpec) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(None, partial(self._kill, spec))
        except ValueError:
            return  # there is none of this name
        except RayError as error:
            raise HostNotStarted(spec.broker_id, repr(error)) from error

    async def _watch(self, spec: HostSpec, actor: Any) -> None:
        _log.info("%s has ended: %s", spec, await end_of(spec, actor.until_over.remote))
        self._on_ended(spec)

    def _create(self, spec: HostSpec) -> Any:
        if spec.node_id not in self._nodes:
            self._nodes.update((node.node_id, node) for node in living_nodes())
        node = self._nodes.get(spec.node_id)
        if node is None:
            raise ValueError(f"node {spec.node_id} is not alive")
        options = actor_options(self._cluster, self._name(spec), spec.node_id)
        return self._class.options(**options).remote(
            self._cluster, spec, Place(self._cluster_id, self._keys.secrets, node.host, self._cluster)
        )

    def _kill(self, spec: HostSpec) -> None:
        ray.kill(ray.get_actor(self._name(spec), namespace=namespace(self._cluster)))

    @staticmethod
    def _name(spec: HostSpec) -> str:
        return host_name(spec.broker_id, spec.incarnation)
