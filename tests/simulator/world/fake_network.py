"""The network between simulated machines: who listens where, how long things take, and what can go wrong.

    network = world.network
    network.partition([one], [two, three])       # nothing gets through, in both directions, until `heal`
    network.block(one, two)                       # in this direction only
    network.flap(one, two, seconds=5.0)           # on and off at random
    network.slow_down(one, two, 0.2)              # so much longer
    network.cut(network.streams()[0])             # a stream breaks; or `cut_some(0.3)`

It behaves as TCP does (`pipes.py`). What must stay true:
- Each side of a stream whose peer cannot be reached is told nothing, and gives it up by itself in the end, at a time
  the seed chooses.
- A process that is killed on a living machine ends its streams: its peers hear of it as soon as the network lets them.
  A machine that loses its power tells nobody; once it is up again, it answers what comes on old streams with a reset.
- A cut leaves of what is on its way any part that begins at the beginning; each side notices in its own time.
- A paused process's streams stay open and collect. New ones are made as well, by its kernel, but not admitted.
- Unix sockets are reached from their own machine only, and know no partitions. A port may be given to another process
  after its owner is gone, so an old address can lead to a stranger.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Final, Protocol

from raylog.actors.kernel.stream_interface import Handler, Stream
from raylog.actors.protocol.cluster_secrets import KeyRing
from raylog.actors.protocol.endpoint import Endpoint, StreamLimits
from tests.simulator.world.delays import Delays, Rarely, draw_wide
from tests.simulator.world.fake_streams import FakeServer, FakeStream
from tests.simulator.world.pipes import Link, Node, Pipe
from tests.simulator.world.scheduler import MICROSECONDS, Scheduler
from tests.simulator.world.virtual_loop import VirtualLoop

_FIRST_PORT: Final = 20_000
_PORT_REUSED: Final = 0.3
_RETRY_SECONDS: Final = (1.0, 2.0, 4.0, 8.0)  # as TCP does for a connection
_UNBLOCK_SECONDS: Final = 2.0  # until TCP tries again, at most


class Fail(Protocol):
    def __call__(self, text: str, error: BaseException | None = None) -> None: ...


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """Times in seconds, as (shortest, longest). `drawn` lets the seed choose some."""

    usual_delay: tuple[float, float] = (50e-6, 500e-6)
    local_delay: tuple[float, float] = (10e-6, 100e-6)
    slow_chance: float = 0.01
    slow_delay: tuple[float, float] = (0.001, 0.050)
    stuck_chance: float = 0.0002  # a packet is lost, and lost again
    stuck_delay: tuple[float, float] = (0.2, 3.0)
    silence: tuple[float, float] = (5.0, 60.0)  # until a side gives up a stream whose peer cannot be reached
    notice: tuple[float, float] = (0.0, 2.0)  # from a cut until a side notices
    packed_share: float = 0.25  # of the messages are packed and unpacked; the rest are handed over

    @classmethod
    def drawn(cls, random: Random) -> NetworkSettings:
        return cls(
            slow_chance=random.choice((0.0, 0.01, 0.05)),
            stuck_chance=random.choice((0.0, 0.0002, 0.002)),
            silence=random.choice(((5.0, 20.0), (5.0, 60.0), (60.0, 900.0))),
            packed_share=random.choice((0.05, 0.25, 1.0)),
        )


class Network:
    """All links, streams and listeners of a world."""

    def __init__(
        self,
        scheduler: Scheduler,
        random: Random,
        counters: Counter[str],
        trace: Callable[..., None],
        fail: Fail,
        settings: NetworkSettings | None = None,
    ) -> None:
        self.settings = settings or NetworkSettings.drawn(random)
        self.limits = StreamLimits()
        self.trace = trace
        self._scheduler = scheduler
        self._random = random
        self._counters = counters
        self._fail = fail
        self._delays = self._delays_of(self.settings.usual_delay)
        self._local_delays = self._delays_of(self.settings.local_delay)
        self._nodes: dict[str, Node] = {}
        self._links: dict[tuple[str, str], Link] = {}
        self._streams: dict[int, FakeStream] = {}  # both sides, connected
        self._servers: dict[tuple[str, str | int], FakeServer] = {}  # by machine, and path or port
        self._last_port = _FIRST_PORT
        self._old_ports: dict[str, list[int]] = {}
        self._last_serial = 0

    # --- faults ---------------------------------------------------------------------------------------------------

    def block(self, source: Node, target: Node) -> None:
        """Nothing gets from `source` to `target`; the other direction stays as it is."""
        link = self._link(source, target)
        if source is target or link.is_blocked:
            return
        link.is_blocked = True
        link.blocks += 1
        self._counters["links blocked"] += 1
        self.trace("link {} → {} is blocked", source.name, target.name)
        for stream in list(self._streams.values()):
            far = stream.far
            assert far is not None
            if {stream.node.name, far.node.name} == {source.name, target.name}:
                self._watch(stream)

    def unblock(self, source: Node, target: Node) -> None:
        link = self._link(source, target)
        if link.is_blocked:
            link.is_blocked = False
            self.trace("link {} → {} is open", source.name, target.name)
            self._unstick(link)

    def is_blocked(self, source: Node, target: Node) -> bool:
        return self._link(source, target).is_blocked

    def partition(self, some: Iterable[Node], others: Iterable[Node]) -> None:
        """Nothing gets through between the two groups."""
        others = list(others)
        for one in some:
            for other in others:
                self.block(one, other)
                self.block(other, one)

    def isolate(self, node: Node) -> None:
        """Nothing gets through between this machine and all others."""
        self.partition([node], [other for other in self._nodes.values() if other is not node])

    def heal(self) -> None:
        """Open all links, at their usual speed. What waits arrives, where its stream still lives."""
        for source in self._nodes.values():
            for target in self._nodes.values():
                self.unblock(source, target)
                self._link(source, target).slow_down(0)

    def slow_down(self, source: Node, target: Node, seconds: float) -> None:
        """Delay all that goes from `source` to `target` by so much from now on."""
        self.trace("link {} → {} is slower by {} s", source.name, target.name, seconds)
        self._link(source, target).slow_down(int(seconds * MICROSECONDS))

    def flap(self, one: Node, other: Node, seconds: float) -> None:
        """Block and unblock, in one or both directions, at random for so long; in the end both are open."""
        self._flap(one, other, self._scheduler.now + int(seconds * MICROSECONDS))

    def streams(self) -> list[FakeStream]:
        """Return the living streams, each as the side that dialled, in the order in which they were connected."""
        return [stream for stream in self._streams.values() if stream.is_dialler]

    def endpoints_of(self, loop: VirtualLoop) -> list[Endpoint]:
        """Return where others reach this process over the network."""
        return [
            Endpoint(host=node, port=place)
            for (node, place), server in self._servers.items()
            if server.loop is loop and isinstance(place, int)
        ]

    def cut(self, stream: FakeStream) -> None:
        """Break a stream. What is on its way may arrive or not, and each side notices in its own time."""
        self._counters["streams cut"] += 1
        self.trace("{}: cut", stream.label)
        for side in (stream, stream.far):
            if side is not None and side.out is not None and not side.out.is_cut:
                side.out.lose_all_but(self._random.randint(0, len(side.out)))
                side.out.end("the connection was reset", self._draw(self.settings.notice))

    def cut_some(self, chance: float) -> None:
        """Cut each stream with this chance."""
        for stream in self.streams():
            if self._random.random() < chance:
                self.cut(stream)

    # --- what environments ask ------------------------------------------------------------------------------------

    async def dial(
        self, loop: VirtualLoop, node: Node, keys: KeyRing, endpoint: Endpoint, role: str, handler: Handler
    ) -> FakeStream:
        """See `Environment.dial`."""
        stream = FakeStream(self, loop, node, keys, handler, str(endpoint))
        stream.is_dialler = True
        self._later(self._link(node, node).next_delay(), self._knock, stream, endpoint, role, 0)
        try:
            await stream.admitted
        except asyncio.CancelledError:
            stream.refused("it was given up")
            raise
        return stream

    def listen(
        self,
        loop: VirtualLoop,
        node: Node,
        keys: KeyRing,
        name: str,
        role: str,
        handler: Handler,
        on_stream: Callable[[Stream], None] | None,
    ) -> tuple[FakeServer, tuple[Endpoint, ...]]:
        """See `Environment.listen`. As with real sockets, who listens under a taken path takes it over."""
        server = FakeServer(self, loop, node, keys, role, handler, on_stream)
        path, port = f"/run/{node.name}/{name}", self._free_port(node)
        if not loop.is_dead:
            self._servers[node.name, path] = self._servers[node.name, port] = server
        return server, (Endpoint(path=path), Endpoint(host=node.name, port=port))

    # --- what machines tell ---------------------------------------------------------------------------------------

    def add_node(self, node: Node) -> None:
        self._nodes[node.name] = node

    def process_ended(self, loop: VirtualLoop) -> None:
        """Close the streams and listeners of a process, as its kernel does."""
        for stream in [stream for stream in self._streams.values() if stream.loop is loop]:
            stream.vanish()
            assert stream.out is not None
            if self._random.random() < 0.5:  # there was something it had not read
                stream.out.lose_all_but(self._random.randint(0, len(stream.out)))
            stream.out.end("the other side went away")
        for key in [key for key, server in self._servers.items() if server.loop is loop]:
            self._stop_listening(key)

    def machine_lost_power(self, node: Node) -> None:
        """End all streams of a machine without a word. Frames that have left it are still on their way."""
        for stream in list(self._streams.values()):
            assert stream.out is not None
            assert stream.far is not None
            if stream.node is node:
                stream.vanish()
                stream.out.vanish(self._random.randint(0, len(stream.out)))
            elif stream.far.node is node:
                self._watch(stream)
        for (source, _), link in self._links.items():
            if source == node.name:
                for pipe in link.stuck:
                    pipe.vanish()
        for key in [key for key, server in self._servers.items() if server.node is node]:
            self._stop_listening(key)

    def machine_is_up(self, node: Node) -> None:
        for (_, target), link in self._links.items():
            if target == node.name:
                self._unstick(link)

    # --- what streams and servers ask -----------------------------------------------------------------------------

    def next_serial(self) -> int:
        self._last_serial += 1
        return self._last_serial

    def is_packed(self) -> bool:
        """Whether the next message is really packed."""
        return self._random.random() < self.settings.packed_share

    def count_delivered(self) -> None:
        self._counters["messages"] += 1

    def fail(self, text: str, error: BaseException | None = None) -> None:
        self._fail(text, error)

    def forget(self, stream: FakeStream) -> None:
        self._streams.pop(stream.serial, None)

    def stop_listening(self, server: FakeServer) -> None:
        for key in [key for key, each in self._servers.items() if each is server]:
            self._stop_listening(key)

    # --- making connections ---------------------------------------------------------------------------------------

    def _knock(self, stream: FakeStream, endpoint: Endpoint, role: str, attempt: int) -> None:
        """Let the dialler's first packet arrive, or not. A dialler that has given up is over."""
        node = stream.node if endpoint.is_unix else self._nodes.get(endpoint.host)
        if stream.is_over or stream.loop.is_dead:
            return
        if node is None:
            stream.loop.deliver(stream.refused, "no machine has that name")
        elif not node.is_up or self.is_blocked(stream.node, node):
            wait = int(_RETRY_SECONDS[min(attempt, len(_RETRY_SECONDS) - 1)] * MICROSECONDS)
            self._later(wait, self._knock, stream, endpoint, role, attempt + 1)
        elif (server := self._servers.get((node.name, endpoint.path or endpoint.port))) is not None:
            self._connect(stream, server, endpoint, role)
        elif not self.is_blocked(node, stream.node):
            delay = self._link(node, stream.node).next_delay()
            self._later(delay, stream.loop.deliver, stream.refused, "connection refused")

    def _connect(self, stream: FakeStream, server: FakeServer, endpoint: Endpoint, role: str) -> None:
        accepted = FakeStream(
            self, server.loop, server.node, server.keys, server.handler, f"a peer of {endpoint}"
        )
        there = Pipe(self._scheduler, self._link(stream.node, server.node), stream, accepted)
        back = Pipe(self._scheduler, self._link(server.node, stream.node), accepted, stream)
        self._streams[stream.serial] = stream
        self._streams[accepted.serial] = accepted
        accepted.connected(server.role, stream, back)
        server.accepted(accepted)
        stream.connected(role, accepted, there)
        stream.say_hello()

    def _free_port(self, node: Node) -> int:
        old = self._old_ports.get(node.name)
        if old and self._random.random() < _PORT_REUSED:
            return old.pop(self._random.randrange(len(old)))
        self._last_port += 1
        return self._last_port

    def _stop_listening(self, key: tuple[str, str | int]) -> None:
        del self._servers[key]
        node, place = key
        if isinstance(place, int):
            self._old_ports.setdefault(node, []).append(place)

    # --- links ----------------------------------------------------------------------------------------------------

    def _link(self, source: Node, target: Node) -> Link:
        link = self._links.get((source.name, target.name))
        if link is None:
            link = Link(self._local_delays if source is target else self._delays)
            self._links[source.name, target.name] = link
        return link

    def _unstick(self, link: Link) -> None:
        stuck, link.stuck = link.stuck, []
        for pipe in stuck:
            pipe.go_on(self._draw((0.0, _UNBLOCK_SECONDS)))

    def _flap(self, one: Node, other: Node, end: int) -> None:
        if self._scheduler.now >= end:
            self.unblock(one, other)
            self.unblock(other, one)
            return
        for source, target in ((one, other), (other, one)):
            (self.block if self._random.random() < 0.5 else self.unblock)(source, target)
        pause = self._draw((0.001, 1.0))
        self._scheduler.at(min(self._scheduler.now + pause, end), self._flap, one, other, end)

    # --- silence --------------------------------------------------------------------------------------------------

    def _watch(self, stream: FakeStream) -> None:
        """Watch a stream whose peer cannot be reached. If that stays so, it gives up after a while."""
        assert stream.far is not None
        links = self._link(stream.node, stream.far.node), self._link(stream.far.node, stream.node)
        blocks = tuple(link.blocks if link.is_blocked else -1 for link in links)
        self._later(self._draw(self.settings.silence), self._check_silence, stream, links, blocks)

    def _check_silence(self, stream: FakeStream, links: tuple[Link, Link], blocks: tuple[int, int]) -> None:
        assert stream.far is not None
        still = any(link.is_blocked and link.blocks == count for link, count in zip(links, blocks, strict=True))
        if not stream.is_over and (still or stream.far.is_over):
            self.trace("{}: gives up, nothing was heard for long", stream.label)
            stream.loop.deliver(stream.ended, "nothing was heard of it for long")

    # --- chance ---------------------------------------------------------------------------------------------------

    def _later(self, delay: int, callback: Callable[..., object], *args: object) -> None:
        self._scheduler.after(delay, callback, *args)

    def _draw(self, seconds: tuple[float, float]) -> int:
        """Microseconds."""
        return draw_wide(self._random.random(), *_microseconds(seconds))

    def _delays_of(self, usual: tuple[float, float]) -> Delays:
        settings = self.settings
        slow = Rarely(settings.slow_chance, *_microseconds(settings.slow_delay))
        stuck = Rarely(settings.stuck_chance, *_microseconds(settings.stuck_delay))
        return Delays(self._random, *_microseconds(usual), slow, stuck)


def _microseconds(seconds: tuple[float, float]) -> tuple[int, int]:
    return round(seconds[0] * MICROSECONDS), round(seconds[1] * MICROSECONDS)
