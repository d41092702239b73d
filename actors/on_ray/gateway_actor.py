"""The gateway of one broker as a Ray actor. Its core is Kafka's (`api/kafka/gateway_process.py`), made by dotted name.

`ready` raises what keeps it from serving, as the typed error that it was.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import secrets
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Final, Protocol

from raylog.actors.kernel.metrics import Reading
from raylog.actors.machine.kept_memory import keep_memory
from raylog.actors.machine.loop_thread import CoreThread
from raylog.actors.machine.own_processes import outlive_others, take_normal_priority
from raylog.actors.machine.real_environment import Place, RealEnvironment
from raylog.actors.machine.tls import RayTls
from raylog.actors.on_ray.actor_exit import end_process
from raylog.actors.on_ray.metrics import RayMetrics
from raylog.actors.protocol.gateway_spec import GatewaySpec, HostPort
from raylog.errors import RaylogError

_OPEN_SECONDS: Final = 60.0
_SESSION_BITS: Final = 31
_log = logging.getLogger(__name__)


class GatewayCore(Protocol):
    """The core that the actor runs."""

    async def open(self) -> HostPort: ...
    async def run(self) -> str: ...
    def readings(self) -> Iterable[Reading]: ...


class GatewayActor:
    """The actor, started by `on_ray/gateway_keeper.py`. Everything else goes over its streams, and its listener."""

    def __init__(self, spec: GatewaySpec, place: Place, maker: str) -> None:
        outlive_others()
        take_normal_priority()
        keep_memory()
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # each client takes one
        self._spec = spec
        self._problem: RaylogError | None = None
        self._core = CoreThread(place.cluster_id)
        try:
            gateway = self._core.do(self._opened(place, maker), _OPEN_SECONDS)
        except RaylogError as error:
            _log.error("%r cannot serve: %s", self, error)
            self._problem = error
            return
        self._core.start(gateway.run(), self._over)
        RayMetrics(self._core, gateway.readings, {"cluster": spec.cluster, "broker": str(spec.broker_id)})

    def __repr__(self) -> str:
        return f"gateway of broker {self._spec.broker_id}"

    async def ready(self) -> None:
        """Return if it serves. Raises what keeps it from that."""
        if self._problem is not None:
            raise self._problem

    async def until_over(self) -> None:
        """Never answer: the call fails when the process ends, which Ray sees within milliseconds."""
        await asyncio.get_running_loop().create_future()

    async def _opened(self, place: Place, maker: str) -> GatewayCore:
        env = RealEnvironment(place, RayTls.from_environment())
        module, _, function = maker.rpartition(".")
        make: Callable[..., GatewayCore] = getattr(import_module(module), function)
        gateway = make(env, self._spec, os.getpid(), lambda: secrets.randbits(_SESSION_BITS))
        await gateway.open()
        return gateway

    def _over(self, task: asyncio.Task[str]) -> None:
        if task.exception() is not None:
            _log.critical("%r: it ends after a mistake of its own.", self, exc_info=task.exception())
        else:
            _log.info("%r: it ends: %s.", self, task.result())
        end_process()
