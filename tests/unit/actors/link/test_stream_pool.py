"""A client's streams: one for each process, in the order of asking, and with pauses where nobody answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from raylog.actors.kernel.background import BackgroundTasks
from raylog.actors.kernel.stream_interface import Answer, Request
from raylog.actors.link.stream_pool import StreamPool
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.messages import Done
from raylog.errors import PeerUnreachable, RaylogError, StreamClosed, StreamNotOpen
from tests.simulator.world.machines import Process, SimEnvironment
from tests.simulator.world.world import World
from tests.unit.actors.link_world import CALM


class PoolWorld:
    """A pool, and a server that answers unless it is told to be silent."""

    def __init__(self, world: World, *, on_one_machine: bool = True) -> None:
        self.world = world
        self.streams: list[object] = []
        self.is_silent = False
        self.machine = world.add_machine("server")
        self.endpoints: tuple[Endpoint, ...] = ()
        self.server = self.machine.start("server", self._serve)
        machine = self.machine if on_one_machine else world.add_machine("client")
        self.client = machine.start("client", self._main)
        world.run_for(0.1)

    async def _serve(self, env: SimEnvironment) -> None:
        _, endpoints = await env.listen("server", "server", self._handle, self.streams.append)
        self.endpoints = endpoints
        await asyncio.sleep(1e6)

    def _handle(self, request: Request) -> Answer | asyncio.Future[Answer]:
        return asyncio.get_running_loop().create_future() if self.is_silent else None

    async def _main(self, env: SimEnvironment) -> None:
        self.tasks = BackgroundTasks(lambda error: self.world.fail("a task failed", error))
        self.pool = StreamPool(env, self.tasks)
        await asyncio.sleep(1e6)

    async def get(self, timeout: float = 10.0) -> object:
        return await self.pool.get(self.endpoints, timeout)

    def begin(self, timeout: float = 10.0) -> asyncio.Task[object]:
        return self.client.run(self.get(timeout))

    def do(self, timeout: float = 10.0) -> object:
        task = self.begin(timeout)
        assert self.world.run_until_idle_or(task.done, 20.0)
        return task.result()

    def replace_server(self) -> Process:
        self.server.kill()
        self.server = self.machine.start("server", self._serve)
        self.world.run_for(0.1)
        return self.server


@pytest.fixture
def pool() -> Iterator[PoolWorld]:
    with World(3, settings=CALM) as world:
        yield PoolWorld(world)


def test_many_who_ask_at_once_share_one_stream(pool: PoolWorld) -> None:
    tasks = [pool.begin() for _ in range(5)]
    pool.world.run_for(0.1)
    assert len({id(each.result()) for each in tasks}) == 1
    assert pool.do() is tasks[0].result()
    assert len(pool.streams) == 1


def test_those_who_wait_for_a_stream_have_their_time_outs_on_one_wheel(pool: PoolWorld) -> None:
    pool.server.pause(5.0)
    asked = [pool.begin(1.0 + number / 1000) for number in range(200)]
    pool.world.run_for(0.5)
    assert len(pool.pool._timers) == 200
    pool.world.run_for(1.0)
    assert all(isinstance(each.exception(), PeerUnreachable) for each in asked)
    assert len(pool.pool._timers) == 0


def test_who_asks_when_the_stream_has_just_opened_goes_on_behind_those_who_waited(pool: PoolWorld) -> None:
    order: list[int] = []

    async def ask(number: int) -> None:
        await pool.get()
        order.append(number)
        if number < 3:
            pool.client.run(ask(number + 10))

    for number in range(4):
        pool.client.run(ask(number))
    pool.world.run_for(0.1)
    assert order[:4] == [0, 1, 2, 3]
    assert sorted(order[4:]) == [10, 11, 12]


def test_where_nobody_answers_it_fails_at_once_until_a_growing_pause_is_over(pool: PoolWorld) -> None:
    pool.server.kill()
    pool.world.run_for(0.1)
    dials = 0
    for _ in range(200):
        began = pool.world.now
        with pytest.raises(PeerUnreachable):
            pool.do()
        dials += pool.world.now - began > 1e-4  # the others fail without a look
        pool.world.run_for(0.01)
    assert 3 <= dials <= 20


def test_a_server_that_is_back_is_found_after_the_pause(pool: PoolWorld) -> None:
    pool.do()
    pool.server.kill()
    pool.world.run_for(0.1)
    assert pool.pool.open(pool.endpoints) is None
    with pytest.raises(PeerUnreachable):
        pool.do()
    endpoints = pool.endpoints
    pool.replace_server()
    pool.endpoints = endpoints  # the same path, another port
    pool.do()


def test_the_next_address_is_tried_where_the_first_is_of_another_host() -> None:
    with World(3, settings=CALM) as world:
        pool = PoolWorld(world, on_one_machine=False)
        assert [each.is_unix for each in pool.endpoints] == [True, False]
        assert pool.do() is pool.pool.open(pool.endpoints)


def test_a_dial_that_takes_too_long_is_not_waited_for(pool: PoolWorld) -> None:
    pool.server.pause()
    began = pool.world.now
    with pytest.raises(PeerUnreachable, match="no stream in time"):
        pool.do(0.5)
    assert pool.world.now - began < 0.6


def test_streams_that_nobody_wants_are_closed(pool: PoolWorld) -> None:
    pool.do()

    async def retain() -> None:
        pool.pool.retain({pool.endpoints})
        assert pool.pool.open(pool.endpoints) is not None
        pool.pool.retain(set())
        assert pool.pool.open(pool.endpoints) is None

    task = pool.client.run(retain())
    pool.world.run_for(0.1)
    task.result()


def test_a_silent_process_that_turns_keeps_its_stream_and_one_that_does_not_loses_it(pool: PoolWorld) -> None:
    pool.is_silent = True
    pool.do()

    async def check() -> None:
        pool.pool.check(pool.endpoints)

    pool.client.run(check())
    pool.world.run_for(8.0)
    assert pool.pool.open(pool.endpoints) is not None
    pool.server.pause()
    pool.client.run(check())
    pool.world.run_for(8.0)
    assert pool.pool.open(pool.endpoints) is None


def test_a_pool_that_is_closed_ends_all_that_waits(pool: PoolWorld) -> None:
    pool.server.pause()
    waiting = pool.begin()
    pool.world.run_for(0.1)
    pool.client.run(pool.pool.close())
    pool.world.run_for(0.1)
    assert isinstance(waiting.exception(), StreamNotOpen)
    with pytest.raises(StreamNotOpen, match="closed"):
        pool.do()
    pool.server.resume()
    pool.world.run_for(5.0)  # the dial ends, and its stream is closed


def test_what_is_in_flight_when_a_stream_fails_ends(pool: PoolWorld) -> None:
    pool.is_silent = True
    errors: list[RaylogError] = []

    async def ask() -> None:
        stream = await pool.pool.get(pool.endpoints, 5.0)
        try:
            await stream.request(Done(), timeout=30.0)
        except RaylogError as error:
            errors.append(error)

    pool.client.run(ask())
    pool.world.run_for(0.1)

    async def fail() -> None:
        pool.pool.failed(pool.endpoints, PeerUnreachable("it", "it is slow"))

    pool.client.run(fail())
    pool.world.run_for(0.1)
    assert [type(each) for each in errors] == [StreamClosed]
    assert pool.pool.open(pool.endpoints) is None
