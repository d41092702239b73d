"""A coordinator as a Ray actor, pinned to the node of a broker. The maker of its core decides its kind.

What must stay true: Ray never restarts the actor. Only the controller makes a new one, under a new epoch (rules 25,
26). The process ends when its core has ended.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable
from importlib import import_module

from raylog.actors.coordinators.process import CoordinatorProcess, MakeCore
from raylog.actors.kernel.metrics import Reading
from raylog.actors.machine.kept_memory import keep_memory
from raylog.actors.machine.loop_thread import CoreThread
from raylog.actors.machine.own_processes import outlive_others
from raylog.actors.machine.real_environment import Place, RealEnvironment
from raylog.actors.machine.tls import RayTls
from raylog.actors.on_ray.actor_exit import end_process
from raylog.actors.on_ray.controller_search import ControllerSearch
from raylog.actors.on_ray.metrics import RayMetrics
from raylog.actors.protocol.coordinator_spec import CoordinatorSpec

_log = logging.getLogger(__name__)


class CoordinatorActor:
    """The actor, started by `on_ray/coordinator_launcher.py`. Everything else goes over its streams."""

    def __init__(self, cluster: str, spec: CoordinatorSpec, place: Place, maker: str) -> None:
        outlive_others()
        keep_memory()
        self._cluster = cluster
        self._spec = spec
        env = RealEnvironment(place, RayTls.from_environment())
        core = CoreThread(place.cluster_id)
        self._process: CoordinatorProcess | None = None
        core.start(self._live(env, maker_of(maker)), self._over)
        RayMetrics(core, self._readings, {"cluster": cluster, "broker": str(spec.broker_id)})

    async def until_over(self) -> None:
        """Never answer: the call fails when the process ends, which Ray sees within milliseconds."""
        await asyncio.get_running_loop().create_future()

    def __repr__(self) -> str:
        return str(self._spec)

    async def _live(self, env: RealEnvironment, make: MakeCore) -> str:
        find = ControllerSearch(self._cluster, self._spec.node_id, env.keys).find
        self._process = CoordinatorProcess(env, self._spec, os.getpid(), find, make)
        return await self._process.run()

    def _readings(self) -> Iterable[Reading]:
        return () if self._process is None else self._process.readings()

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
