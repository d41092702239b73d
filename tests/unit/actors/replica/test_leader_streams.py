"""One stream to each leader's process, whoever uses it, and none that leads nowhere."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import pytest

from raylog.actors.kernel.environment import Environment
from raylog.actors.kernel.stream_interface import Handler, Stream
from raylog.actors.protocol.control_messages import ReplicaAddress
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.replica.leader_streams import LeaderStreams
from raylog.errors import PeerUnreachable
from tests.simulator.clients.clients import refuse
from tests.simulator.world.machines import Process
from tests.simulator.world.world import World
from tests.unit.actors.control_cluster import CALM

_T = TypeVar("_T")


@dataclass
class TwoHosts:
    """A leader's process that counts its streams, and a follower's."""

    world: World
    leader: Process = field(init=False)
    follower: Process = field(init=False)
    address: ReplicaAddress = field(init=False)
    accepted: list[Stream] = field(default_factory=list)
    streams: LeaderStreams = field(init=False)

    def __post_init__(self) -> None:
        self.leader = self.world.add_machine("one").start("leader", self._listen)
        self.follower = self.world.add_machine("two").start("follower", self._idle)
        assert self.world.run_until_idle_or(lambda: hasattr(self, "address") and hasattr(self, "streams"), 5.0)

    async def _listen(self, env: Environment) -> None:
        _, endpoints = await env.listen("host", "replica", refuse, self.accepted.append)
        self.address = ReplicaAddress(1, 7, tuple(map(str, endpoints)))
        await asyncio.Event().wait()

    async def _idle(self, env: Environment) -> None:
        self.streams = LeaderStreams(env, refuse)
        await asyncio.Event().wait()

    def do(self, work: Coroutine[Any, Any, _T]) -> _T:
        task = self.follower.run(work)
        assert self.world.run_until_idle_or(task.done, 30.0)
        return task.result()

    def count_dials(self) -> list[Endpoint]:
        """Return the list to which each attempt from now on is added."""
        env, dialled = self.streams._env, []

        async def dial(endpoint: Endpoint, role: str, handler: Handler) -> Stream:
            dialled.append(endpoint)
            return await original(endpoint, role, handler)

        original, env.dial = env.dial, dial  # type: ignore[method-assign]
        return dialled

    async def open_all(self, count: int) -> list[Stream]:
        return await asyncio.gather(*(self.streams.open(self.address) for _ in range(count)))


@pytest.fixture
def hosts() -> Iterator[TwoHosts]:
    with World(3, settings=CALM) as world:
        yield TwoHosts(world)


def test_all_who_follow_one_process_share_a_stream(hosts: TwoHosts) -> None:
    first, *others = hosts.do(hosts.open_all(50))
    assert all(each is first for each in others)
    assert hosts.do(hosts.streams.open(hosts.address)) is first
    assert len(hosts.accepted) == 1


def test_the_last_one_closes_it_and_the_next_opens_another(hosts: TwoHosts) -> None:
    (stream, *_) = hosts.do(hosts.open_all(3))
    for left in (2, 1, 0):
        hosts.do(hosts.streams.release(hosts.address, stream))
        assert stream.closed.done() == (left == 0)
    again = hosts.do(hosts.streams.open(hosts.address))
    assert again is not stream
    assert not again.closed.done()


def test_a_process_that_is_gone_is_dialled_by_one_for_all_until_it_is_there(hosts: TwoHosts) -> None:
    """Else the thousand followers of a leader that was killed would keep their host from taking over."""
    stream = hosts.do(hosts.streams.open(hosts.address))
    hosts.leader.kill()
    hosts.world.run_until_idle_or(stream.closed.done, 5.0)
    endpoints, dialled = hosts.address.endpoints, hosts.count_dials()
    waiting = hosts.follower.run(hosts.open_all(50))
    hosts.world.run_for(10.0)
    assert not waiting.done()
    assert 10 <= len(dialled) / len(endpoints) <= 30  # the pauses grow to a second
    hosts.leader = hosts.leader.machine.start("leader", hosts._listen)
    assert hosts.world.run_until_idle_or(lambda: hosts.address.endpoints == endpoints and waiting.done(), 5.0)
    assert len({id(each) for each in waiting.result()}) == 1
    hosts.do(hosts.streams.release(hosts.address, stream))  # late, and of no consequence
    assert not waiting.result()[0].closed.done()


def test_a_process_that_nobody_waits_for_any_more_is_dialled_no_more(hosts: TwoHosts) -> None:
    hosts.leader.kill()
    dialled = hosts.count_dials()
    waiting = [hosts.follower.run(hosts.streams.open(hosts.address)) for _ in range(3)]
    hosts.world.run_for(1.0)
    for each in waiting:
        each.cancel()
    hosts.world.run_for(0.1)
    before = len(dialled)
    hosts.world.run_for(10.0)
    assert len(dialled) == before > 0


def test_a_stream_over_which_nothing_is_answered_ends(hosts: TwoHosts) -> None:
    stream = hosts.do(hosts.streams.open(hosts.address))
    hosts.world.run_for(20.0)
    assert not stream.closed.done()
    hosts.leader.pause()
    began = hosts.world.now
    assert hosts.world.run_until_idle_or(stream.closed.done, 10.0)
    assert 3.0 <= hosts.world.now - began <= 5.5
    hosts.leader.resume()
    assert hosts.do(hosts.streams.open(hosts.address)) is not stream


def test_a_user_that_gives_up_while_it_is_opened_leaves_it_to_the_others(hosts: TwoHosts) -> None:
    async def give_up() -> Stream:
        one = asyncio.ensure_future(hosts.streams.open(hosts.address))
        other = asyncio.ensure_future(hosts.streams.open(hosts.address))
        await asyncio.sleep(0)
        one.cancel()
        return await other

    stream = hosts.do(give_up())
    assert not stream.closed.done()
    hosts.do(hosts.streams.release(hosts.address, stream))
    assert stream.closed.done()
    assert len(hosts.accepted) == 1


def test_all_go_with_the_host(hosts: TwoHosts) -> None:
    stream = hosts.do(hosts.streams.open(hosts.address))
    hosts.do(hosts.streams.close())
    assert stream.closed.done()


class _FailsWhenLeft:
    """An environment that answers a cancelled dial with its failure, as a socket does that fails at that moment."""

    async def dial(self, *_: object) -> Stream:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise PeerUnreachable("the leader", "it is gone") from None
        raise AssertionError("the event is never set")


def test_a_failure_after_the_last_user_has_gone_is_not_logged() -> None:
    async def leave_while_it_fails() -> list[object]:
        told: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        streams = LeaderStreams(cast(Environment, _FailsWhenLeft()), refuse)
        user = asyncio.ensure_future(streams.open(ReplicaAddress(1, 7, ("unix:/gone",))))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        user.cancel()
        with pytest.raises(asyncio.CancelledError):
            await user
        del user
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        gc.collect()
        return told

    assert asyncio.run(leave_while_it_fails()) == []
