"""A process that hosts coordinators: what they have in common, and nothing of what they are (rules 25, 35).

    looking for the controller ──stream──► saying hello ──answered──► beating
             ▲                                                           │
             └───────────────────── stream ended, refused ───────────────┘

Shared: the loop, the server and its streams, the link to the cluster, signs of life. Each coordinator has its own
partition, epoch, claim, state and end.

What must stay true:
- Requests go to the coordinator that their frame names. Whoever asks for one that is not here looks for it anew: to
  another coordinator its id would look new.
- A coordinator that fails takes no other with it, and the controller hears why it ended. Without its link to the
  cluster, or after an error that nobody foresaw outside of a coordinator, the process ends, and so all of them at once.
- Two coordinators of one partition never run here at once: the later one waits for the end of the earlier.
- A coordinator is sure of its state only for as long as the controller has granted, counted from the heartbeat.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from raylog.actors.coordinators.coordinator import HostedCoordinator, MakeCore
from raylog.actors.kernel.background import HEARTBEAT_SECONDS, SILENCE_SECONDS, BackgroundTasks
from raylog.actors.kernel.environment import Environment, FindController
from raylog.actors.kernel.metrics import Reading
from raylog.actors.kernel.stream_interface import Answer, Dispatch, Request, Stream, expected
from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.protocol.coordinator_messages import (
    CoordinatorEnded,
    CoordinatorHeartbeat,
    CoordinatorHostHello,
    CoordinatorsHeard,
    CoordinatorSign,
    OpenCoordinator,
    StopCoordinator,
    StopCoordinatorHost,
)
from raylog.actors.protocol.coordinator_spec import CoordinatorHostSpec, CoordinatorSpec
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.secret_messages import KeepSecrets
from raylog.errors import CoordinatorNotReady, CoordinatorNotStarted, RaylogError, UnknownPartition

_FIND_SECONDS: Final = 5.0
_ANSWER_SECONDS: Final = 2 * SILENCE_SECONDS
_PAUSE_SECONDS: Final = 0.1

_log = logging.getLogger(__name__)


class CoordinatorHost:
    """`run` returns when the host is over, and says why. `makers`: by topic, what makes the core of a coordinator."""

    def __init__(
        self,
        env: Environment,
        spec: CoordinatorHostSpec,
        run: str,
        pid: int,
        find_controller: FindController,
        makers: Mapping[str, MakeCore],
    ) -> None:
        self._env = env
        self._spec = spec
        self._run = run
        self._pid = pid
        self._find_controller = find_controller
        self._makers = makers
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[str] = self._loop.create_future()
        self._tasks = BackgroundTasks(self._fail)
        self._news = asyncio.Event()
        self._endpoints: tuple[Endpoint, ...] = ()
        self._brokers = spec.brokers
        self._link = ClusterLink(env, _parsed(spec.brokers), find_brokers=self._find_brokers)
        self._coordinators: dict[tuple[bytes, int], HostedCoordinator] = {}
        self._topics: dict[bytes, str] = {}  # that have or had a coordinator here
        self._ended: list[CoordinatorEnded] = []  # that the controller has not heard of
        self._orders: Dispatch[Callable[[Any], Answer | Awaitable[Answer]]] = Dispatch({
            OpenCoordinator: self._open,
            StopCoordinator: self._stop_coordinator,
            StopCoordinatorHost: self._stop_host,
            KeepSecrets: self._keep_secrets,
        })

    async def run(self) -> str:
        """Live as this host until it is over. An error that nobody foresaw is raised."""
        server, self._endpoints = await self._env.listen(
            f"coordinators-{self._spec.broker_id}-{self._run}", "coordinator", self.handle
        )
        self._tasks.start(self._keep_beating())
        try:
            return await self._over
        finally:
            await self._stop_all()
            await self._tasks.close()
            await server.close(timeout=0.0)
            await self._link.close()

    def stop(self, reason: str) -> None:
        """End cleanly."""
        if not self._over.done():
            self._over.set_result(reason)

    def hosted(self) -> list[HostedCoordinator]:
        """Return all that are here, serving or not yet."""
        return list(self._coordinators.values())

    def readings(self) -> Iterator[Reading]:
        """Yield the metrics of its coordinators."""
        for coordinator in self._coordinators.values():
            yield from coordinator.readings()

    def _fail(self, error: BaseException) -> None:
        if not self._over.done():
            self._over.set_exception(error)

    async def _stop_all(self) -> None:
        coordinators = self.hosted()
        for each in coordinators:
            each.stop("its process ends")
        if coordinators:
            await asyncio.wait([each.over for each in coordinators], timeout=_ANSWER_SECONDS)

    async def _find_brokers(self) -> Sequence[Endpoint]:
        return _parsed(self._brokers)

    # --- being asked ----------------------------------------------------------------------------------------------

    def handle(self, request: Request) -> Answer | Awaitable[Answer]:
        """Answer what comes over any stream but that to the controller."""
        coordinator = self._coordinators.get((request.topic_id, request.partition))
        if coordinator is not None:
            return coordinator.handle(request)
        topic = self._topics.get(request.topic_id)
        if topic is None:  # an address of before may have become this process's
            raise UnknownPartition(request.topic_id.hex(), request.partition)
        raise CoordinatorNotReady(topic, request.partition)

    def _from_controller(self, request: Request) -> Answer | Awaitable[Answer]:
        return self._orders.handler_of(request.message)(request.message)

    def _keep_secrets(self, order: KeepSecrets) -> Answer:
        self._env.keys.adopt(order.secrets)
        return None

    # --- coordinators come and go ---------------------------------------------------------------------------------

    def _open(self, order: OpenCoordinator) -> Answer:
        key = order.topic_id, order.partition
        before = self._coordinators.get(key)
        if before is not None and (before.spec.producer_id, before.spec.epoch) == (order.producer_id, order.epoch):
            return None  # the controller asks a second time
        if order.topic not in self._makers or self._over.done():
            raise CoordinatorNotStarted(order.topic, order.partition, "this process makes none of its kind")
        if before is not None:
            before.stop("another one was placed")
        self._brokers = order.brokers
        self._topics[order.topic_id] = order.topic
        spec = CoordinatorSpec(
            order.topic, order.topic_id, order.partition, self._spec.broker_id, order.producer_id, order.epoch,
            order.retired_id, order.term, order.brokers, order.assignors,
        )  # fmt: skip
        coordinator = HostedCoordinator(self._env, spec, self._link, self._makers[order.topic], self._news.set)
        self._coordinators[key] = coordinator
        self._tasks.start(self._live(coordinator, before))
        return None

    async def _live(self, coordinator: HostedCoordinator, before: HostedCoordinator | None) -> None:
        spec, mistake = coordinator.spec, None
        try:
            why = await coordinator.run(before)
        except Exception as error:  # noqa: BLE001 (whatever it is, it is this coordinator's and no other's)
            _log.critical("The %s ends after a mistake of its own.", spec, exc_info=error)
            why, mistake = repr(error), error
        if self._coordinators.get(spec.id) is coordinator:
            del self._coordinators[spec.id]
        self._ended.append(CoordinatorEnded(*spec.id, spec.epoch, why))
        self._news.set()
        self.has_ended(coordinator, why, mistake)
        if self._link.is_over:
            self.stop("its link to the cluster is over")

    def has_ended(self, coordinator: HostedCoordinator, why: str, mistake: Exception | None) -> None:
        """Take note that a coordinator is over."""
        if mistake is None:
            _log.info("The %s is over: %s", coordinator.spec, why)

    async def _stop_coordinator(self, order: StopCoordinator) -> Answer:
        coordinator = self._coordinators.get((order.topic_id, order.partition))
        if coordinator is not None and coordinator.spec.epoch == order.epoch:
            coordinator.stop("the controller stopped it")
            await asyncio.wait([coordinator.over])
        return None

    def _stop_host(self, _: StopCoordinatorHost) -> Answer:
        self.stop("the controller stopped it")
        return None

    # --- signs of life --------------------------------------------------------------------------------------------

    async def _keep_beating(self) -> None:
        """Send heartbeats for ever. A controller that is not there is no reason to end."""
        while True:
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
        spec = self._spec
        hello = CoordinatorHostHello(
            spec.broker_id, spec.node_id, self._run, self._pid, tuple(map(str, self._endpoints))
        )
        await stream.request(hello, timeout=_ANSWER_SECONDS)
        while not stream.closed.done():
            self._news.clear()
            coordinators, ended = self.hosted(), tuple(self._ended)
            signs = tuple(CoordinatorSign(*each.spec.id, each.spec.epoch, each.is_serving) for each in coordinators)
            sent_at = self._loop.time()
            response = await stream.request(CoordinatorHeartbeat(signs, ended), timeout=_ANSWER_SECONDS)
            del self._ended[: len(ended)]
            self._take_answer(expected(response.message, CoordinatorsHeard, stream.peer), coordinators, sent_at)
            try:
                await asyncio.wait_for(self._news.wait(), HEARTBEAT_SECONDS)
            except asyncio.TimeoutError:
                continue

    def _take_answer(self, heard: CoordinatorsHeard, told_of: list[HostedCoordinator], sent_at: float) -> None:
        refused = set(heard.refused)
        for each in told_of:
            if (*each.spec.id, each.spec.epoch) in refused:
                each.stop("another one has been placed")
            else:
                each.is_sure_until(sent_at + heard.granted_ms / 1000)


def _parsed(endpoints: Sequence[str]) -> tuple[Endpoint, ...]:
    return tuple(map(Endpoint.parse, endpoints))
