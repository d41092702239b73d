"""Keeps a broker's housekeeping process running. Part of the broker's process.

    there is work → no actor of that name → made → it has nothing to do, or ends otherwise → when there is work again:
    made again, after a pause that grows while it does not live long

What must stay true: an actor that an earlier process of this broker has made is taken over, and not made a second time.
It has the same name, and finds the new process of its broker at the same address.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import Random
from typing import Any, Final

import ray
from ray.exceptions import RayError

from raylog.actors.housekeeping.housekeeper import HousekeeperSpec
from raylog.actors.kernel.backoff import Backoff
from raylog.actors.machine.lean_process import lean
from raylog.actors.machine.real_environment import Place
from raylog.actors.on_ray.actor_options import actor_options
from raylog.actors.on_ray.housekeeper_actor import HousekeeperActor
from raylog.actors.protocol.actor_names import housekeeper_name, namespace
from raylog.actors.protocol.cluster_secrets import KeyRing

_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0
_STEADY_SECONDS: Final = 60.0
_log = logging.getLogger(__name__)


class RayHousekeeper:
    """The housekeeping process of one broker, on its node."""

    def __init__(
        self, cluster: str, node_id: str, spec: HousekeeperSpec, place: Place, keys: KeyRing
    ) -> None:
        self._name = housekeeper_name(spec.broker_id)
        self._namespace = namespace(cluster)
        self._options = actor_options(cluster, self._name, node_id)
        self._spec = spec
        self._place = place
        self._keys = keys
        self._class = ray.remote(lean(HousekeeperActor))

    async def keep(self, goes_on: Callable[[], bool], is_wanted: Callable[[], Awaitable[None]]) -> None:
        """Start it when it is wanted, for as long as that goes on. The caller ends its process."""
        loop = asyncio.get_running_loop()
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, Random())
        while goes_on():
            await is_wanted()
            begun = loop.time()
            try:
                actor = await loop.run_in_executor(None, self._find_or_make)
                await actor.until_over.remote()
            except (RayError, ValueError) as error:  # ValueError: another one has just taken the name
                _log.info("%s has ended: %s", self._name, str(error).strip().splitlines()[-1:])
            if loop.time() - begun > _STEADY_SECONDS:
                backoff.reset()
            await asyncio.sleep(backoff.next())

    def _find_or_make(self) -> Any:
        try:
            return ray.get_actor(self._name, namespace=self._namespace)
        except ValueError:
            return self._class.options(**self._options).remote(
                self._spec, replace(self._place, secrets=self._keys.secrets)
            )
