"""The processes of one broker that host its replicas: who runs, what each of them holds, who waits for a place.

    says hello ──► spare ──first replica──► own or shared ──► lost: its stream ended, it was silent too long, or it had
                                                                    to be killed

What must stay true (rules 26, 35):
- A host that was lost is killed by its pid, and never counts again; each replica in it is lost with it, at once.
- What a host holds is known from the order to open it until its log is closed: so no other host is told to open it.
- During a clean stop nobody is lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from raylog.actors.cluster.partition import PartitionId
from raylog.actors.cluster.placement.hosts import (
    HostLimits,
    HostLoad,
    WrittenBytes,
    least_loaded,
    room_for,
    wanted_hosts,
)
from raylog.actors.kernel.background import SILENCE_SECONDS, BackgroundTasks, SilenceWatch, Timers
from raylog.actors.kernel.environment import Environment
from raylog.actors.kernel.stream_interface import Response, Stream
from raylog.actors.protocol.control_messages import Setting
from raylog.actors.protocol.host_messages import (
    OWN,
    SHARED,
    SPARE,
    HostHello,
    OpenReplicas,
    ReplicaToOpen,
    StopHost,
    StopReplica,
)
from raylog.actors.protocol.messages import Message
from raylog.errors import HostNotWanted, StreamError

END_SECONDS: Final = 2.0  # for a host or a replica that has been told to end
_ORDER_SECONDS: Final = 5.0

_log = logging.getLogger(__name__)


class ReplicaOrder(NamedTuple):
    """A replica that is to be opened. Its directory is free."""

    topic: str
    topic_id: bytes
    partition: int
    incarnation: int
    settings: tuple[Setting, ...]
    directory: str
    policy: str  # replica.host of its topic
    is_internal: bool

    @property
    def id(self) -> PartitionId:
        return self.topic_id, self.partition

    def row(self) -> ReplicaToOpen:
        """Return it as it stands in the message to its host."""
        return ReplicaToOpen(
            self.topic, self.topic_id, self.partition, self.incarnation, self.settings, self.directory
        )


class HostSession:
    """A host that runs. `replicas` are those that it opens, has open, or closes, with their incarnations.

    `is_ending`: it has been told to close the only replica that it had, and then ends by itself.
    """

    __slots__ = ("hello", "is_ending", "replicas", "room", "stream", "written")

    def __init__(self, hello: HostHello, stream: Stream) -> None:
        self.hello = hello
        self.stream = stream
        self.room = hello.room
        self.replicas: dict[PartitionId, int] = {}
        self.is_ending = False
        self.written = WrittenBytes()

    @property
    def incarnation(self) -> int:
        return self.hello.incarnation

    def __str__(self) -> str:
        return f"{self.room} host {self.incarnation:#x} (pid {self.hello.pid})"


class ReplicaHosts:
    """`on_lost` hears which host is no more, and why; `on_change` that there is something new to report."""

    def __init__(
        self,
        env: Environment,
        timers: Timers,
        tasks: BackgroundTasks,
        limits: Callable[[], HostLimits],
        on_lost: Callable[[HostSession, str], None],
        on_change: Callable[[], None],
    ) -> None:
        self._env = env
        self._tasks = tasks
        self._limits = limits
        self._on_lost = on_lost
        self._on_change = on_change
        self._hosts: dict[int, HostSession] = {}  # by incarnation
        self._by_stream: dict[Stream, HostSession] = {}
        self._lost: set[int] = set()
        self._waiting: dict[PartitionId, tuple[ReplicaOrder, str]] = {}  # for a host with such a room
        self._unsent: dict[int, list[ReplicaOrder]] = {}  # by the host that is to be told at the end of this turn
        self._watch: SilenceWatch[int] = SilenceWatch(timers, self._silent)
        self._timers = timers
        self._is_stopping = False

    # --- who runs -------------------------------------------------------------------------------------------------

    def all(self) -> list[HostSession]:
        return list(self._hosts.values())

    def of_stream(self, stream: Stream) -> HostSession | None:
        return self._by_stream.get(stream)

    def holding(self, partition: PartitionId) -> HostSession | None:
        """Return the host that has this replica, open or not yet."""
        return next((each for each in self._hosts.values() if partition in each.replicas), None)

    def present(self, partition: PartitionId) -> int | None:
        """Return the incarnation of this replica that a host has, or that waits for one."""
        if (waiting := self._waiting.get(partition)) is not None:
            return waiting[0].incarnation
        host = self.holding(partition)
        return None if host is None else host.replicas[partition]

    def running(self) -> tuple[int, ...]:
        """Return their incarnations."""
        return tuple(self._hosts)

    def wanted(self) -> int:
        """Return how many more there should be."""
        if self._is_stopping:
            return 0
        rooms = [each.room for each in self._hosts.values()]
        waiting = [room for _, room in self._waiting.values()]
        return wanted_hosts(rooms.count(SPARE), rooms.count(SHARED), waiting, self._limits())

    def hello(self, hello: HostHello, stream: Stream) -> None:
        """Let a host present itself, perhaps again. HostNotWanted: it was given up, and is killed if it does not end.

        The same where this broker is about to end: nothing may hold its directories after it.
        """
        if self._is_stopping:
            self._env.kill(hello.pid)
            raise HostNotWanted(hello.incarnation, "its broker is about to end")
        if hello.incarnation in self._lost:
            self._kill_later(hello.pid, stream)
            raise HostNotWanted(hello.incarnation, "it was given up")
        before = self._hosts.get(hello.incarnation)
        session = HostSession(hello, stream)
        if before is not None:
            self._by_stream.pop(before.stream, None)
            session.replicas, session.room = before.replicas, before.room  # an order may be under way
            session.written = before.written
        self._hosts[hello.incarnation] = self._by_stream[stream] = session
        self._watch.watch(hello.incarnation)
        stream.closed.add_done_callback(lambda _: self._stream_ended(session))
        self._fill()
        self._on_change()

    def heard(self, stream: Stream) -> HostSession | None:
        """Take note of a sign of life."""
        host = self._by_stream.get(stream)
        if host is not None:
            self._watch.heard(host.incarnation)
        return host

    # --- places ---------------------------------------------------------------------------------------------------

    def open(self, order: ReplicaOrder) -> None:
        """Have a host open it, as soon as there is one with room. See `has_place`."""
        own_now = sum(each.room == OWN for each in self._hosts.values())
        own_now += sum(room == OWN for _, room in self._waiting.values())
        room = room_for(order.policy, is_internal=order.is_internal, own_now=own_now, limits=self._limits())
        self._waiting[order.id] = order, room
        self._fill()
        self._on_change()

    def has_place(self, partition: PartitionId) -> bool:
        """Whether a shared host has it, so that no process has to be started for it."""
        host = self.holding(partition)
        return host is not None and host.room == SHARED

    def cancel(self, partition: PartitionId) -> None:
        """Open it no more, if no host has it yet."""
        self._waiting.pop(partition, None)

    def _fill(self) -> None:
        for order, room in list(self._waiting.values()):
            host = self._with_room(room)
            if host is not None:
                del self._waiting[order.id]
                host.room = room
                host.replicas[order.id] = order.incarnation
                self._tell_soon(host, order)

    def _with_room(self, room: str) -> HostSession | None:
        spare = next((each for each in self._hosts.values() if each.room == SPARE), None)
        shared = [each for each in self._hosts.values() if each.room == SHARED]
        if room == OWN or (spare is not None and len(shared) < self._limits().shared):
            return spare
        now = asyncio.get_running_loop().time()
        loads = [HostLoad(len(each.replicas), each.written.at(now)) for each in shared]
        return shared[least_loaded(loads)] if loads else None

    def _tell_soon(self, host: HostSession, order: ReplicaOrder) -> None:
        """Tell the host at the end of this turn, of all at once that it is to open by then."""
        unsent = self._unsent.setdefault(host.incarnation, [])
        unsent.append(order)
        if len(unsent) == 1:
            self._tasks.start(self._have_opened(host.incarnation))

    async def _have_opened(self, incarnation: int) -> None:
        orders, host = self._unsent.pop(incarnation), self._hosts.get(incarnation)
        if host is None:  # it was lost in this very turn, with all that it was to open
            return
        try:
            await self._ask(host, OpenReplicas(host.room, tuple(order.row() for order in orders)), _ORDER_SECONDS)
        except StreamError as error:
            if self._hosts.get(incarnation) is host:
                first = orders[0]
                what = f"{first.topic}-{first.partition}" + (f" and {len(orders) - 1} more" if orders[1:] else "")
                self.kill(host, f"it was told to open {what}: {error.describe()}")

    # --- ending ---------------------------------------------------------------------------------------------------

    def kill(self, host: HostSession, why: str) -> None:
        """Kill it at once, with all that is in it."""
        self._env.kill(host.hello.pid)
        if self._hosts.get(host.incarnation) is host:
            _log.warning("The %s is killed: %s.", host, why)
            self._lose(host, why)

    def free(self, pid: int, *, is_late: bool) -> None:
        """End who holds a directory that has to be free. A shared host lets go of it itself, and is killed if late."""
        host = next((each for each in self._hosts.values() if each.hello.pid == pid), None)
        if host is None:
            self._env.kill(pid)
        elif host.room != SHARED or is_late:
            self.kill(host, "it held on to a directory")

    async def end_replica(
        self, host: HostSession, partition: PartitionId, incarnation: int, *, is_kept: bool = True
    ) -> None:
        """Have it closed. Returns when that is done, or its host was killed because it took too long.

        `is_kept`: its directory, which else is about to be removed.
        """
        host.is_ending = host.room == OWN
        try:
            await self._ask(host, StopReplica(*partition, incarnation, is_kept), END_SECONDS)
        except StreamError as error:
            if self._hosts.get(host.incarnation) is host:
                if host.is_ending and host.stream.closed.done():  # as it should; who asks a second time finds it so
                    self._ends(host)
                else:
                    self.kill(host, f"a replica in it did not end: {error.describe()}")
            return
        if host.replicas.get(partition) == incarnation:
            del host.replicas[partition]
        if host.is_ending:
            self._kill_later(host.hello.pid, host.stream)

    async def stop_all(self, seconds: float) -> None:
        """End all of them: the clean stop of this broker."""
        self._is_stopping = True
        self._waiting.clear()
        self._watch.close()
        await asyncio.gather(*(self._stop(host, seconds) for host in self.all()))

    async def _stop(self, host: HostSession, seconds: float) -> None:
        deadline = asyncio.get_running_loop().time() + seconds
        try:
            await self._ask(host, StopHost(), seconds)
        except StreamError as error:
            _log.info("The %s was told to stop: %s", host, error.describe())
        rest = deadline - asyncio.get_running_loop().time()
        if not host.stream.closed.done() and rest > 0:
            await asyncio.wait([host.stream.closed], timeout=rest)
        if not host.stream.closed.done():
            _log.warning("The %s did not end within %.1f s and is killed.", host, seconds)
            self._env.kill(host.hello.pid)

    async def _ask(self, host: HostSession, message: Message, seconds: float) -> Response:
        return await host.stream.request(message, timeout=seconds)

    def _stream_ended(self, host: HostSession) -> None:
        self._by_stream.pop(host.stream, None)
        if self._hosts.get(host.incarnation) is host and not self._is_stopping:
            if host.is_ending:
                self._ends(host)
            else:
                self._env.kill(host.hello.pid)
                self._lose(host, "its stream ended")

    def _ends(self, host: HostSession) -> None:
        """Leave its process the time to end. Killed at once, it would be a crash that Ray tells every driver of."""
        self._timers.after(END_SECONDS * 1000, partial(self._env.kill, host.hello.pid))
        self._lose(host, "its stream ended")

    def _silent(self, incarnation: int) -> None:
        host = self._hosts.get(incarnation)
        if host is not None:
            self.kill(host, f"it was silent for {SILENCE_SECONDS} s")

    def _lose(self, host: HostSession, why: str) -> None:
        del self._hosts[host.incarnation]
        self._by_stream.pop(host.stream, None)
        self._watch.forget(host.incarnation)
        self._lost.add(host.incarnation)
        self._on_lost(host, why)
        self._on_change()

    def _kill_later(self, pid: int, stream: Stream) -> None:
        self._timers.after(END_SECONDS * 1000, partial(self._kill_unless_ended, pid, stream))

    def _kill_unless_ended(self, pid: int, stream: Stream) -> None:
        if not stream.closed.done():
            self._env.kill(pid)
