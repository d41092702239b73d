"""The files that five requests walk through: `python -m tests.walks`, with `--files` for their names in order.

    send          one record, three replicas, acks=all, until it is acknowledged
    poll          a consumer seeks that record and polls it
    failover      the process of a leader is killed, until a client knows the new leader
    join          a second member joins a group, until it has its share of the partitions
    commit        a producer commits a transaction of one record and one offset

Each happens once before it is measured: what is measured is the walk alone, not making connections or importing.

How: a cluster of the simulator, and in it the very `Producer` and `Consumer` that programs use. The request begins with
a mark. Whatever the marked code schedules (a task, a timer, a message to another process) is marked too, so the mark
goes wherever the request goes. `sys.setprofile` sees each call, and counts those that are made under the mark.

A file counts when a function of it runs. A hop is a call from one file of raylog into another, or from the event loop
into a file; the same two functions count once. The simulator has no sockets: what a message passes through on a real
one is measured apart, on a Unix socket, and added to each walk (`wire`). Ray's actors around the cores are left out.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, Final, TypeVar
from unittest.mock import patch

from raylog.actors.coordinators.coordinator import MakeCore
from raylog.actors.kernel.stream_interface import Request, Response
from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.machine.stream_server import StreamServer, connect
from raylog.actors.protocol.cluster_secrets import Key, Standing
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.messages import Ping
from raylog.actors.protocol.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from raylog.actors.transactions import coordinator as transaction_coordinator
from raylog.api.connection.client_threads import SERVING_THREADS
from raylog.api.connection.records import GroupMetadata, TopicPartition
from raylog.api.consumer.consumer import Consumer
from raylog.api.producer.buffer.record_future import RecordFuture
from raylog.api.producer.producer import Producer
from raylog.groups.coordinator import core as group_core
from raylog.groups.records.messages import NO_EPOCH
from tests.simulator.checks.step_checks import ControllerSteps, CoordinatorHostSteps, HostSteps
from tests.simulator.cluster.simulated_cluster import SimulatedCluster
from tests.simulator.world.fake_network import NetworkSettings
from tests.simulator.world.fake_streams import FakeStream
from tests.simulator.world.machines import Process, SimEnvironment
from tests.simulator.world.pipes import SimFrame
from tests.simulator.world.scheduler import Event
from tests.simulator.world.virtual_loop import VirtualHandle
from tests.simulator.world.world import World

TOPIC: Final = "clicks"
GROUP: Final = "readers"
_SOURCE: Final = f"{Path(__file__).resolve().parents[1] / 'raylog'}/"
_CALM: Final = NetworkSettings(slow_chance=0.0, stuck_chance=0.0, packed_share=1.0)
_MAKERS: Final[dict[str, MakeCore]] = {
    TRANSACTIONS_TOPIC: transaction_coordinator.make,
    OFFSETS_TOPIC: group_core.make,
}
_SEED: Final = 1
_NO_REQUEST: Final = 0
_LIMIT_SECONDS: Final = 60.0
_QUIET_SECONDS: Final = 3.0
_STEP_SECONDS: Final = 0.002
_T = TypeVar("_T")


class Walk:
    """The files that were entered under the mark, in order."""

    def __init__(self) -> None:
        self.files: dict[str, None] = {}
        self.hops: dict[tuple[str, str], None] = {}

    def take(self, frame: FrameType) -> None:
        """A function was called, or a coroutine goes on."""
        code = frame.f_code
        if not code.co_filename.startswith(_SOURCE) or code.co_name == "<module>":
            return
        file = code.co_filename[len(_SOURCE) :]
        caller = _caller(frame)
        came_from = "" if caller is None else caller.f_code.co_filename[len(_SOURCE) :]
        self.files[file] = None
        if came_from != file:
            place = came_from if caller is None else f"{came_from}:{caller.f_code.co_name}"
            self.hops[place, f"{file}:{code.co_name}"] = None


def _caller(frame: FrameType) -> FrameType | None:
    """The nearest function of raylog that waits for this one. None: the event loop has called."""
    above = frame.f_back
    while above is not None and above.f_code is not Marks.run.__code__:
        if above.f_code.co_filename.startswith(_SOURCE):
            return above
        above = above.f_back
    return None


class Marks:
    """The request that runs now, by its number. What a request schedules belongs to it.

    A request has an end, and what it has woken may have none: a heartbeat goes on for ever. So each request has a
    number of its own, and what an earlier one has left running is not counted.
    """

    def __init__(self) -> None:
        self._mark = _NO_REQUEST
        self._counted = _NO_REQUEST  # the request that is measured
        self._frames: dict[SimFrame, int] = {}
        self.walk = Walk()

    @contextmanager
    def set(self, mark: int) -> Iterator[None]:
        """Let what runs within, and what that schedules, belong to this request, or to none."""
        before, self._mark = self._mark, mark
        try:
            yield
        finally:
            self._mark = before

    def run(self, mark: int, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        """Call what was scheduled, under the mark under which it was scheduled."""
        with self.set(mark):
            callback(*args)

    @contextmanager
    def carried(self) -> Iterator[None]:
        """Let the simulator carry marks: handles of loops, events of the world, and messages."""
        make_handle, make_event = VirtualHandle.__init__, Event.__init__
        put, take = FakeStream._put, FakeStream.take

        def new_handle(handle: VirtualHandle, loop: Any, callback: Any, args: Any, context: Any) -> None:
            make_handle(handle, loop, self.run, (self._mark, callback, args), context)

        def new_event(event: Event, scheduler: Any, callback: Any, args: Any) -> None:
            make_event(event, scheduler, self.run, (self._mark, callback, args))

        def put_marked(stream: FakeStream, frame: SimFrame) -> None:
            if self._mark != _NO_REQUEST:
                self._frames[frame] = self._mark
            put(stream, frame)

        def take_marked(stream: FakeStream, frame: SimFrame) -> None:
            with self.set(self._frames.get(frame, _NO_REQUEST)):
                take(stream, frame)

        with ExitStack() as patches:
            for owner, name, made in (
                (VirtualHandle, "__init__", new_handle),
                (Event, "__init__", new_event),
                (FakeStream, "_put", put_marked),
                (FakeStream, "take", take_marked),
                *((each, "__call__", _nothing_to_check) for each in (HostSteps, ControllerSteps, CoordinatorHostSteps)),
            ):
                patches.enter_context(patch.object(owner, name, made))
            yield

    @contextmanager
    def counted(self) -> Iterator[Walk]:
        """Count what the request within calls, and what it schedules."""
        self.walk = Walk()
        self._counted += 1
        sys.setprofile(self._see)
        try:
            with self.set(self._counted):
                yield self.walk
        finally:
            sys.setprofile(None)
            self._frames.clear()

    def _see(self, frame: FrameType, event: str, _: object) -> None:
        if self._mark == self._counted and event == "call":
            self.walk.take(frame)


class SimulatedRuntime:
    """Stands for `ClientRuntime`: its loop is that of a simulated process, and to wait lets the world go on."""

    pid = 0
    is_running = True

    def __init__(self, world: World, cluster: SimulatedCluster, marks: Marks) -> None:
        self._world = world
        self._cluster = cluster
        self._marks = marks
        self._link: ClusterLink | None = None
        self._process: Process = world.add_machine("clients").start("client", self._stay)
        self.loop = self._process.loop
        world.run_for(0.01)

    async def _stay(self, env: SimEnvironment) -> None:
        self._env = env
        await asyncio.get_running_loop().create_future()

    def run(self, work: Coroutine[Any, Any, _T], timeout: float | None = None) -> _T:
        """See `ClientRuntime.run`."""
        task = self._process.run(work)
        self.until(task.done)
        return task.result()

    def submit(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """See `ClientRuntime.submit`."""
        return self._process.run(work)

    def until(self, condition: Callable[[], bool]) -> None:
        """Let the world go on until this holds."""
        with self._marks.set(_NO_REQUEST):
            if not self._world.run_until_idle_or(condition, _LIMIT_SECONDS):
                raise TimeoutError("What was begun comes to no end.")
        SERVING_THREADS.clear()  # a producer takes this thread for that of the loop, on which it could not wait

    def rest(self, seconds: float) -> None:
        """Let the world go on for so long."""
        with self._marks.set(_NO_REQUEST):
            self._world.run_for(seconds)

    def check(self, _what: str) -> None:
        """See `ClientRuntime.check`."""

    def at_exit(self, _close: object) -> Callable[[], None]:
        """See `ClientRuntime.at_exit`."""
        return lambda: None

    async def acquire_link(self, _address: object) -> ClusterLink:
        """See `ClientRuntime.acquire_link`."""
        if self._link is None:
            self._link = ClusterLink(self._env, self._cluster.broker_endpoints())
        return self._link

    async def release_link(self, _link: ClusterLink) -> None:
        """All clients share the link to the end."""


@contextmanager
def clients_on(runtime: SimulatedRuntime) -> Iterator[None]:
    """Producers and consumers made within use this runtime, and its time."""
    clock = SimpleNamespace(time=runtime.loop.time, monotonic=runtime.loop.time, sleep=runtime.rest)
    stand_ins = {"client_runtime": lambda: runtime, "link_address": lambda *_: None, "time": clock}
    with ExitStack() as patches:
        for name, module in list(sys.modules.items()):
            if name.startswith("raylog.api."):
                for each, stand_in in stand_ins.items():
                    if hasattr(module, each):
                        patches.enter_context(patch.object(module, each, stand_in))
        yield


class Walks:
    """A cluster of three brokers, and clients. Each method is a walk; it can be called again."""

    def __init__(self, runtime: SimulatedRuntime, cluster: SimulatedCluster) -> None:
        self._runtime = runtime
        self._cluster = cluster
        self._producer = Producer(acks="all")
        self._writer = Producer(acks="all", transactional_id="writer")
        self._writer.init_transactions()

    def _wait_for(self, condition: Callable[[], object]) -> None:
        """Wait as a program does that looks again and again."""
        while not condition():
            self._runtime.rest(_STEP_SECONDS)

    def send(self) -> None:
        """One record, until it is acknowledged."""
        sent: RecordFuture = self._producer.send(TOPIC, b"value", key=b"key")
        self._runtime.until(sent.done)
        result = sent.result(0)
        self._place, self._offset = TopicPartition(TOPIC, result.partition), result.offset

    def begin_reading(self) -> None:
        """Only now, so that no consumer waits where the walks before it write."""
        self._consumer = Consumer(auto_offset_reset="earliest")
        self._consumer.assign([self._place])
        self._first = Consumer(TOPIC, group_id=GROUP)
        self._wait_for(lambda: len(self._first.assignment()) == 2)

    def poll(self) -> None:
        """The record that was sent last."""
        self._consumer.seek(self._place, self._offset)
        self._wait_for(self._consumer.poll)

    def failover(self) -> None:
        """The process of the leader is killed."""
        old = self._leader()
        running = [each for each in self._cluster.replicas if each.spec.topic == TOPIC and each.spec.partition == 0]
        next(each for each in running if each.spec.broker_id == old).process.kill()
        self._runtime.until(lambda: self._leader() not in (old, -1))

    def _leader(self) -> int:
        link = self._runtime.run(self._runtime.acquire_link(None))
        return link.topic(TOPIC).partitions[0].broker  # type: ignore[union-attr]

    def join(self) -> None:
        """A second member, which the first gives a partition."""
        self._second = Consumer(TOPIC, group_id=GROUP)
        self._wait_for(self._has_its_share)

    def _has_its_share(self) -> bool:
        self._first.poll()  # a partition is given up while polling
        return len(self._second.assignment()) == 1

    def leave(self) -> None:
        """The second member, so that it can join again."""
        self._second.close()
        self._wait_for(lambda: len(self._first.assignment()) == 2)

    def end(self) -> None:
        """Close all clients."""
        for client in (self._producer, self._writer, self._consumer, self._first):
            client.close()

    def write(self) -> None:
        """Begin a transaction, with a record and an offset."""
        self._writer.begin_transaction()
        self._runtime.until(self._writer.send(TOPIC, b"value", partition=0).done)
        self._writer.send_offsets_to_transaction({(TOPIC, 0): self._offset}, GroupMetadata("others", "", NO_EPOCH))

    def commit(self) -> None:
        """Commit it."""
        self._writer.commit_transaction()


def _nothing_to_check(_steps: object) -> None:
    """Stand in for the checks of the simulator, which are no part of a walk."""


def _nothing() -> None:
    """Do nothing, which is what some walks need before or after them."""


def measure() -> dict[str, Walk]:
    """The walks by name, the wire first."""
    found = {"wire": asyncio.run(_measure_wire())}
    marks = Marks()
    with World(_SEED, settings=_CALM) as world, marks.carried():
        cluster = SimulatedCluster(world, coordinator_makers=_MAKERS, loses_orders=False)
        cluster.form(3)
        cluster.create_topic(TOPIC, 2, 3, {"min.insync.replicas": "2"})
        runtime = SimulatedRuntime(world, cluster, marks)
        with clients_on(runtime):
            walks = Walks(runtime, cluster)

            def follow(walk: Callable[[], None], before: Callable[[], None], after: Callable[[], None]) -> None:
                for _ in range(2):  # the first time without being measured
                    before()
                    runtime.rest(_QUIET_SECONDS)
                    with marks.counted() as found[walk.__name__]:
                        walk()
                    after()

            follow(walks.send, _nothing, _nothing)
            follow(walks.failover, _nothing, _nothing)
            follow(walks.commit, walks.write, _nothing)
            walks.begin_reading()
            follow(walks.poll, _nothing, _nothing)
            follow(walks.join, _nothing, walks.leave)
            walks.end()
        cluster.is_over = True
    return found


async def _measure_wire() -> Walk:
    """One request and its answer on a Unix socket."""
    key = Key(Standing.INTERNAL, bytes(32))
    with tempfile.TemporaryDirectory(prefix="rl") as folder:
        place = Endpoint(path=f"{folder}/s")
        server = await StreamServer.start(place, _echo, keys=lambda: (key,), role="broker 1")
        stream = await connect(server.endpoint, key=key, role="client")
        await stream.request(Ping())
        marks = Marks()
        with marks.counted() as walk:
            await stream.request(Ping())
        await stream.close()
        await server.close()
    return walk


def _echo(request: Request) -> Response:
    return Response(request.message, request.payload)


def table(found: dict[str, Walk], *, with_files: bool) -> Iterator[str]:
    """Lines for people."""
    wire = found["wire"]
    yield f"{'walk':10} {'files':>6} {'hops':>6}    of these api, actors, groups, storage, others"
    for name, walk in found.items():
        files = {**walk.files, **wire.files}
        hops = {**walk.hops, **wire.hops}
        counts = [sum(each.startswith(f"{top}/") for each in files) for top in ("api", "actors", "groups", "storage")]
        shown = ", ".join(map(str, [*counts, len(files) - sum(counts)]))
        yield f"{name:10} {len(files):6} {len(hops):6}    {shown}"
        if with_files:
            yield from (f"    {number:3} {file}" for number, file in enumerate(files, 1))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.walks", description=__doc__.splitlines()[0])
    parser.add_argument("--files", action="store_true", help="name the files, in the order in which they are entered")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    sys.stdout.writelines(f"{line}\n" for line in table(measure(), with_files=options.files))


if __name__ == "__main__":
    main()
