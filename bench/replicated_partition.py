"""Three real replicas of one partition, each in a process of its own on this machine, and nobody to disturb them.

The bench is their broker and controller: it takes their hellos and tells them once who leads.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import uvloop

from raylog.actors.cluster_secret import ClusterSecret
from raylog.actors.control_messages import Assign, ReplicaHello
from raylog.actors.kept_memory import keep_memory
from raylog.actors.real_environment import Place, RealEnvironment
from raylog.actors.replica_process import ReplicaProcess
from raylog.actors.replica_spec import ReplicaSpec
from raylog.actors.requests_held import refuse_all
from raylog.actors.stream_interface import Answer, Endpoint, Request, Stream

TOPIC_ID = b"topic of a bench"


@asynccontextmanager
async def replicated_partition(settings: Mapping[str, str], count: int = 3) -> AsyncIterator[tuple[Stream, str]]:
    """(a stream to the leader, the folder of the logs)."""
    folder = tempfile.mkdtemp(prefix="raylog-bench-", dir=os.environ.get("RAYLOG_BENCH_DIR"))
    place = Place(f"bench-{os.getpid()}", ClusterSecret.draw(), "127.0.0.1")
    env = RealEnvironment(place, None)
    hellos: dict[int, tuple[ReplicaHello, Stream]] = {}

    def take(request: Request) -> Answer:
        if isinstance(request.message, ReplicaHello):
            hellos[request.message.incarnation] = request.message, request.stream
        return None

    server, endpoints = await env.listen("broker", "broker", take)
    context = multiprocessing.get_context("spawn")
    processes = []
    try:
        for number in range(1, count + 1):
            spec = ReplicaSpec(
                place.cluster_id, "bench", TOPIC_ID, 0, number, number, tuple(settings.items()),
                f"{folder}/broker-{number}/bench-0", "node", endpoints[0],
            )  # fmt: skip
            processes.append(context.Process(target=_replica, args=(spec, place), daemon=True))
            processes[-1].start()
        while len(hellos) < count:
            await asyncio.sleep(0.01)
        addresses = tuple((number, number, hello.endpoints) for number, (hello, _) in sorted(hellos.items()))
        isr = tuple((number, number) for number in sorted(hellos))
        assigned = Assign(
            "bench", TOPIC_ID, 0, 1, 1, 0, 0, isr, addresses, max(1, count - 1), tuple(settings.items()), 1
        )
        for _, stream in hellos.values():
            await stream.request(assigned)
        await asyncio.sleep(0.5)
        leader = await env.dial(Endpoint.parse(hellos[1][0].endpoints[0]), "bench", refuse_all)
        yield leader, folder
        await leader.close()
    finally:
        for process in processes:
            process.kill()
            process.join()
        await server.close(0)
        shutil.rmtree(folder)


def _replica(spec: ReplicaSpec, place: Place) -> None:
    keep_memory()

    async def live() -> None:
        await ReplicaProcess(RealEnvironment(place, None), spec, os.getpid()).run()

    uvloop.run(live())
