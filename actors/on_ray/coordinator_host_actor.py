"""A host of coordinators as a Ray actor, pinned to the node of a broker. Makers of cores decide what kinds it holds.

What must stay true: Ray never restarts the actor. Only the controller makes a new one, and places coordinators under
new epochs (rules 25, 26). The process ends when its core has ended.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Final

from raylog.actors.coordinators.coordinator import MakeCore
from raylog.actors.coordinators.host import CoordinatorHost
from raylog.actors.kernel.metrics import Reading
from raylog.actors.machine.kept_memory import keep_memory
from raylog.actors.machine.loop_thread import CoreThread
from raylog.actors.machine.own_processes import outlive_others, take_normal_priority
from raylog.actors.machine.real_environment import Place, RealEnvironment
from raylog.actors.machine.tls import RayTls
from raylog.actors.on_ray.actor_exit import end_process
from raylog.actors.on_ray.controller_search import ControllerSearch
from raylog.actors.on_ray.metrics import RayMetrics
from raylog.actors.protocol.coordinator_spec import CoordinatorHostSpec

_RUN_BYTES: Final = 8
_log = logging.getLogger(__name__)


class CoordinatorHostActor:
    """The actor, started by `on_ray/coordinator_launcher.py`. Everything else goes over its streams."""

    def __init__(self, cluster: str, spec: CoordinatorHostSpec, place: Place, makers: Mapping[str, str]) -> None:
        outlive_others()
        take_normal_priority()
        keep_memory()
        self._cluster = cluster
        self._spec = spec
        self._run = secrets.token_hex(_RUN_BYTES)
        self._host: CoordinatorHost | None = None
        env = RealEnvironment(place, RayTls.from_environment())
        core = CoreThread(place.cluster_id)
        core.start(self._live(env, {topic: maker_of(name) for topic, name in makers.items()}), self._over)
        RayMetrics(core, self._readings, {"cluster": cluster, "broker": str(spec.broker_id)})

    async def run(self) -> str:
        """Return what tells this process from all others of its name."""
        return self._run

    async def until_over(self) -> None:
        """Never answer: the call fails when the process ends, which Ray sees within milliseconds."""
        await asyncio.get_running_loop().create_future()

    def __repr__(self) -> str:
        return str(self._spec)

    async def _live(self, env: RealEnvironment, makers: Mapping[str, MakeCore]) -> str:
        find = ControllerSearch(self._cluster, self._spec.node_id, env.keys).find
        self._host = CoordinatorHost(env, self._spec, self._run, os.getpid(), find, makers)
        return await self._host.run()

    def _readings(self) -> Iterable[Reading]:
        return () if self._host is None else self._host.readings()

    def _over(self, task: asyncio.Task[str]) -> None:
        if task.exception() is not None:
            _log.critical("%s: it ends after a mistake of its own.", self._spec, exc_info=task.exception())
        else:
            _log.info("%s: it ends: %s", self._spec, task.result())
        end_process()


def maker_of(name: str) -> MakeCore:
    """Return the function of this dotted name. Kinds of coordinators are in folders that this one must not import."""
    module, _, function = name.rpartition(".")
    make: MakeCore = getattr(import_module(module), function)
    return make
