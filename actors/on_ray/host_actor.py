"""A host of replicas as a Ray actor: a process of its own, and nothing in it but the core and the loop that it runs on.

What must stay true:
- Ray never restarts the actor (`max_restarts=0`). Only the controller makes a new one, under a new incarnation (rule
  26). It is detached and pinned to the node of its broker.
- The process ends when its core has ended, whatever the reason. So no actor that others take for alive has a dead core.
- It imports neither numpy, pandas nor pyarrow: there are several such processes on every node.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Iterable

from raylog.actors.kernel.metrics import ReadingGroup
from raylog.actors.machine.kept_memory import keep_memory
from raylog.actors.machine.loop_thread import CoreThread
from raylog.actors.machine.own_processes import outlive_others, take_normal_priority
from raylog.actors.machine.real_environment import Place, RealEnvironment
from raylog.actors.machine.tls import RayTls
from raylog.actors.on_ray.actor_exit import end_process
from raylog.actors.on_ray.metrics import RayMetrics
from raylog.actors.protocol.replica_spec import HostSpec
from raylog.actors.replica.host import ReplicaHost

_log = logging.getLogger(__name__)


class ReplicaHostActor:
    """The actor, started by `on_ray/host_launcher.py`. Everything else goes over its streams."""

    def __init__(self, cluster: str, spec: HostSpec, place: Place) -> None:
        outlive_others()
        take_normal_priority()
        keep_memory()
        self._spec = spec
        self._host: ReplicaHost | None = None
        env = RealEnvironment(place, RayTls.from_environment())
        core = CoreThread(place.cluster_id)
        core.start(self._live(env), self._over)
        RayMetrics(core, self._readings, {"cluster": cluster, "broker": str(spec.broker_id)})

    async def until_over(self) -> None:
        """Never answer: the call fails when the process ends, which Ray sees within milliseconds."""
        await asyncio.get_running_loop().create_future()

    def __repr__(self) -> str:
        return f"replicas of broker {self._spec.broker_id}"

    async def _live(self, env: RealEnvironment) -> str:
        self._host = ReplicaHost(env, self._spec, os.getpid(), time.perf_counter)
        return await self._host.run()

    def _readings(self) -> Iterable[ReadingGroup]:
        return () if self._host is None else self._host.readings()

    def _over(self, task: asyncio.Task[str]) -> None:
        error = task.exception()
        if error is not None:
            _log.critical("%s: it ends after a mistake of its own.", self._spec, exc_info=error)
        end_process()  # a directory that is to go is removed by its broker, under its lock: here it may be another's
