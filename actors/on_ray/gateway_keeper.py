"""Keeps a broker's gateway for Kafka clients running. Part of the broker's process.

    no actor of that name → made → it cannot serve, or ends → made again, after a pause that grows while it does not
    serve for long

What must stay true: an actor that an earlier process of this broker has made is taken over, and not made a second time.
It has the same name, and finds the new process of its broker at the same address.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, Final

import ray
from ray.exceptions import RayError

from raylog.actors.kernel.backoff import Backoff
from raylog.actors.machine.lean_process import lean
from raylog.actors.machine.real_environment import Place
from raylog.actors.on_ray.actor_options import actor_options
from raylog.actors.on_ray.gateway_actor import GatewayActor
from raylog.actors.protocol.actor_names import gateway_name, namespace
from raylog.actors.protocol.cluster_secrets import KeyRing
from raylog.actors.protocol.gateway_spec import GatewaySpec
from raylog.errors import RaylogError

_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 5.0
_STEADY_SECONDS: Final = 60.0
_log = logging.getLogger(__name__)


class RayGateway:
    """The gateway of one broker, on its node. `maker`: what makes its core, by dotted name."""

    def __init__(
        self, cluster: str, node_id: str, spec: GatewaySpec, place: Place, keys: KeyRing, maker: str
    ) -> None:
        self._name = gateway_name(spec.broker_id)
        self._namespace = namespace(cluster)
        self._options = actor_options(cluster, self._name, node_id)
        self._spec = spec
        self._place = place
        self._keys = keys
        self._maker = maker
        self._class = ray.remote(lean(GatewayActor))
        self._wanted_now = asyncio.Event()
        self._outcome: asyncio.Future[RaylogError | None] = asyncio.get_running_loop().create_future()

    async def keep(self, goes_on: Callable[[], bool]) -> None:
        """Have it run for as long as that goes on. The caller ends its process."""
        loop = asyncio.get_running_loop()
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, Random())
        while goes_on():
            begun = loop.time()
            await self._run_once()
            if loop.time() - begun > _STEADY_SECONDS:
                backoff.reset()
            self._wanted_now.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._wanted_now.wait(), backoff.next())

    async def ready(self) -> None:
        """Return once it serves. Raises what keeps it from that, after another attempt if it has failed already."""
        if self._outcome.done() and self._outcome.result() is not None:
            self._outcome = asyncio.get_running_loop().create_future()
            self._wanted_now.set()
        problem = await asyncio.shield(self._outcome)
        if problem is not None:
            raise problem

    async def _run_once(self) -> None:
        """Have it run, until it ends or turns out not to serve."""
        loop = asyncio.get_running_loop()
        try:
            actor = await loop.run_in_executor(None, self._find_or_make)
            try:
                await actor.ready.remote()
            except RayError as error:
                problem = getattr(error, "cause", None)
                if not isinstance(problem, RaylogError):
                    raise
                self._settle(problem)
                await loop.run_in_executor(None, ray.kill, actor)
                return
            self._settle(None)
            await actor.until_over.remote()
        except (RayError, ValueError) as error:  # ValueError: another one has just taken the name
            _log.info("%s has ended: %s", self._name, str(error).strip().splitlines()[-1:])

    def _settle(self, problem: RaylogError | None) -> None:
        if problem is not None:
            _log.error("Kafka clients are not served beside broker %d: %s", self._spec.broker_id, problem)
        if self._outcome.done():
            self._outcome = asyncio.get_running_loop().create_future()
        self._outcome.set_result(problem)

    def _find_or_make(self) -> Any:
        try:
            return ray.get_actor(self._name, namespace=self._namespace)
        except ValueError:
            return self._class.options(**self._options).remote(
                self._spec, replace(self._place, secrets=self._keys.secrets), self._maker
            )
