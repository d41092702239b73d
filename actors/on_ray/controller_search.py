"""Finding the controller's address through Ray, for brokers and coordinators, which dial it.

What must stay true: one question to Ray's control store is under way at a time. While the store is away, for example
after the loss of Ray's head, a question waits for minutes and cannot be cancelled. A new one every few seconds would
use up all threads.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import ray
from ray.exceptions import RayError

from raylog.actors.machine.actor_address import Address
from raylog.actors.protocol.actor_names import CONTROLLER, namespace
from raylog.actors.protocol.cluster_secrets import ClusterSecrets, KeyRing
from raylog.actors.protocol.endpoint import Endpoint
from raylog.errors import ControllerNotReady

_FIND_SECONDS: Final = 3.0


class ControllerSearch:
    """The search of one process, on one event loop.

    `keys`: of that process, which may have missed that the secrets were changed; the controller is told likewise.
    """

    def __init__(self, cluster: str, node_id: str, keys: KeyRing) -> None:
        self._namespace = namespace(cluster)
        self._node_id = node_id
        self._keys = keys
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="controller-search")
        self._asking: asyncio.Future[Any] | None = None

    async def find(self) -> Endpoint:
        """Return the controller's address, asked anew each time, as it may have moved. ControllerNotReady."""
        try:
            actor = await asyncio.wait_for(asyncio.shield(self._question()), _FIND_SECONDS)
            answer = _answer(actor.address.remote(self._keys.secrets))
            address, newest = await asyncio.wait_for(answer, _FIND_SECONDS)
        except (RayError, ValueError, asyncio.TimeoutError) as error:
            raise ControllerNotReady(f"Its actor does not answer: {error!r}.") from error
        self._keys.adopt(newest)
        return address.nearest_to(self._node_id)

    def _question(self) -> asyncio.Future[Any]:
        """Return the question that is under way, or a new one."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.get_running_loop().run_in_executor(self._thread, self._actor)
            self._asking.add_done_callback(_retrieved)
        return self._asking

    def _actor(self) -> Any:
        return ray.get_actor(CONTROLLER, namespace=self._namespace)


async def _answer(reference: ray.ObjectRef[tuple[Address, ClusterSecrets]]) -> tuple[Address, ClusterSecrets]:
    return await reference


def _retrieved(question: asyncio.Future[Any]) -> None:
    """Look at the error, so that asyncio does not log it where the caller has given up waiting."""
    if not question.cancelled():
        question.exception()
