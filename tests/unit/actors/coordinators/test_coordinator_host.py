"""Which requests a process of coordinators does not take, and that one coordinator's end is no other's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterable, Iterator
from typing import Any, cast

import pytest

from raylog.actors.coordinators.claimed_log import CoordinatorLog
from raylog.actors.coordinators.coordinator import HostedCoordinator
from raylog.actors.coordinators.host import CoordinatorHost
from raylog.actors.kernel.environment import Environment
from raylog.actors.kernel.metrics import Reading
from raylog.actors.kernel.stream_interface import Answer, Request, Response
from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.protocol.coordinator_messages import (
    CoordinatorRefused,
    CoordinatorsHeard,
    OpenCoordinator,
    StopCoordinator,
)
from raylog.actors.protocol.coordinator_spec import CoordinatorHostSpec, CoordinatorSpec
from raylog.actors.protocol.messages import Ping
from raylog.actors.protocol.names import OFFSETS_TOPIC
from raylog.errors import CoordinatorNotReady, CoordinatorStopped, StreamNotOpen, UnknownPartition
from tests.simulator.world.machines import SimEnvironment
from tests.simulator.world.world import World
from tests.unit.actors.control_cluster import CALM

_TOPIC_ID = bytes(range(16))


class _Stream:
    peer = "member of before"

    def __init__(self) -> None:
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class _Core:
    """Answers a request when it is told to."""

    def __init__(self, spec: CoordinatorSpec) -> None:
        self.spec = spec
        self.handled: list[Request] = []
        self.is_closed = False
        self.fails = False
        self.answer: asyncio.Future[Answer] | None = None

    async def start(self) -> None:
        if self.fails:
            raise KeyError("nobody foresaw it")

    def handle(self, request: Request) -> Answer | Awaitable[Answer]:
        self.handled.append(request)
        return Response(Ping()) if self.answer is None else self.answer

    async def close(self) -> None:
        self.is_closed = True

    def readings(self) -> Iterable[Reading]:
        return ()


class _Host:
    """A host without a controller, and the cores that were made in it."""

    def __init__(self, env: SimEnvironment) -> None:
        self.cores: list[_Core] = []
        self.fails = False
        spec = CoordinatorHostSpec("cluster", 1, "node", ())

        async def find_controller() -> Any:
            await asyncio.sleep(1000)

        self.host = CoordinatorHost(env, spec, "run", 7, find_controller, {OFFSETS_TOPIC: self._make})
        self.ends: list[tuple[int, str]] = []
        self.host.has_ended = self._has_ended  # type: ignore[method-assign]

    def _make(self, env: Environment, spec: CoordinatorSpec, log: CoordinatorLog, link: ClusterLink) -> _Core:
        del env, log, link
        self.cores.append(_Core(spec))
        self.cores[-1].fails = self.fails
        return self.cores[-1]

    def _has_ended(self, coordinator: HostedCoordinator, why: str, mistake: Exception | None) -> None:
        del mistake
        self.ends.append((coordinator.spec.partition, why))

    async def open(self, partition: int, epoch: int = 1) -> _Core:
        self.host._open(OpenCoordinator(OFFSETS_TOPIC, _TOPIC_ID, partition, 7, epoch, -1, 1, (), ()))
        await asyncio.sleep(0.01)
        return self.cores[-1]

    def ask(self, partition: int, stream: _Stream | None = None, topic_id: bytes = _TOPIC_ID) -> Any:
        asking = cast(Any, stream or _Stream())
        return self.host.handle(Request(Ping(), bytearray(), topic_id, partition, asking, 1, 1))

    def sure(self) -> None:
        for each in self.host.hosted():
            each.is_sure_until(asyncio.get_running_loop().time() + 10.0)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """What nobody foresaw is logged with its trace."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def run(test: Any) -> None:
    """Run a test in a process of a simulated machine."""
    with World(3, settings=CALM) as world:
        is_over = []

        async def main(env: SimEnvironment) -> None:
            it = _Host(env)
            await test(it)
            await it.host._stop_all()
            await it.host._tasks.close()
            await it.host._link.close()
            is_over.append(True)

        world.add_machine("m").start("host", main)
        assert world.run_until_idle_or(lambda: bool(is_over), 60.0)


