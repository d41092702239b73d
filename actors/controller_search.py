"""Where the controller takes streams, as Ray knows it. For brokers and coordinators, which dial it."""

from __future__ import annotations

import asyncio
from typing import Final

import ray
from ray.exceptions import RayError

from raylog.actors.actor_address import Address
from raylog.actors.actor_names import CONTROLLER, namespace
from raylog.actors.cluster_secrets import ClusterSecrets, KeyRing
from raylog.actors.stream_interface import Endpoint
from raylog.errors import ControllerNotReady

_FIND_SECONDS: Final = 3.0


async def find_controller(cluster: str, node_id: str, keys: KeyRing) -> Endpoint:
    """For a process of this node; asked anew each time, as it may be elsewhere now. ControllerNotReady.

    `keys`: of that process, which may have missed that the secrets were changed; the controller is told likewise.
    """
    loop = asyncio.get_running_loop()
    try:
        actor = await loop.run_in_executor(None, lambda: ray.get_actor(CONTROLLER, namespace=namespace(cluster)))
        address, newest = await asyncio.wait_for(_answer(actor.address.remote(keys.secrets)), _FIND_SECONDS)
    except (RayError, ValueError, asyncio.TimeoutError) as error:
        raise ControllerNotReady(f"Its actor does not answer: {error!r}.") from error
    keys.adopt(newest)
    return address.nearest_to(node_id)


async def _answer(reference: ray.ObjectRef[tuple[Address, ClusterSecrets]]) -> tuple[Address, ClusterSecrets]:
    return await reference
