"""Starts the processes of coordinators as Ray actors. The controller's core decides when and where (rule 25)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import ray
from ray.exceptions import RayError

from raylog.actors.machine.lean_process import lean
from raylog.actors.machine.real_environment import Place
from raylog.actors.on_ray.actor_end import end_of
from raylog.actors.on_ray.actor_options import actor_options
from raylog.actors.on_ray.coordinator_host_actor import CoordinatorHostActor
from raylog.actors.on_ray.runtime.nodes import living_nodes
from raylog.actors.protocol.actor_names import coordinators_name, namespace
from raylog.actors.protocol.cluster_secrets import KeyRing
from raylog.actors.protocol.coordinator_spec import CoordinatorHostSpec
from raylog.errors import HostNotStarted

_log = logging.getLogger(__name__)


class RayCoordinatorLauncher:
    """A `CoordinatorLauncher`. `makers`: what makes the core of a topic's coordinators, by dotted name.

    `on_ended` is called on the loop when a process that was started or taken over has ended: with its run, or with an
    empty one where that is not sure.
    """

    def __init__(
        self,
        cluster: str,
        cluster_id: str,
        keys: KeyRing,
        makers: Mapping[str, str],
        on_ended: Callable[[CoordinatorHostSpec, str], None],
    ) -> None:
        self._cluster = cluster
        self._cluster_id = cluster_id
        self._keys = keys
        self._makers = makers
        self._on_ended = on_ended
        self._watches: dict[str, asyncio.Task[None]] = {}  # by name
        self._class = ray.remote(lean(CoordinatorHostActor))

    async def start(self, spec: CoordinatorHostSpec) -> None:
        """Have Ray find the actor of this name, or make it."""
        try:
            actor = await asyncio.get_running_loop().run_in_executor(None, partial(self._find_or_create, spec))
        except (RayError, ValueError, LookupError) as error:  # ValueError: another one has just taken the name
            raise HostNotStarted(spec.broker_id, repr(error)) from error
        name = self._name(spec)
        if (watch := self._watches.pop(name, None)) is not None:
            watch.cancel()
        self._watches[name] = asyncio.ensure_future(self._watch(spec, actor))

    async def stop(self, spec: CoordinatorHostSpec) -> None:
        """Have Ray kill it. It tells nobody of that end any more."""
        if (watch := self._watches.pop(self._name(spec), None)) is not None:
            watch.cancel()
        try:
            await asyncio.get_running_loop().run_in_executor(None, partial(self._kill, spec))
        except ValueError:
            return  # there is none of this name
        except RayError as error:
            raise HostNotStarted(spec.broker_id, repr(error)) from error

    async def _watch(self, spec: CoordinatorHostSpec, actor: Any) -> None:
        """Wait for the end of a process, and tell whether it is certain.

        A process whose node Ray takes for dead may only be cut off. Of all others the Ray of their node has seen the
        end.
        """
        run = ""

        async def until_over() -> None:
            nonlocal run
            run = run or await actor.run.remote()
            await actor.until_over.remote()

        _log.info("The process for %s has ended: %s", spec, await end_of(spec, until_over))
        is_sure = await asyncio.get_running_loop().run_in_executor(None, partial(self._has_node, spec))
        self._on_ended(spec, run if is_sure else "")

    @staticmethod
    def _has_node(spec: CoordinatorHostSpec) -> bool:
        try:
            return any(node.node_id == spec.node_id for node in living_nodes())
        except RayError as error:
            _log.info("Ray does not tell whether node %s is alive: %r", spec.node_id, error)
            return False

    def _find_or_create(self, spec: CoordinatorHostSpec) -> Any:
        hosts = {node.node_id: node.host for node in living_nodes()}
        if spec.node_id not in hosts:
            raise ValueError(f"node {spec.node_id} is not alive")
        options = actor_options(self._cluster, self._name(spec), spec.node_id, get_if_exists=True)
        place = Place(self._cluster_id, self._keys.secrets, hosts[spec.node_id], self._cluster)
        return self._class.options(**options).remote(self._cluster, spec, place, self._makers)

    def _kill(self, spec: CoordinatorHostSpec) -> None:
        ray.kill(ray.get_actor(self._name(spec), namespace=namespace(self._cluster)))

    @staticmethod
    def _name(spec: CoordinatorHostSpec) -> str:
        return coordinators_name(spec.broker_id, spec.node_id)
