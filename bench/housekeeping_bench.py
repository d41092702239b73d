"""Latency of appends to a replica whose log is being compacted by the housekeeping process, against the same without.

The bench is the broker of both processes. Its client appends at a steady pace that leaves a part of the machine idle,
as a leader has it most of the day.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from multiprocessing.process import BaseProcess
from pathlib import Path

import uvloop

from bench.measuring import Figure
from raylog.actors.housekeeping.housekeeper import Housekeeper, HousekeeperSpec
from raylog.actors.housekeeping.watch import HousekeeperWatch
from raylog.actors.kernel.background import BackgroundTasks
from raylog.actors.kernel.stream_interface import Answer, Request, Stream
from raylog.actors.kernel.stream_requests import refuse_all
from raylog.actors.machine.loop_thread import CoreThread
from raylog.actors.machine.real_environment import Place, RealEnvironment
from raylog.actors.on_ray.housekeeper_actor import give_way
from raylog.actors.protocol.cluster_secrets import ClusterSecrets
from raylog.actors.protocol.control_messages import Assign, ReplicaAddress
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.host_messages import OWN, HostHello, OpenReplicas, ReplicaHello, ReplicaToOpen
from raylog.actors.protocol.housekeeping_messages import FindHousekeeper, HousekeeperHello
from raylog.actors.protocol.replica_spec import HostSpec
from raylog.actors.protocol.replication_messages import NO_EPOCH, Append, Appended
from raylog.actors.replica import compaction
from raylog.actors.replica.host import ReplicaHost
from raylog.config import MIB
from raylog.storage.compaction import progress as progress_files
from raylog.storage.format.batch_codec import encode_batch

_TOPIC_ID = b"topic of a bench"
_SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(16 * MIB),
    "min.cleanable.dirty.ratio": "0.3",
    "file.delete.delay.ms": "500",
    "min.insync.replicas": "1",
}
_LOOK_SECONDS = 0.5
_KEYS, _VALUE = 200_000, bytes(200)
_BATCHES, _RECORDS = 150, 4_000  # before each round: some 130 MB
_PACE_SECONDS = 0.001
_ROUND_SECONDS = 4.0
_LEAST = 100  # so that there is a 99th of a hundred
_PATIENCE_SECONDS = 60.0
_ROUNDS = 5
_GOAL_RATIO = 1.5


class _Partition:
    """One replica, which leads, and the endpoint of its broker: the bench."""

    def __init__(self, folder: str) -> None:
        self.place = Place(f"bench-{os.getpid()}", ClusterSecrets.draw(), "127.0.0.1")
        self.env = RealEnvironment(self.place, None)
        self.directory = f"{folder}/bench-0"
        self._folder = folder
        self._watch = HousekeeperWatch(self.env, BackgroundTasks(_fail))
        self._hello: asyncio.Future[tuple[HostHello, Stream]] = asyncio.get_running_loop().create_future()
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._processes: list[BaseProcess] = []
        self._is_housekeeper_there = False
        self._begun_at = 0.0

    async def start(self, stack: AsyncExitStack) -> Stream:
        """A stream to the leader."""
        server, endpoints = await self.env.listen("broker", "broker", self._take)
        stack.push_async_callback(server.close, 0)
        stack.callback(self._kill)
        self.broker = endpoints[0]
        settings = tuple(_SETTINGS.items())
        self._start(_host, HostSpec(self.place.cluster_id, 1, 1, "node", self.broker), self.place)
        hello, stream = await self._hello
        order = ReplicaToOpen("bench", _TOPIC_ID, 0, 1, settings, self.directory)
        await stream.request(OpenReplicas(OWN, (order,)))
        await self._opened
        address = ReplicaAddress(1, 1, hello.endpoints)
        await stream.request(Assign("bench", _TOPIC_ID, 0, 1, 1, 0, 0, ((1, 1),), (address,), 1, settings, 1))
        await asyncio.sleep(0.5)
        return await self.env.dial(Endpoint.parse(hello.endpoints[0]), "bench", refuse_all)

    def start_housekeeper(self) -> None:
        self._start(_housekeeper, HousekeeperSpec(1, self.broker, self._folder), self.place)

    def is_being_compacted(self) -> bool:
        """Tell whether no compaction has ended since the replica found the housekeeping process."""
        progress = Path(self.directory, progress_files.FILE_NAME)
        return self._begun_at > (progress.stat().st_mtime if progress.exists() else 0.0)

    def _start(self, main: object, *args: object) -> None:
        self._processes.append(multiprocessing.get_context("spawn").Process(target=main, args=args, daemon=True))  # type: ignore[arg-type]
        self._processes[-1].start()

    def _take(self, request: Request) -> Answer | Awaitable[Answer]:
        message = request.message
        if isinstance(message, HostHello):
            self._hello.set_result((message, request.stream))
        elif isinstance(message, ReplicaHello):
            self._opened.set_result(None)
        elif isinstance(message, HousekeeperHello):
            self._watch.hello(message, request.stream)
            self._is_housekeeper_there = True
        elif isinstance(message, FindHousekeeper):
            self._begun_at = time.time() if self._is_housekeeper_there else 0.0
            return self._watch.find()
        return None

    def _kill(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()


def run() -> Iterator[Figure]:
    yield from uvloop.run(_measure())


async def _measure() -> list[Figure]:
    folder = tempfile.mkdtemp(prefix="raylog-bench-", dir=os.environ.get("RAYLOG_BENCH_DIR"))
    try:
        async with AsyncExitStack() as stack:
            partition = _Partition(folder)
            leader = await partition.start(stack)
            await _fill(leader)
            without = [await _after_more(leader) for _ in range(_ROUNDS)]
            partition.start_housekeeper()
            beside = [await _beside_compaction(partition, leader) for _ in range(_ROUNDS)]
            return _figures(without, beside)
    finally:
        shutil.rmtree(folder)


async def _fill(leader: Stream) -> None:
    for number in range(_BATCHES):
        keys = [b"%d" % ((number * _RECORDS + at) % _KEYS) for at in range(_RECORDS)]
        await _append(leader, encode_batch([_VALUE] * _RECORDS, keys=keys, timestamps=time.time_ns() // 1_000_000))
    os.sync()


async def _after_more(leader: Stream) -> list[float]:
    await _fill(leader)
    return await _latencies(leader, lambda: True)


async def _beside_compaction(partition: _Partition, leader: Stream) -> list[float]:
    await _fill(leader)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not partition.is_being_compacted():
        if time.monotonic() > deadline:
            raise TimeoutError("The log is not compacted.")
        await asyncio.sleep(0.01)
    return await _latencies(leader, partition.is_being_compacted)


async def _latencies(leader: Stream, goes_on: Callable[[], bool]) -> list[float]:
    spent: list[float] = []
    end = time.perf_counter() + _ROUND_SECONDS
    while time.perf_counter() < end and (goes_on() or len(spent) < _LEAST):
        batch = encode_batch([_VALUE], keys=[b"k"], timestamps=time.time_ns() // 1_000_000)
        start = time.perf_counter()
        await _append(leader, batch)
        spent.append((time.perf_counter() - start) * 1e3)
        await asyncio.sleep(_PACE_SECONDS)
    return spent


async def _append(leader: Stream, batch: bytearray) -> None:
    answer = await leader.request(Append(NO_EPOCH, -1, 30_000), batch, topic_id=_TOPIC_ID, partition=0)
    assert isinstance(answer.message, Appended)


def _figures(without: list[list[float]], beside: list[list[float]]) -> list[Figure]:
    alone, busy = [_p99(each) for each in without], [_p99(each) for each in beside]
    ratios = [each / statistics.median(alone) for each in busy]
    longest = f"longest {max(map(max, beside)):.1f} ms, without {max(map(max, without)):.1f} ms"
    return [
        Figure("append, p99 without compaction", alone, "ms", note=f"p50 {_p50(without):.3f} ms"),
        Figure("append, p99 beside compaction", busy, "ms", note=f"p50 {_p50(beside):.3f} ms; {longest}"),
        Figure("append beside compaction against without", ratios, "x (p99)", _GOAL_RATIO, True),
    ]


def _p99(spent: list[float]) -> float:
    return statistics.quantiles(spent, n=100)[98]


def _p50(rounds: list[list[float]]) -> float:
    return statistics.median(each for spent in rounds for each in spent)


def _fail(error: BaseException) -> None:
    raise error


def _host(spec: HostSpec, place: Place) -> None:
    compaction.LOOK_SECONDS = _LOOK_SECONDS  # type: ignore[misc]  # a quarter of a minute is long for a bench
    compaction.LONGEST_PAUSE = _LOOK_SECONDS  # type: ignore[misc]

    async def live() -> None:
        await ReplicaHost(RealEnvironment(place, None), spec, os.getpid()).run()

    uvloop.run(live())


def _housekeeper(spec: HousekeeperSpec, place: Place) -> None:
    give_way()
    core = CoreThread(place.cluster_id)

    async def live() -> str:
        return await Housekeeper(RealEnvironment(place, None), spec, os.getpid()).run()

    core.do(live(), 3600.0)
