"""A gateway in a simulated cluster, and a client of Kafka's protocol that speaks to it through our codec."""

from __future__ import annotations

import errno
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.protocol.gateway_spec import PLAINTEXT, GatewaySpec, HostPort
from raylog.api.kafka.administration import Administration
from raylog.api.kafka.gateway import ClientConnection, Gateway
from raylog.api.kafka.gateway_process import GatewayProcess
from raylog.api.kafka.protocol.api_versions import SERVED, has_flexible_header
from raylog.api.kafka.protocol.codecs import decoder, read_answer_header, read_request_header, request_frame
from raylog.api.kafka.protocol.message_types import message_type
from raylog.api.kafka.rules.memory_budget import MemoryBudget
from raylog.errors import KafkaAddressTaken
from tests.simulator.cluster.simulated_cluster import SimulatedCluster
from tests.simulator.world.machines import Process, SimEnvironment

GATEWAY_PORT: Final = 9092
_KEYS: Final = {api.name: api for api in SERVED.values()}
_START_SECONDS: Final = 60.0
_CALL_SECONDS: Final = 120.0
_T = TypeVar("_T")


class KafkaClient:
    """One connection. Each request is a frame, and each answer is taken apart again."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self._number = 0

    async def ask(self, name: str, version: int, **fields: Any) -> Any:
        """Return the answer; None where there is none."""
        self._number = sent = self._number + 1
        message = message_type(f"{name}Request")(**fields)
        frame = b"".join(request_frame(name, version, message, correlation_id=sent, client_id="model"))
        request = bytearray(frame[4:])
        header = read_request_header(request, has_flexible_header)
        parts = await self.connection.serve(header, request)
        if parts is None:
            return None
        answer = b"".join(parts)
        assert int.from_bytes(answer[:4], "big") == len(answer) - 4
        api = _KEYS[name]
        number, begin = read_answer_header(answer[4:], api.key, api.is_flexible(version))
        assert number == sent
        return decoder(f"{name}Response", version)(answer[4:], begin)


class Listener:
    """Accepts nobody; a test asks it for connections."""

    is_taken = False

    def __init__(self, connection: Callable[[], ClientConnection], _budget: MemoryBudget) -> None:
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


class BesideBroker:
    """A gateway's process beside one broker, as that runs it: with the broker's secrets."""

    def __init__(self, cluster: SimulatedCluster, number: int, protocol: str = PLAINTEXT) -> None:
        self._protocol = protocol
        self.reason: str | None = None
        self.problem: KafkaAddressTaken | None = None
        self.address: HostPort | None = None
        self.listener: Listener | None = None
        self.core: GatewayProcess | None = None
        self._cluster = cluster
        self._number = number
        self.process: Process = cluster.homes[number].machine.start(f"gateway-{number}", self._main)

    def _listening(self, connection: Callable[[], ClientConnection], budget: MemoryBudget) -> Listener:
        self.listener = Listener(connection, budget)
        return self.listener

    async def _main(self, env: SimEnvironment) -> None:
        broker = self._cluster.homes[self._number].endpoint
        assert broker is not None
        host = f"10.0.0.{self._number}"
        listen = HostPort("0.0.0.0", GATEWAY_PORT)
        spec = GatewaySpec("default", self._number, broker, "", host, listen, None, self._protocol)
        pid = self.process.pid
        self.core = core = GatewayProcess(env, spec, pid, lambda: env.random.getrandbits(31), self._listening)
        try:
            self.address = await core.open()
        except KafkaAddressTaken as error:
            self.problem = error
            return
        self.reason = await core.run()

    @property
    def link(self) -> ClusterLink:
        assert self.core is not None
        return self.core.link

    @property
    def gateway(self) -> Gateway:
        assert self.core is not None
        return self.core.gateway

    def client(self) -> KafkaClient:
        assert self.listener is not None
        return KafkaClient(self.listener.connection())

    @property
    def administration(self) -> Administration:
        """Asks the controller as the gateway does, for what no Kafka client asks yet."""
        link = self.link

        async def made() -> Administration:
            return Administration(link)

        return self.run(made())

    def run(self, coroutine: Coroutine[Any, Any, _T], seconds: float = _CALL_SECONDS) -> _T:
        """Do something in its process."""
        done = self.process.run(coroutine)
        assert self._cluster.world.run_until_idle_or(done.done, seconds), "it does not end"
        return done.result()

    def brokers(self) -> list[tuple[int, str, int]]:
        """Return the brokers that its clients are told of."""
        answer = self.run(self.client().ask("Metadata", 12, topics=[]))
        return [(each.node_id, each.host, each.port) for each in answer.brokers]


def gateways_beside(cluster: SimulatedCluster, *numbers: int) -> list[BesideBroker]:
    """Start gateways, and return them once their clients are told of all of them."""
    gateways = [BesideBroker(cluster, number) for number in numbers]
    started = cluster.world.run_until_idle_or(lambda: all(each.address for each in gateways), _START_SECONDS)
    assert started, "no gateway starts"
    while any(len(each.brokers()) < len(gateways) for each in gateways):
        cluster.world.run_for(0.5)
    return gateways
