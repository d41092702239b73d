"""Three real replicas of one partition, each in a host of its own on this machine, and nobody to disturb them.

The bench is their broker and controller: it takes their hellos, tells them once who leads, and tells clients too.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import uvloop

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
from raylog.actors.protocol.host_messages import OWN, HostHello, OpenReplicas, ReplicaHello, ReplicaToOpen
from raylog.actors.protocol.replica_spec import HostSpec
from raylog.actors.replica.host import ReplicaHost
from raylog.config import TopicConfig

TOPIC = "bench"
TOPIC_ID = b"topic of a bench"
_NODE = "node"
_DEFAULTS = TopicConfig()
_METADATA_VERSION = 1


@dataclass(frozen=True)
class BenchCluster:
    leader: Stream
    folder: str  # of the logs
    access: ClusterAccess  # for producers and consumers


@asynccontextmanager
async def replicated_partition(settings: Mapping[str, str], count: int = 3) -> AsyncIterator[tuple[Stream, str]]:
    """(a stream to the leader, the folder of the logs)."""
    async with bench_cluster(settings, count) as cluster:
        yield cluster.leader, cluster.folder


@asynccontextmanager
async def bench_cluster(settings: Mapping[str, str], count: int = 3) -> AsyncIterator[BenchCluster]:
    folder = tempfile.mkdtemp(prefix="raylog-bench-", dir=os.environ.get("RAYLOG_BENCH_DIR"))
    place = Place(f"bench-{os.getpid()}", ClusterSecrets.draw(), "127.0.0.1")
    env = RealEnvironment(place, None)
    hellos: dict[int, tuple[HostHello, Stream]] = {}
    opened: set[int] = set()

    def take(request: Request) -> Answer | Awaitable[Answer]:
        if isinstance(request.message, HostHello):
            number = request.message.incarnation
            hellos[number] = request.message, request.stream
            directory = f"{folder}/broker-{number}/{TOPIC}-0"
            order = ReplicaToOpen(TOPIC, TOPIC_ID, 0, number, tuple(settings.items()), directory)
            request.stream.send(OpenReplicas(OWN, (order,)))
        if isinstance(request.message, ReplicaHello):
            opened.add(request.message.incarnation)
        if isinstance(request.message, GetMetadata):
            return _metadata(request.message, hellos[1][0].endpoints, endpoints, count)
        return None

    server, endpoints = await env.listen("broker", "broker", take)
    context = multiprocessing.get_context("spawn")
    processes = []
    try:
        for number in range(1, count + 1):
            spec = HostSpec(place.cluster_id, number, number, _NODE, endpoints[0])
            processes.append(context.Process(target=_host, args=(spec, place), daemon=True))
            processes[-1].start()
        while len(opened) < count:
            await asyncio.sleep(0.01)
        addresses = tuple(
            ReplicaAddress(number, number, hello.endpoints) for number, (hello, _) in sorted(hellos.items())
        )
        isr = tuple((number, number) for number in sorted(hellos))
        assigned = Assign(TOPIC, TOPIC_ID, 0, 1, 1, 0, 0, isr, addresses, max(1, count - 1), tuple(settings.items()), 1)
        for _, stream in hellos.values():
            await stream.request(assigned)
        await asyncio.sleep(0.5)
        leader = await env.dial(Endpoint.parse(hellos[1][0].endpoints[0]), "bench", refuse_all)
        broker = Address(_NODE, tuple(map(str, endpoints)))
        yield BenchCluster(leader, folder, ClusterAccess(place.cluster_id, place.secrets.for_clients(), {1: broker}))
        await leader.close()
    finally:
        for process in processes:
            process.kill()
            process.join()
        await server.close(0)
        shutil.rmtree(folder)


async def _metadata(asked: GetMetadata, leader: tuple[str, ...], broker: tuple[Endpoint, ...], count: int) -> Response:
    if asked.newer_than >= _METADATA_VERSION:
        await asyncio.sleep(asked.max_wait_ms / 1000)
    members = tuple(range(1, count + 1))
    partitions = (PartitionMetadata(0, 1, 0, members, members, leader, _NODE),)
    topic = TopicMetadata(TOPIC, TOPIC_ID, partitions, _DEFAULTS.batch_format, _DEFAULTS.max_batch_bytes)
    brokers = (BrokerMetadata(1, _NODE, "", tuple(map(str, broker))),)
    return Response(Metadata(_METADATA_VERSION, "bench", (topic,), brokers, ()))


def _host(spec: HostSpec, place: Place) -> None:
    keep_memory()

    async def live() -> None:
        await ReplicaHost(RealEnvironment(place, None), spec, os.getpid()).run()

    uvloop.run(live())