def test_requests_go_to_the_coordinator_of_their_partition() -> None:
    async def test(it: _Host) -> None:
        zero, one = await it.open(0), await it.open(1)
        it.sure()
        assert isinstance(it.ask(1), Response)
        assert (len(zero.handled), len(one.handled)) == (0, 1)
        with pytest.raises(CoordinatorNotReady):  # it was here, or will be: to another one its groups would be new
            it.ask(2)
        with pytest.raises(UnknownPartition):  # this port was a leader's
            it.ask(0, topic_id=bytes(16))

    run(test)


def test_what_a_dead_process_has_asked_for_is_not_done() -> None:
    async def test(it: _Host) -> None:
        core = await it.open(0)
        (coordinator,) = it.host.hosted()
        dead, living = _Stream(), _Stream()

        async def confirm() -> None:
            """While this takes, the end of a stream is read."""
            if not dead.closed.done():
                dead.closed.set_result(None)

        coordinator._partition_log.confirm = confirm  # type: ignore[method-assign]
        with pytest.raises(StreamNotOpen):
            await it.ask(0, dead)
        await it.ask(0, living)
        assert [cast(Any, each.stream) for each in core.handled] == [living]

    run(test)


def test_a_coordinator_that_fails_leaves_the_others_alone() -> None:
    async def test(it: _Host) -> None:
        await it.open(0)
        it.fails = True
        failed = await it.open(1)
        assert failed.is_closed
        assert it.ends == [(1, "KeyError('nobody foresaw it')")]
        assert [each.spec.partition for each in it.host.hosted()] == [0]
        assert [(each.partition, each.reason) for each in it.host._ended] == it.ends
        it.sure()
        assert isinstance(it.ask(0), Response)
        with pytest.raises(CoordinatorNotReady):
            it.ask(1)

    run(test)


def test_requests_that_a_coordinator_holds_are_answered_when_it_ends() -> None:
    """Its process goes on, so no stream tells their requesters."""

    async def test(it: _Host) -> None:
        core = await it.open(0)
        it.sure()
        core.answer = asyncio.get_running_loop().create_future()
        held = asyncio.ensure_future(it.ask(0))
        await asyncio.sleep(0.01)
        await it.host._stop_coordinator(StopCoordinator(_TOPIC_ID, 0, 1))
        with pytest.raises(CoordinatorStopped):
            await held
        assert core.is_closed
        await asyncio.sleep(0.01)
        assert not it.host.hosted()

    run(test)


def test_one_that_is_placed_again_waits_for_the_end_of_the_one_before() -> None:
    async def test(it: _Host) -> None:
        first = await it.open(0)
        blocked: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def close() -> None:
            await blocked

        first.close = close  # type: ignore[method-assign]
        await it.open(0, epoch=2)
        await it.open(0, epoch=3)
        (newest,) = it.host.hosted()
        assert (newest.spec.epoch, newest.is_serving) == (3, False)
        blocked.set_result(None)
        await asyncio.sleep(0.01)
        assert newest.is_serving
        await it.host._stop_coordinator(StopCoordinator(_TOPIC_ID, 0, 2))
        assert newest.is_serving, "the order was for the one before"

    run(test)


def test_one_that_the_controller_refuses_ends_and_is_not_sure_of_anything() -> None:
    async def test(it: _Host) -> None:
        await it.open(0)
        await it.open(1)
        zero, one = it.host.hosted()
        now = asyncio.get_running_loop().time()
        it.host._take_answer(CoordinatorsHeard((CoordinatorRefused(_TOPIC_ID, 0, 1),), 500), [zero, one], now)
        assert one._sure_until > now >= zero._sure_until
        await asyncio.sleep(0.01)
        assert it.ends == [(0, "another one has been placed")]

    run(test)
