"""A gateway in a simulated cluster, and a client of Kafka's protocol that speaks to it through our codec."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from raylog.actors.kernel.environment import Environment
from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.protocol.endpoint import Endpoint
from raylog.api.kafka.administration import Administration
from raylog.api.kafka.gateway import ClientConnection, Gateway
from raylog.api.kafka.protocol.api_versions import SERVED, has_flexible_header
from raylog.api.kafka.protocol.codecs import decoder, read_answer_header, read_request_header, request_frame
from raylog.api.kafka.protocol.message_types import message_type
from raylog.api.kafka.rules.named_brokers import GatewayAddress, Gateways
from tests.simulator.cluster.simulated_cluster import SimulatedCluster
from tests.simulator.world.machines import Process
from tests.simulator.world.world import World

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


class GatewayProcess:
    """A process with a gateway, beside the brokers. `run` does something in it and returns what it returns."""

    def __init__(self, world: World, cluster: SimulatedCluster, machine: str = "beside-a-broker") -> None:
        self._world = world
        self._cluster = cluster
        self.gateway: Gateway | None = None
        self.link: ClusterLink | None = None
        self.process: Process = world.add_machine(machine).start("gateway", self._main)
        assert world.run_until_idle_or(lambda: self.gateway is not None, _START_SECONDS), "no gateway starts"

    def addresses(self) -> Gateways:
        return Gateways(GatewayAddress(each, f"machine-{each}", 9092) for each in self._cluster.homes)

    async def _main(self, env: Environment) -> None:
        self.link = link = ClusterLink(env, self._cluster.broker_endpoints(), find_brokers=self._find_brokers)
        gateway = Gateway(link, self.addresses, lambda: env.random.getrandbits(31), broker_id=1)
        await gateway.start()
        self.gateway = gateway
        await asyncio.get_running_loop().create_future()

    async def _find_brokers(self) -> list[Endpoint]:
        return self._cluster.broker_endpoints()

    def client(self) -> KafkaClient:
        assert self.gateway is not None
        return KafkaClient(self.gateway.connection())

    @property
    def administration(self) -> Administration:
        """Asks the controller as the gateway does, for what no Kafka client asks yet."""
        assert self.link is not None
        link = self.link

        async def made() -> Administration:
            return Administration(link)

        return self.run(made())

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        done = self.process.run(coroutine)
        assert self._world.run_until_idle_or(done.done, _CALL_SECONDS), "it does not end"
        return done.result()
