"""Three real replicas of one partition, each in a host of its own on this machine, and nobody to disturb them.

The bench is their broker and controller: it takes their hellos, tells them once who leads, and tells clients too. Where
it is asked to, a gateway for Kafka's clients is beside them.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import uvloop

from bench.gateway.process_profile import Profiles
from raylog.actors.kernel.stream_interface import Answer, Request, Response, Stream
from raylog.actors.kernel.stream_requests import refuse_all
from raylog.actors.machine.actor_address import Address
from raylog.actors.machine.cluster_access import ClusterAccess
from raylog.actors.machine.kept_memory import keep_memory
from raylog.actors.machine.real_environment import Place, RealEnvironment
from raylog.actors.protocol.cluster_secrets import ClusterSecrets
from raylog.actors.protocol.control_messages import (
    Assign,
    BrokerMetadata,
    GetMetadata,
    Metadata,
    PartitionMetadata,
    ReplicaAddress,
    TopicMetadata,
)
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.gateway_messages import GatewayHello, GatewaysServe, NamedGateway
from raylog.actors.protocol.gateway_spec import ANY_PORT, GatewaySpec, HostPort
from raylog.actors.protocol.host_messages import OWN, HostHello, OpenReplicas, ReplicaHello, ReplicaToOpen
from raylog.actors.protocol.replica_spec import HostSpec
from raylog.actors.replica.host import ReplicaHost
from raylog.api.kafka.gateway_process import make
from raylog.config import TopicConfig

TOPIC = "bench"
TOPIC_ID = b"topic of a bench"
_NODE = "node"
_DEFAULTS = TopicConfig()
_METADATA_VERSION = 1
_BROKER_ID = 1
_SESSION_BITS = 31
_START_SECONDS = 60.0


@dataclass(frozen=True)
class BenchCluster:
    leader: Stream
    folder: str  # of the logs
    access: ClusterAccess  # for producers and consumers
    pids: Mapping[str, int]  # of its processes: leader, follower 2, …, gateway
    kafka: str  # where the gateway serves


@asynccontextmanager
async def replicated_partition(settings: Mapping[str, str], count: int = 3) -> AsyncIterator[tuple[Stream, str]]:
    """(a stream to the leader, the folder of the logs)."""
    async with bench_cluster(settings, count) as cluster:
        yield cluster.leader, cluster.folder


@asynccontextmanager
async def bench_cluster(
    settings: Mapping[str, str], count: int = 3, *, kafka: bool = False, profiles: Profiles | None = None
) -> AsyncIterator[BenchCluster]:
    """Yield a cluster. `kafka`: with a gateway. `profiles`: where its processes leave what they spend their time on."""
    folder = tempfile.mkdtemp(prefix="raylog-bench-", dir=os.environ.get("RAYLOG_BENCH_DIR"))
    place = Place(f"bench-{os.getpid()}", ClusterSecrets.draw(), "127.0.0.1")
    env = RealEnvironment(place, None)
    broker = _Broker(settings, folder, count)
    server, endpoints = await env.listen("broker", "broker", broker.take)
    broker.endpoints = endpoints
    context = multiprocessing.get_context("spawn")
    processes = {}

    def start(name: str, target: Callable[..., None], spec: object) -> None:
        processes[name] = context.Process(target=target, args=(spec, place, name, profiles), daemon=True)
        processes[name].start()

    try:
        for number in range(1, count + 1):
            spec = HostSpec(place.cluster_id, number, number, _NODE, endpoints[0])
            start("leader" if number == 1 else f"follower {number}", _host, spec)
        await _until(lambda: len(broker.opened) == count, "all replicas are open")
        addresses = tuple(
            ReplicaAddress(number, number, hello.endpoints) for number, (hello, _) in sorted(broker.hellos.items())
        )
        isr = tuple((number, number) for number in sorted(broker.hellos))
        assigned = Assign(TOPIC, TOPIC_ID, 0, 1, 1, 0, 0, isr, addresses, max(1, count - 1), tuple(settings.items()), 1)
        for _, stream in broker.hellos.values():
            await stream.request(assigned)
        await asyncio.sleep(0.5)
        if kafka:
            listen = HostPort(place.host, ANY_PORT)
            start("gateway", _gateway, GatewaySpec("bench", _BROKER_ID, endpoints[0], _NODE, place.host, listen, None))
            await _until(lambda: bool(broker.served), "the gateway serves")
        leader = await env.dial(Endpoint.parse(broker.hellos[1][0].endpoints[0]), "bench", refuse_all)
        address = Address(_NODE, tuple(map(str, endpoints)))
        access = ClusterAccess(place.cluster_id, place.secrets.for_clients(), {_BROKER_ID: address})
        pids = {name: process.pid for name, process in processes.items() if process.pid is not None}
        yield BenchCluster(leader, folder, access, pids, "".join(broker.served))
        await leader.close()
    finally:
        for process in processes.values():
            process.kill()
            process.join()
        await server.close(0)
        shutil.rmtree(folder)


async def _until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"It took more than {_START_SECONDS:.0f} s until {what}")
        await asyncio.sleep(0.01)


class _Broker:
    """The bench, as the broker and the controller of all processes."""

    def __init__(self, settings: Mapping[str, str], folder: str, count: int) -> None:
        self.hellos: dict[int, tuple[HostHello, Stream]] = {}
        self.opened: set[int] = set()
        self.served: list[str] = []  # where the gateway serves
        self.endpoints: tuple[Endpoint, ...] = ()
        self._settings = settings
        self._folder = folder
        self._count = count

    def take(self, request: Request) -> Answer | Awaitable[Answer]:
        message = request.message
        if isinstance(message, HostHello):
            number = message.incarnation
            self.hellos[number] = message, request.stream
            directory = f"{self._folder}/broker-{number}/{TOPIC}-0"
            order = ReplicaToOpen(TOPIC, TOPIC_ID, 0, number, tuple(self._settings.items()), directory)
            request.stream.send(OpenReplicas(OWN, (order,)))
        if isinstance(message, ReplicaHello):
            self.opened.add(message.incarnation)
        if isinstance(message, GatewayHello):
            self.served.append(message.address)
            request.stream.send(GatewaysServe((NamedGateway(_BROKER_ID, message.address, ""),)))
        if isinstance(message, GetMetadata):
            return _metadata(message, self.hellos[1][0].endpoints, self.endpoints, self._count)
        return None


async def _metadata(asked: GetMetadata, leader: tuple[str, ...], broker: tuple[Endpoint, ...], count: int) -> Response:
    if asked.newer_than >= _METADATA_VERSION:
        await asyncio.sleep(asked.max_wait_ms / 1000)
    members = tuple(range(1, count + 1))
    partitions = (PartitionMetadata(0, 1, 0, members, members, leader, _NODE),)
    topic = TopicMetadata(TOPIC, TOPIC_ID, partitions, _DEFAULTS.batch_format, _DEFAULTS.max_batch_bytes)
    brokers = (BrokerMetadata(_BROKER_ID, _NODE, "", tuple(map(str, broker))),)
    return Response(Metadata(_METADATA_VERSION, "bench", (topic,), brokers, ()))


def _host(spec: HostSpec, place: Place, name: str, profiles: Profiles | None) -> None:
    keep_memory()

    async def live() -> None:
        if profiles is not None:
            profiles.listen(name)
        await ReplicaHost(RealEnvironment(place, None), spec, os.getpid()).run()

    uvloop.run(live())


def _gateway(spec: GatewaySpec, place: Place, name: str, profiles: Profiles | None) -> None:
    keep_memory()

    async def live() -> None:
        if profiles is not None:
            profiles.listen(name)
        gateway = make(RealEnvironment(place, None), spec, os.getpid(), lambda: secrets.randbits(_SESSION_BITS))
        await gateway.open()
        await gateway.run()

    uvloop.run(live())
