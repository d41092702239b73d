"""Where the controller takes streams, as Ray knows it. For brokers and coordinators, which dial it."""

from __future__ import annotations

import asyncio
from typing import Final

import ray
from ray.exceptions import RayError

from raylog.actors.actor_address import Address
from raylog.actors.actor_names import CONTROLLER, namespace
from raylog.actors.stream_interface import Endpoint
from raylog.errors import ControllerNotReady

_FIND_SECONDS: Final = 3.0


async def find_controller(cluster: str, node_id: str) -> Endpoint:
    """For a process of this node; asked anew each time, as it may be elsewhere now. ControllerNotReady."""
    loop = asyncio.get_running_loop()
    try:
        actor = await loop.run_in_executor(None, lambda: ray.get_actor(CONTROLLER, namespace=namespace(cluster)))
        address = await asyncio.wait_for(_answer(actor.address.remote()), _FIND_SECONDS)
    except (RayError, ValueError, asyncio.TimeoutError) as error:
        raise ControllerNotReady(f"Its actor does not answer: {error!r}.") from error
    return address.nearest_to(node_id)


async def _answer(reference: ray.ObjectRef[Address]) -> Address:
    return await reference
