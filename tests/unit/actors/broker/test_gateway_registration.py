"""A gateway beside a broker: where it serves is in the metadata log, and it hears of all others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from raylog.actors.cluster.state import ClusterState
from raylog.actors.kernel.stream_interface import Answer, Request
from raylog.actors.protocol.gateway_messages import (
    FollowUsers,
    GatewayHello,
    GatewaysServe,
    NamedGateway,
    StopGateway,
    UsersChanged,
)
from raylog.errors import StreamError, TooManyBytesInFlight
from tests.simulator.world.machines import Process, SimEnvironment
from tests.simulator.world.world import World
from tests.unit.actors.control_cluster import CALM, ControlCluster
from tests.unit.actors.security.examples import credential


@pytest.fixture
def cluster() -> Iterator[ControlCluster]:
    with World(11, settings=CALM) as world:
        cluster = ControlCluster(world)
        cluster.form()
        world.run_for(2.0)  # by then directories have their first marks, and nothing is recorded unasked
        yield cluster


class Gateway:
    """A stand-in of the process: it says hello again and again, and notes what it is told."""

    def __init__(self, cluster: ControlCluster, broker_id: int, address: str) -> None:
        self.serve: list[tuple[NamedGateway, ...]] = []
        self.users: set[str] = set()
        self.is_stopped = False
        self._cluster = cluster
        self._broker_id = broker_id
        self._address = address
        self.process: Process = cluster.machines[broker_id].start(f"gateway-{broker_id}", self._main)

    async def _main(self, env: SimEnvironment) -> None:
        while not self.is_stopped:
            try:
                endpoint = self._cluster.brokers[self._broker_id].endpoints[0]
                stream = await env.dial(endpoint, "gateway", self._handle)
                await stream.request(GatewayHello(self.process.pid, self._address), timeout=5.0)
                await stream.request(FollowUsers(), timeout=5.0)
                await stream.closed
            except StreamError:
                pass  # its broker is away
            await asyncio.sleep(0.1)

    def _handle(self, request: Request) -> Answer:
        if isinstance(request.message, GatewaysServe):
            self.serve.append(request.message.gateways)
        elif isinstance(request.message, UsersChanged):
            self._hear_of(request.message)
        elif isinstance(request.message, StopGateway):
            self.is_stopped = True
        return None

    def _hear_of(self, told: UsersChanged) -> None:
        if told.is_first:
            self.users.clear()
        self.users |= {each.user for each in told.keys}
        self.users -= {user for user, _ in told.removed}


def known(cluster: ControlCluster, broker_id: int) -> list[str]:
    """What each broker knows of one's gateway."""
    return [broker.state.brokers[broker_id].gateway for broker in cluster.brokers.values()]


def test_all_hear_of_a_gateway_and_it_hears_of_all(cluster: ControlCluster) -> None:
    first = Gateway(cluster, 1, "10.0.0.1:9092")
    cluster.until(lambda: known(cluster, 1) == ["10.0.0.1:9092"] * 3)
    second = Gateway(cluster, 2, "10.0.0.2:9092")
    named = (NamedGateway(1, "10.0.0.1:9092", ""), NamedGateway(2, "10.0.0.2:9092", ""))
    for gateway in (first, second):
        cluster.until(lambda gateway=gateway: bool(gateway.serve) and gateway.serve[-1] == named)
    assert [each.kafka for each in cluster.admin.list_brokers()] == ["10.0.0.1:9092", "10.0.0.2:9092", ""]
    assert len(first.serve) == 3  # nothing, itself, both: it is told of changes only


def test_one_that_is_gone_is_taken_out_and_one_that_comes_back_soon_is_not(cluster: ControlCluster) -> None:
    gateway = Gateway(cluster, 1, "10.0.0.1:9092")
    cluster.until(lambda: known(cluster, 1) == ["10.0.0.1:9092"] * 3)
    version = cluster.brokers[2].version
    gateway.process.kill()
    cluster.world.run_for(5.0)
    again = Gateway(cluster, 1, "10.0.0.1:9092")
    cluster.world.run_for(20.0)
    assert cluster.brokers[2].version == version
    again.process.kill()
    cluster.world.run_for(5.0)
    assert known(cluster, 1) == ["10.0.0.1:9092"] * 3
    cluster.until(lambda: known(cluster, 1) == [""] * 3)


