"""A broker as a Ray actor, pinned to the node that its data directory is on.

What must stay true:
- It holds a piece of its node's `raylog_broker` resource, where the node has it: an autoscaler leaves the node alone.
- Ray does not restart it. `broker_fleet.py` makes it again, since only the fleet knows whether its node still has the
  directory.
- A broker that has had a directory runs in no other one. A blank directory is the mount point of a missing disk, or has
  forgotten what this broker promised (rule 17).
- `ready` raises what keeps the broker from running, as the typed error that it was.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import threading
from dataclasses import dataclass
from functools import partial
from typing import Final

from raylog.actors.broker.broker import Broker, BrokerSpec
from raylog.actors.housekeeping.housekeeper import HousekeeperSpec
from raylog.actors.machine.actor_address import Address
from raylog.actors.machine.loop_thread import CoreThread
from raylog.actors.machine.own_processes import outlive_others, take_normal_priority
from raylog.actors.machine.real_environment import Place, RealEnvironment
from raylog.actors.machine.secret_files import keep_secrets, read_secrets
from raylog.actors.machine.socket_directory import remove_dead_sockets, socket_directory, sweep_beside
from raylog.actors.machine.tls import RayTls
from raylog.actors.on_ray.actor_exit import end_process
from raylog.actors.on_ray.controller_search import ControllerSearch
from raylog.actors.on_ray.directory_holder import sign
from raylog.actors.on_ray.gateway_keeper import RayGateway
from raylog.actors.on_ray.housekeeper_keeper import RayHousekeeper
from raylog.actors.on_ray.metrics import RayMetrics
from raylog.actors.protocol.gateway_spec import GatewaySpec, KafkaListeners
from raylog.errors import RaylogError
from raylog.storage.directory.data_directory import BrokerIdentity, Claim, DataDirectory

_START_SECONDS: Final = 30.0
_IDLE_SECONDS: Final = 60.0  # of a housekeeping process, which is made again when there is work
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BrokerPost:
    """The arguments of a broker actor."""

    cluster: str  # its name
    broker_id: int
    node_id: str
    rack: str
    directory: str
    place: Place
    first_voters: tuple[int, ...] = ()  # where this broker takes part in forming the cluster
    may_claim: bool = False  # its number is new: its directory is to be blank still
    kafka: KafkaListeners | None = None  # with those of this broker; None: it has no gateway


class BrokerActor:
    def __init__(self, post: BrokerPost) -> None:
        outlive_others()
        take_normal_priority()
        self._post = post
        self._problem: RaylogError | None = None
        self._gateway: RayGateway | None = None
        self._core = CoreThread(post.place.cluster_id)
        try:
            sockets = self._sockets = socket_directory(post.place.cluster_id, post.place.host)
            remove_dead_sockets(sockets)
            threading.Thread(target=sweep_beside, args=[sockets], name="socket sweep", daemon=True).start()
            _claim_directory(post)
            self._broker = self._core.do(self._started(), _START_SECONDS)
        except RaylogError as error:
            _log.error("Broker %d cannot run: %s", post.broker_id, error)
            self._problem = error
            return
        self._core.start(_until_over(self._broker), self._over)
        RayMetrics(self._core, self._broker.readings, {"cluster": post.cluster, "broker": str(post.broker_id)})

    def __repr__(self) -> str:
        return f"broker {self._post.broker_id}"

    async def ready(self) -> Address:
        """Return where it accepts streams, or raise what keeps it from running."""
        if self._problem is not None:
            raise self._problem
        return Address(self._post.node_id, tuple(map(str, self._broker.endpoints)))

    async def gateway_ready(self) -> None:
        """Return once its gateway serves Kafka clients, if it has one, or raise what keeps that from serving."""
        if self._gateway is not None:
            await self._core.call(self._gateway.ready())

    async def turn(self) -> None:
        """Answer once both of its event loops run."""
        await self._core.call(asyncio.sleep(0))

    async def stop(self) -> None:
        """Have all its replicas close their logs, and end."""
        if self._problem is None:
            await self._core.call(self._broker.close())

    async def _started(self) -> Broker:
        post, place = self._post, self._post.place
        spec = BrokerSpec(
            place.cluster_id, post.broker_id, secrets.token_hex(8), post.node_id, place.host, post.rack, post.directory,
            cores=os.cpu_count() or 1,
        )  # fmt: skip
        env = RealEnvironment(place, RayTls.from_environment())
        held = read_secrets(post.directory)
        if held is not None:
            env.keys.adopt(held)
        find = ControllerSearch(post.cluster, post.node_id, env.keys).find
        broker = await Broker.open(env, spec, find, partial(keep_secrets, post.directory))
        sign(post.directory, post.cluster)
        housekeeping = HousekeeperSpec(
            post.broker_id, broker.endpoints[0], post.directory, post.cluster, idle_seconds=_IDLE_SECONDS
        )
        housekeeper = RayHousekeeper(post.cluster, post.node_id, housekeeping, place, env.keys)
        keeping = housekeeper.keep(lambda: not broker.is_closing, broker.housekeeper_wanted)
        self._housekeeping = asyncio.ensure_future(keeping)
        if post.kafka is not None:
            gateway = GatewaySpec(
                post.cluster, post.broker_id, broker.endpoints[0], post.node_id, place.host,
                post.kafka.listen, post.kafka.advertised, post.kafka.protocol,
            )  # fmt: skip
            self._gateway = RayGateway(post.cluster, post.node_id, gateway, place, env.keys, post.kafka.maker)
            self._serving_kafka = asyncio.ensure_future(self._gateway.keep(lambda: not broker.is_closing))
        return broker

    def _over(self, task: asyncio.Task[None]) -> None:
        if task.exception() is not None:
            _log.critical("%r: it ends after a mistake of its own.", self, exc_info=task.exception())
        with contextlib.suppress(OSError):  # that of a host which was killed as it began; a start would remove it too
            remove_dead_sockets(self._sockets)
        end_process()


async def _until_over(broker: Broker) -> None:
    futures: list[asyncio.Future[None] | asyncio.Future[BaseException]] = [broker.failed, broker.stopped]
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


def _claim_directory(post: BrokerPost) -> None:
    """Make the directory this broker's, if it is blank and may be, and write the cluster's secrets to it."""
    identity = BrokerIdentity(post.place.cluster_id, post.broker_id)
    claim = Claim(secrets.token_hex(16), post.first_voters) if post.may_claim else None
    directory = DataDirectory.open(post.directory, identity, claim=claim)
    try:
        held = read_secrets(post.directory)
        if held is None or held.version <= post.place.secrets.version:
            keep_secrets(post.directory, post.place.secrets)
    finally:
        directory.close()
