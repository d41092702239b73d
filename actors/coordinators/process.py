"""A coordinator's process, from claiming its partition to its end. A `CoordinatorCore` decides.

    claiming, replaying ──► serving ──replaced, its log ended──► over

It takes streams from the beginning, and refuses all requests until it serves. What must stay true:
- It reports that it serves only after its core has replayed everything up to the claim (rule 25).
- Once the controller has placed another one, or its log has ended, it answers nobody any more and ends.
- It answers for its own partition only. An id that belongs to another one would look new to it.
- What it answers is not older than the last coordinator's: where its lease may be over, as after it was stopped, or
  while there is no controller, it makes sure of its log before each answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, Protocol, TypeAlias

from raylog.actors.coordinators.claimed_log import CoordinatorLog
from raylog.actors.kernel.background import HEARTBEAT_SECONDS, SILENCE_SECONDS
from raylog.actors.kernel.environment import Environment, FindController
from raylog.actors.kernel.metrics import Reading
from raylog.actors.kernel.stream_interface import Answer, Dispatch, Request, Stream
from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.protocol.coordinator_messages import CoordinatorHeartbeat, StopCoordinator
from raylog.actors.protocol.coordinator_spec import CoordinatorSpec
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.secret_messages import KeepSecrets
from raylog.errors import (
    CoordinatorNotReady,
    RaylogError,
    RemoteFailed,
    StaleCoordinator,
    StreamNotOpen,
    UnknownPartition,
)

_FIND_SECONDS: Final = 5.0
_ANSWER_SECONDS: Final = 2 * SILENCE_SECONDS
_PAUSE_SECONDS: Final = 0.1
_SURE_SECONDS: Final = SILENCE_SECONDS - 0.5  # the controller counts the whole of it from when it heard the same sign

_log = logging.getLogger(__name__)


class CoordinatorCore(Protocol):
    """One kind of coordinator."""

    async def start(self) -> None:
        """Claim and replay the log. From then on requests are taken."""

    def handle(self, request: Request) -> Answer | Awaitable[Answer]:
        """Raises MessageUnknown for what this kind is not asked."""

    async def close(self) -> None: ...

    def readings(self) -> Iterable[Reading]:
        """The metrics of a coordinator."""


MakeCore: TypeAlias = Callable[[Environment, CoordinatorSpec, CoordinatorLog, ClusterLink], CoordinatorCore]


class CoordinatorProcess:
    """`run` returns why it ended."""

    def __init__(
        self, env: Environment, spec: CoordinatorSpec, pid: int, find_controller: FindController, make: MakeCore
    ) -> None:
        self._env = env
        self._spec = spec
        self._pid = pid
        self._find_controller = find_controller
        self._loop = asyncio.get_running_loop()
        self._replaced: asyncio.Future[str] = self._loop.create_future()  # by another one, or by none
        self._orders: Dispatch[Callable[[Any], None]] = Dispatch(
            {KeepSecrets: self._keep_secrets, StopCoordinator: self._stop}
        )
        self._changed = asyncio.Event()
        self._is_serving = False
        self._sure_until = 0.0
        self._endpoints: tuple[Endpoint, ...] = ()
        self._link = ClusterLink(env, tuple(map(Endpoint.parse, spec.brokers)))
        self._partition_log = CoordinatorLog(
            self._link, spec.topic, spec.partition, spec.producer_id, spec.epoch, spec.retired_id
        )
        self._core = make(env, spec, self._partition_log, self._link)

    @property
    def is_serving(self) -> bool:
        return self._is_serving

    def readings(self) -> Iterable[Reading]:
        """The core's metrics, while it serves."""
        return self._core.readings() if self._is_serving else ()

    async def run(self) -> str:
        name = f"{self._spec.topic}-{self._spec.partition}-{self._spec.producer_id}-{self._spec.epoch}"
        server, self._endpoints = await self._env.listen(name, "coordinator", self._handle)
        beating = self._loop.create_task(self._keep_beating())
        serving = self._loop.create_task(self._serve())
        try:
            over: list[asyncio.Future[Any]] = [self._replaced, self._partition_log.ended, serving, beating]
            await asyncio.wait(over, return_when=asyncio.FIRST_COMPLETED)
            return self._why(serving, beating)
        finally:
            self._is_serving = False
            for task in (serving, beating):
                task.cancel()
            await self._core.close()
            await self._partition_log.close()
            await server.close(timeout=0.0)
            await self._link.close()

    async def _serve(self) -> None:
        await self._core.start()
        _log.info("The %s serves.", self._spec)
        self._is_serving = True
        self._changed.set()
        await asyncio.wait([self._replaced])

    def _why(self, *tasks: asyncio.Task[None]) -> str:
        """An error that is none of raylog's is a mistake, and is raised."""
        for task in tasks:
            error = task.exception() if task.done() and not task.cancelled() else None
            if error is not None and not isinstance(error, RaylogError):
                raise error
        if self._replaced.done():
            return self._replaced.result()
        if self._partition_log.ended.done():
            return str(self._partition_log.ended.result())
        return "; ".join(str(task.exception()) for task in tasks if task.done() and not task.cancelled())

    def _handle(self, request: Request) -> Answer | Awaitable[Answer]:
        if request.partition != self._spec.partition:  # an address of before may have become this process's
            raise UnknownPartition(self._spec.topic, request.partition)
        if not self._is_serving or self._partition_log.ended.done():
            raise CoordinatorNotReady(self._spec.topic, self._spec.partition)
        if self._loop.time() < self._sure_until:
            return self._core.handle(request)
        return self._handle_when_sure(request)

    async def _handle_when_sure(self, request: Request) -> Answer:
        """Requests that waited in sockets while this process stood still come in any order. Whose stream has ended
        meanwhile is dead, or will ask again: its request, a join say, must not undo what its successor has asked for.
        """
        await self._partition_log.confirm()
        if request.stream.closed.done():
            raise StreamNotOpen(request.stream.peer, "it ended before its request was handled")
        answer = self._core.handle(request)
        return await answer if isinstance(answer, Awaitable) else answer

    # --- signs of life --------------------------------------------------------------------------------------------

    async def _keep_beating(self) -> None:
        """Send heartbeats for ever. A controller that is not there is no reason to end."""
        while not self._replaced.done():
            try:
                endpoint = await asyncio.wait_for(self._find_controller(), _FIND_SECONDS)
                stream = await self._env.dial(endpoint, "coordinator", self._from_controller)
                try:
                    await self._beat_over(stream)
                finally:
                    await stream.close(timeout=0.0)
            except (RaylogError, asyncio.TimeoutError) as error:
                _log.debug("No controller for the %s: %r", self._spec, error)
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _beat_over(self, stream: Stream) -> None:
        while not stream.closed.done():
            self._changed.clear()
            sent_at = self._loop.time()
            try:
                await stream.request(self._heartbeat(), timeout=_ANSWER_SECONDS)
                self._sure_until = sent_at + _SURE_SECONDS
            except RemoteFailed as error:
                if not isinstance(error.error, StaleCoordinator):
                    raise
                if not self._replaced.done():
                    self._replaced.set_result(str(error.error))
                return
            try:
                await asyncio.wait_for(self._changed.wait(), HEARTBEAT_SECONDS)
            except asyncio.TimeoutError:
                continue

    def _from_controller(self, request: Request) -> Answer:
        self._orders.handler_of(request.message)(request.message)
        return None

    def _keep_secrets(self, order: KeepSecrets) -> None:
        self._env.keys.adopt(order.secrets)

    def _stop(self, _: StopCoordinator) -> None:
        if not self._replaced.done():
            self._replaced.set_result("the cluster is being shut down")

    def _heartbeat(self) -> CoordinatorHeartbeat:
        spec = self._spec
        endpoints = tuple(map(str, self._endpoints))
        return CoordinatorHeartbeat(
            spec.topic_id, spec.partition, spec.epoch, self._pid, endpoints, self._is_serving
        )