def test_one_that_outlives_its_broker_is_named_again_and_one_that_does_not_is_not(cluster: ControlCluster) -> None:
    gateways = {each: Gateway(cluster, each, f"10.0.0.{each}:9092") for each in (1, 2, 3)}
    told = gateways[3].serve
    cluster.until(lambda: bool(told) and len(told[-1]) == 3)
    gateways[2].process.kill()
    for broker_id in (1, 2):
        others = {1, 2, 3} - {broker_id}
        cluster.processes[broker_id].kill()
        cluster.until(lambda others=others: cluster.live_brokers() == others)
        # Nobody is sent to the gateway of a broker that is fenced.
        cluster.until(lambda others=others: {each.broker_id for each in told[-1]} == others)
        cluster.start_broker(broker_id)
        cluster.until(lambda: cluster.live_brokers() == {1, 2, 3})
        cluster.until(lambda: len(told[-1]) == 3)
    cluster.world.run_for(20.0)
    assert known(cluster, 1) == ["10.0.0.1:9092"] * 3
    assert known(cluster, 2) == [""] * 3
    assert [each.broker_id for each in told[-1]] == [1, 3]


def test_one_that_does_not_turn_is_killed_and_one_ends_with_its_broker(cluster: ControlCluster) -> None:
    hanging, other = Gateway(cluster, 1, "10.0.0.1:9092"), Gateway(cluster, 2, "10.0.0.2:9092")
    cluster.until(lambda: known(cluster, 1) == ["10.0.0.1:9092"] * 3)
    hanging.process.pause()
    cluster.until(lambda: not hanging.process.is_alive)
    assert other.process.is_alive
    closing = cluster.processes[2].run(cluster.brokers[2].close())
    cluster.until(closing.done)
    cluster.until(lambda: other.is_stopped)


def test_a_snapshot_has_the_gateways(cluster: ControlCluster) -> None:
    Gateway(cluster, 1, "10.0.0.1:9092")
    cluster.until(lambda: known(cluster, 1) == ["10.0.0.1:9092"] * 3)
    state, again = cluster.brokers[1].state, ClusterState()
    for offset, record in enumerate(state.to_records()):
        again.apply(record, offset)
    assert again.brokers == state.brokers


def test_what_a_stream_refuses_is_told_later(cluster: ControlCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.ask(cluster.admin.security.create_user("ann", [credential("ann")]))
    gateway = Gateway(cluster, 1, "10.0.0.1:9092")
    cluster.until(lambda: gateway.users == {"ann"})
    stream = cluster.brokers[1]._gateway.stream

    def refuse(message: Any) -> None:
        raise TooManyBytesInFlight(1, 2, 3)

    with monkeypatch.context() as patch:
        patch.setattr(stream, "send", refuse)
        cluster.ask(cluster.admin.security.delete_user("ann"))
        Gateway(cluster, 2, "10.0.0.2:9092")
        cluster.until(lambda: known(cluster, 2) == ["10.0.0.2:9092"] * 3)
        cluster.world.run_for(5.0)
    assert gateway.users == {"ann"}
    cluster.world.run_for(2.0)
    assert not gateway.users
    assert [each.broker_id for each in gateway.serve[-1]] == [1, 2]


def test_a_gateway_hears_of_users_while_the_controller_is_asked(
    cluster: ControlCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    registration = cluster.brokers[1]._gateway
    asked: list[Any] = []

    def never(message: Any) -> asyncio.Future[Any]:
        asked.append(message)
        return asyncio.get_running_loop().create_future()

    monkeypatch.setattr(registration, "_ask", never)
    gateway = Gateway(cluster, 1, "10.0.0.1:9092")
    cluster.until(lambda: bool(asked))
    cluster.ask(cluster.admin.security.create_user("ann", [credential("ann")]))
    cluster.world.run_for(1.0)
    assert gateway.users == {"ann"}
    assert len(asked) == 1
