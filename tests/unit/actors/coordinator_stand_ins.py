"""Processes for coordinators that do nothing but show signs of life to the real controller of a `ControlCluster`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from raylog.actors.kernel.stream_interface import Answer, Request, expected
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
from raylog.actors.protocol.coordinator_spec import CoordinatorHostSpec
from raylog.errors import ControllerNotReady, HostNotStarted, RemoteFailed, StreamError
from tests.simulator.world.machines import Process, SimEnvironment

if TYPE_CHECKING:
    from tests.unit.actors.control_cluster import ControlCluster

START_SECONDS = 0.05
COORDINATORS = 3  # of each topic


class CoordinatorStandIn:
    """One that was opened."""

    def __init__(self, host: CoordinatorHostStandIn, order: OpenCoordinator, *, is_serving: bool) -> None:
        self.host = host
        self.order = order
        self.is_serving = is_serving
        self.was_refused = False

    @property
    def is_running(self) -> bool:
        return self.host.is_running and self in self.host.coordinators

    def sign(self) -> CoordinatorSign:
        return CoordinatorSign(self.order.topic_id, self.order.partition, self.order.epoch, self.is_serving)

    def end(self, reason: str) -> None:
        """End by itself, as one that was fenced."""
        self.host.coordinators.remove(self)
        self.host.ended.append(CoordinatorEnded(*self.sign()[:3], reason))


class CoordinatorHostStandIn:
    def __init__(self, spec: CoordinatorHostSpec, all_opened: list[CoordinatorStandIn], *, is_serving: bool) -> None:
        self.spec = spec
        self.coordinators: list[CoordinatorStandIn] = []
        self.ended: list[CoordinatorEnded] = []
        self.was_stopped = False
        self.process: Process | None = None
        self._opened = all_opened
        self._is_serving = is_serving

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.is_alive

    @property
    def run_name(self) -> str:
        assert self.process is not None
        return f"run-{self.process.pid}"

    async def run(self, env: SimEnvironment, cluster: ControlCluster) -> None:
        while self.process is None:
            await asyncio.sleep(0)
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def handle(request: Request) -> Answer:
            asked = request.message
            if isinstance(asked, OpenCoordinator):
                self._open(asked)
            elif isinstance(asked, StopCoordinator):
                self.coordinators = [each for each in self.coordinators if each.sign()[:3] != asked_for(asked)]
            elif isinstance(asked, StopCoordinatorHost) and not over.done():
                self.was_stopped = True
                over.set_result(None)
            return None

        while not over.done():
            try:
                stream = await env.dial(await cluster.find_controller(), "coordinator", handle)
                await stream.request(self.hello(), timeout=3.0)
                while not stream.closed.done() and not over.done():
                    told = list(self.coordinators)
                    response = await stream.request(self.heartbeat(), timeout=3.0)
                    self.ended.clear()
                    self._take(expected(response.message, CoordinatorsHeard, stream.peer), told)
                    await asyncio.wait([over], timeout=0.1)
            except (RemoteFailed, StreamError, ControllerNotReady):
                pass  # it is looked for again
            await asyncio.sleep(0.1)

    def _open(self, order: OpenCoordinator) -> None:
        key = order.topic_id, order.partition
        self.coordinators = [each for each in self.coordinators if each.sign()[:2] != key]
        self.coordinators.append(CoordinatorStandIn(self, order, is_serving=self._is_serving))
        self._opened.append(self.coordinators[-1])

    def _take(self, heard: CoordinatorsHeard, told: list[CoordinatorStandIn]) -> None:
        for each in told:
            if each.sign()[:3] in heard.refused and each in self.coordinators:
                each.was_refused = True
                each.end("another one was placed")

    def hello(self) -> CoordinatorHostHello:
        assert self.process is not None
        spec, pid = self.spec, self.process.pid
        endpoints = (f"tcp:m{spec.broker_id}:{7000 + spec.broker_id}",)
        return CoordinatorHostHello(spec.broker_id, spec.node_id, self.run_name, pid, endpoints)

    def heartbeat(self) -> CoordinatorHeartbeat:
        return CoordinatorHeartbeat(tuple(each.sign() for each in self.coordinators), tuple(self.ended))


def asked_for(order: StopCoordinator) -> tuple[bytes, int, int]:
    return order.topic_id, order.partition, order.epoch


class CoordinatorStandIns:
    """The launcher: starts a process a moment after it was asked, unless one runs under that name."""

    def __init__(self, cluster: ControlCluster) -> None:
        self._cluster = cluster
        self.hosts: list[CoordinatorHostStandIn] = []
        self.all: list[CoordinatorStandIn] = []  # that were ever opened
        self.refuses = False
        self.is_serving = True  # those that are opened from now on

    def newest(self, partition: int) -> CoordinatorStandIn:
        return [each for each in self.all if each.order.partition == partition][-1]

    async def start(self, spec: CoordinatorHostSpec) -> None:
        if self.refuses:
            raise HostNotStarted(spec.broker_id, "the test says so")
        self._cluster.world.after(START_SECONDS, self._start, spec)

    async def stop(self, spec: CoordinatorHostSpec) -> None:
        for host in self._named(spec):
            assert host.process is not None
            host.process.kill()

    def _named(self, spec: CoordinatorHostSpec) -> list[CoordinatorHostStandIn]:
        name = spec.broker_id, spec.node_id
        return [each for each in self.hosts if each.is_running and (each.spec.broker_id, each.spec.node_id) == name]

    def _start(self, spec: CoordinatorHostSpec) -> None:
        machine = self._cluster.machines[spec.broker_id]
        if machine.is_up and not self._named(spec):
            host = CoordinatorHostStandIn(spec, self.all, is_serving=self.is_serving)
            self.hosts.append(host)
            host.process = machine.start(str(spec), host.run, self._cluster)
