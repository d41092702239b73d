"""A gateway as a process beside a broker runs it, with a listener that a test stands in for."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

pytest.importorskip("kafka", reason="the extra `kafka` is not installed")

from raylog.actors.protocol.gateway_spec import GatewaySpec, HostPort
from raylog.api.kafka.gateway import ClientConnection
from raylog.api.kafka.gateway_process import GatewayProcess
from raylog.errors import KafkaAddressTaken
from tests.simulator.clients.kafka_clients import KafkaClient
from tests.simulator.cluster.simulated_cluster import SimulatedCluster
from tests.simulator.world.machines import Process, SimEnvironment
from tests.simulator.world.world import World
from tests.unit.actors.link_world import CALM

_PORT: Final = 9092


class Listener:
    """Accepts nobody; a test asks it for connections."""

    is_taken = False

    def __init__(self, connection: Callable[[], ClientConnection]) -> None:
        self.connection = connection
        self.is_open = False

    def __len__(self) -> int:
        return 7

    async def open(self, _host: str, port: int) -> int:
        if self.is_taken:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        self.is_open = True
        return port

    async def close(self) -> None:
        self.is_open = False


class Beside:
    """A gateway beside one broker."""

    def __init__(self, cluster: SimulatedCluster, number: int) -> None:
        self.reason: str | None = None
        self.problem: KafkaAddressTaken | None = None
        self.address: HostPort | None = None
        self.listener: Listener | None = None
        self.gateway: GatewayProcess | None = None
        self._cluster = cluster
        self._number = number
        self.process: Process = cluster.homes[number].machine.start(f"gateway-{number}", self._main)

    def _listening(self, connection: Callable[[], ClientConnection]) -> Listener:
        self.listener = Listener(connection)
        return self.listener

    async def _main(self, env: SimEnvironment) -> None:
        broker = self._cluster.broker_endpoints()[self._number - 1]
        host = f"10.0.0.{self._number}"
        spec = GatewaySpec("default", self._number, broker, "", host, HostPort("0.0.0.0", _PORT), None)
        pid = self.process.pid
        self.gateway = gateway = GatewayProcess(env, spec, pid, lambda: env.random.getrandbits(31), self._listening)
        try:
            self.address = await gateway.open()
        except KafkaAddressTaken as error:
            self.problem = error
            return
        self.reason = await gateway.run()

    def brokers(self) -> list[tuple[int, str, int]]:
        """Return the brokers that its clients are told of."""
        assert self.listener is not None
        asked = self.process.run(KafkaClient(self.listener.connection()).ask("Metadata", 12, topics=[]))
        assert self._cluster.world.run_until_idle_or(asked.done, 10.0)
        answer: Any = asked.result()
        return [(each.node_id, each.host, each.port) for each in answer.brokers]


@pytest.fixture
def cluster() -> Iterator[SimulatedCluster]:
    with World(5, settings=CALM) as world:
        cluster = SimulatedCluster(world)
        cluster.form(3)
        yield cluster
        cluster.is_over = True


def test_gateways_tell_their_clients_of_each_other(cluster: SimulatedCluster) -> None:
    numbers = sorted(cluster.homes)[:2]
    gateways = [Beside(cluster, number) for number in numbers]
    assert cluster.world.run_until_idle_or(lambda: all(each.address is not None for each in gateways), 30.0)
    assert gateways[0].address == HostPort(f"10.0.0.{numbers[0]}", _PORT)
    cluster.world.run_for(5.0)
    expected = [(number, f"10.0.0.{number}", _PORT) for number in numbers]
    assert [each.brokers() for each in gateways] == [expected, expected]
    assert gateways[0].gateway is not None
    read = {(each.metric.name, each.tags): each.value for each in gateways[0].gateway.readings()}
    assert read["raylog_kafka_connections", ()] == 7
    assert read["raylog_kafka_requests", ("Metadata",)] == 1
    assert 10 < read["raylog_kafka_bytes_in", ("Metadata",)] < read["raylog_kafka_bytes_out", ("Metadata",)]
    assert read["raylog_kafka_request_seconds_count", ("Metadata",)] == 1
    assert not any(name == "raylog_kafka_errors" for name, _ in read)


def test_a_port_that_is_taken_is_said_as_what_it_is(cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Listener, "is_taken", True)
    gateway = Beside(cluster, 1)
    assert cluster.world.run_until_idle_or(lambda: gateway.problem is not None, 30.0)
    assert str(gateway.problem).startswith("The gateway of broker 1 cannot listen at 0.0.0.0:9092: Address already")


def test_it_serves_on_without_its_broker_and_ends_when_that_does_not_come_back(cluster: SimulatedCluster) -> None:
    gateway = Beside(cluster, 1)
    assert cluster.world.run_until_idle_or(lambda: gateway.address is not None, 30.0)
    cluster.world.run_for(5.0)
    cluster.is_over = True  # nobody starts the broker again
    home = cluster.homes[1]
    assert home.process is not None
    home.process.kill()
    cluster.world.run_for(30.0)
    assert gateway.listener is not None
    assert gateway.listener.is_open
    assert gateway.brokers() == [(1, "10.0.0.1", _PORT)]
    assert cluster.world.run_until_idle_or(lambda: gateway.reason is not None, 60.0)
    assert (gateway.reason, gateway.listener.is_open) == ("its broker is gone", False)
