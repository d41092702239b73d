"""A process that serves Kafka clients beside one broker: its core, a listener in front of it, and its broker behind it.

    open: link ──all topics──► gateway ──► listener        run: hello ──► broker ──GatewaysServe──► names for clients

What must stay true:
- It listens before it says hello, so clients are never sent to where nobody listens.
- What it asks for its clients it asks with their secret, so no client gets further than one of raylog's own (rules 33,
  36). The internal secret is for its broker, and for administration, which is decided here.
- Without its broker it goes on serving for a while: the leaders of partitions are other processes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from raylog.actors.kernel.background import BackgroundTasks
from raylog.actors.kernel.environment import Environment
from raylog.actors.kernel.metrics import KAFKA_BYTES_HELD, KAFKA_CONNECTIONS, Reading
from raylog.actors.kernel.stream_interface import Answer, Dispatch, Request
from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.protocol.gateway_messages import (
    FollowUsers,
    GatewayHello,
    GatewaysServe,
    NamedGateway,
    StopGateway,
    UsersChanged,
)
from raylog.actors.protocol.gateway_spec import SASL_PLAINTEXT, GatewaySpec, HostPort
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.secret_messages import KeepSecrets
from raylog.api.kafka.gateway import ClientConnection, Gateway
from raylog.api.kafka.listener import KafkaListener
from raylog.api.kafka.protocol.schemas import schema
from raylog.api.kafka.rules.known_users import KnownUsers
from raylog.api.kafka.rules.memory_budget import MemoryBudget
from raylog.api.kafka.rules.named_brokers import GatewayAddress, Gateways
from raylog.api.kafka.sasl_session import Sasl
from raylog.errors import KafkaAddressTaken, RaylogError

_ASK_SECONDS: Final = 5.0
_REDIAL_SECONDS: Final = 0.5
_LONELY_SECONDS: Final = 60.0  # without a broker; whoever starts that again starts this again
_log = logging.getLogger(__name__)


class Listener(Protocol):
    """The listener that accepts clients."""

    def __len__(self) -> int: ...
    async def open(self, host: str, port: int) -> int: ...
    async def close(self) -> None: ...


def make(env: Environment, spec: GatewaySpec, pid: int, new_session_id: Callable[[], int]) -> GatewayProcess:
    """Return the core of a gateway's process, with a listener on TCP."""
    return GatewayProcess(env, spec, pid, new_session_id, KafkaListener)


class GatewayProcess:
    """Serves once it is opened. `run` returns when the process is to end."""

    def __init__(
        self,
        env: Environment,
        spec: GatewaySpec,
        pid: int,
        new_session_id: Callable[[], int],
        listener: Callable[[Callable[[], ClientConnection], MemoryBudget], Listener],
    ) -> None:
        self._env = env
        self._spec = spec
        self._pid = pid
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[object] = self._loop.create_future()  # its result says why
        self._tasks = BackgroundTasks(self._end)
        self._gateways = Gateways()
        self.link = ClusterLink(env, [spec.broker], spec.node_id, for_clients=True)
        self._sasl: Sasl | None = None
        if spec.protocol == SASL_PLAINTEXT:
            users = KnownUsers(lambda: env.keys.secrets.internal[0])
            self._sasl = Sasl(users, env.off_loop, new_session_id)
        self.gateway = Gateway(
            self.link, lambda: self._gateways, new_session_id, broker_id=spec.broker_id, sasl=self._sasl
        )
        self._listener = listener(self.gateway.connection, self.gateway.budget)
        orders: dict[type[Message], Callable[[Any], None]] = {
            GatewaysServe: self._name,
            KeepSecrets: self._keep_secrets,
            StopGateway: self._stop,
        }
        if self._sasl is not None:
            orders[UsersChanged] = self._sasl.apply
        self._orders: Dispatch[Callable[[Any], None]] = Dispatch(orders)

    async def open(self) -> HostPort:
        """Listen, and return what clients are told. After an error the process is of no use.

        KafkaAddressTaken, KafkaSchemasMissing, ClusterUnreachable, PeerNotAdmitted.
        """
        schema("ApiVersionsRequest")  # without it no client could be understood
        await self.gateway.start()
        listen = self._spec.listen
        try:
            port = await self._listener.open(listen.host, listen.port)
        except OSError as error:
            raise KafkaAddressTaken(str(listen), self._spec.broker_id, error.strerror or str(error)) from error
        address = self._spec.address(port)
        self._tasks.start(self._keep_broker(str(address)))
        return address

    async def run(self) -> str:
        """Live until the broker says that it is over, or is gone for long. Returns why."""
        reason = await self._over
        await self._tasks.close()
        await self._listener.close()
        await self.gateway.close()
        await self.link.close()
        if isinstance(reason, BaseException):
            raise reason
        return str(reason)

    def readings(self) -> Iterator[Reading]:
        """Metrics of this process."""
        yield Reading(KAFKA_CONNECTIONS, (), len(self._listener))
        yield Reading(KAFKA_BYTES_HELD, (), self.gateway.budget.held)
        yield from self.gateway.requests.readings()

    def _end(self, reason: object) -> None:
        if not self._over.done():
            self._over.set_result(reason)

    # --- the broker -----------------------------------------------------------------------------------------------

    async def _keep_broker(self, address: str) -> None:
        last_seen = self._loop.time()
        while self._loop.time() - last_seen < _LONELY_SECONDS:
            try:
                stream = await self._env.dial(self._spec.broker, "gateway", self._from_broker)
                await stream.request(GatewayHello(self._pid, address), timeout=_ASK_SECONDS)
                if self._sasl is not None:
                    await stream.request(FollowUsers(), timeout=_ASK_SECONDS)
                await stream.closed
                last_seen = self._loop.time()
            except RaylogError as error:
                _log.info("The gateway of broker %d is without it: %s", self._spec.broker_id, error)
            await asyncio.sleep(_REDIAL_SECONDS * (1 + self._env.random.random()))
        self._end("its broker is gone")

    def _from_broker(self, request: Request) -> Answer:
        self._orders.handler_of(request.message)(request.message)
        return None

    def _name(self, told: GatewaysServe) -> None:
        self._gateways = Gateways(map(_address, told.gateways))

    def _keep_secrets(self, order: KeepSecrets) -> None:
        self._env.keys.adopt(order.secrets)

    def _stop(self, _: StopGateway) -> None:
        self._end("its broker stopped it")


def _address(named: NamedGateway) -> GatewayAddress:
    return GatewayAddress(named.broker_id, *HostPort.parse(named.address), named.rack)
