"""Coordinator processes that do nothing but show signs of life to the real controller of a `ControlCluster`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from raylog.actors.kernel.stream_interface import Answer, Request
from raylog.actors.protocol.coordinator_messages import CoordinatorHeartbeat, StopCoordinator
from raylog.actors.protocol.coordinator_spec import CoordinatorSpec
from raylog.errors import ControllerNotReady, CoordinatorNotStarted, RemoteFailed, StaleCoordinator, StreamError
from tests.simulator.world.machines import Process, SimEnvironment

if TYPE_CHECKING:
    from tests.unit.actors.control_cluster import ControlCluster

START_SECONDS = 0.05


class CoordinatorStandIn:
    def __init__(self, spec: CoordinatorSpec) -> None:
        self.spec = spec
        self.is_serving = True
        self.was_replaced = self.was_stopped = False
        self.process: Process | None = None

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.is_alive

    async def run(self, env: SimEnvironment, cluster: ControlCluster) -> None:
        while self.process is None:
            await asyncio.sleep(0)
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def handle(request: Request) -> Answer:
            self.was_stopped = isinstance(request.message, StopCoordinator)
            over.set_result(None)
            return None

        while not (self.was_replaced or self.was_stopped):
            try:
                stream = await env.dial(await cluster.find_controller(), "coordinator", handle)
                while not stream.closed.done():
                    await stream.request(self.heartbeat(), timeout=3.0)
                    await asyncio.wait([over], timeout=0.3)
                    if over.done():
                        return
            except RemoteFailed as error:
                self.was_replaced = isinstance(error.error, StaleCoordinator)
            except (StreamError, ControllerNotReady):
                pass  # it is looked for again
            await asyncio.sleep(0.1)

    def heartbeat(self) -> CoordinatorHeartbeat:
        spec = self.spec
        assert self.process is not None
        endpoints = (f"tcp:m{spec.broker_id}:{7000 + spec.partition}",)
        return CoordinatorHeartbeat(
            spec.topic_id, spec.partition, spec.epoch, self.process.pid, endpoints, self.is_serving
        )


class CoordinatorStandIns:
    """The launcher: starts one a moment after it was asked."""

    def __init__(self, cluster: ControlCluster) -> None:
        self._cluster = cluster
        self.all: list[CoordinatorStandIn] = []
        self.refuses = False
        self.is_serving = True  # those that are started from now on

    def newest(self, partition: int) -> CoordinatorStandIn:
        return [each for each in self.all if each.spec.partition == partition][-1]

    async def start(self, spec: CoordinatorSpec) -> None:
        if self.refuses:
            raise CoordinatorNotStarted(spec.topic, spec.partition, "the test says so")
        self._cluster.world.after(START_SECONDS, self._start, spec)

    async def stop(self, spec: CoordinatorSpec) -> None:
        """Ray's word may come late, or never."""

    def _start(self, spec: CoordinatorSpec) -> None:
        stand_in = CoordinatorStandIn(spec)
        stand_in.is_serving = self.is_serving
        self.all.append(stand_in)
        machine = self._cluster.machines[spec.broker_id]
        if machine.is_up:
            stand_in.process = machine.start(str(spec), stand_in.run, self._cluster)
