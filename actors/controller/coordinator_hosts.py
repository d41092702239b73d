"""Keeps a process for coordinators running beside each broker, and knows what is in it. Part of the controller.

    wanted ──launcher──► starting ──hello──► up ──its process has ended, silent──► lost ──► starting …
                            └── not up in time, not started ──► pause ──┘

They stand ready from the moment in which the cluster has coordinators, so to place one costs a message and not the
start of a process. What must stay true:
- A process that runs already, as after the end of an earlier controller, is taken over and not started a second time:
  the launcher finds it by its name.
- Of several that say hello for one broker the last counts. The others are told to end, and so is one that was given up.
- While a broker's process keeps failing, the pauses between attempts grow.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from random import Random
from typing import Any, Final, Protocol

from raylog.actors.controller.changes import ClusterChanges
from raylog.actors.kernel.background import BackgroundTasks, SilenceWatch, Timers
from raylog.actors.kernel.backoff import Backoff
from raylog.actors.kernel.patience import Patience
from raylog.actors.kernel.stream_interface import Stream
from raylog.actors.protocol.coordinator_messages import CoordinatorHostHello, StopCoordinatorHost
from raylog.actors.protocol.coordinator_spec import CoordinatorHostSpec
from raylog.actors.protocol.messages import Message
from raylog.errors import HostNotStarted, RaylogError, StreamError, StreamNotOpen

_LOOK_SECONDS: Final = 5.0
_LAUNCH_SECONDS: Final = 15.0
_UP_SECONDS: Final = 20.0  # from the launch to the hello
_LONGEST_UP_SECONDS: Final = 160.0
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0
_STEADY_SECONDS: Final = 10.0
_PATIENCE_SECONDS: Final = 8.0  # with a process that has not said hello, while others could take its coordinators

_log = logging.getLogger(__name__)


class CoordinatorHostSession:
    """A process that has said hello, over this stream."""

    __slots__ = ("hello", "stream")

    def __init__(self, hello: CoordinatorHostHello, stream: Stream) -> None:
        self.hello = hello
        self.stream = stream


class _Attempt:
    """One life of a broker's process, as the controller sees it."""

    __slots__ = ("began_at", "has_ended", "is_up", "lost")

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.began_at = loop.time()
        self.has_ended = False  # for sure
        self.is_up: asyncio.Future[None] = loop.create_future()
        self.lost: asyncio.Future[str] = loop.create_future()  # why

    async def came_up(self, timeout: float) -> bool:
        either: list[asyncio.Future[Any]] = [self.is_up, self.lost]
        await asyncio.wait(either, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        return self.is_up.done() and not self.lost.done()


class CoordinatorHosts:
    """`want` begins. `on_lost` hears of a broker whose process is lost, why, and of which run it is sure that it ended.
    """

    def __init__(
        self,
        changes: ClusterChanges,
        launcher: CoordinatorLauncher,
        tasks: BackgroundTasks,
        timers: Timers,
        random: Random,
        cluster_id: str,
        on_lost: Callable[[int, str, str], None],
    ) -> None:
        self._changes = changes
        self._launcher = launcher
        self._tasks = tasks
        self._random = random
        self._cluster_id = cluster_id
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._sessions: dict[int, CoordinatorHostSession] = {}  # by broker
        self._by_stream: dict[Stream, CoordinatorHostSession] = {}
        self._attempts: dict[int, _Attempt] = {}
        self._patience: Patience[int] = Patience(_UP_SECONDS, _LONGEST_UP_SECONDS)  # by broker
        self._trouble: dict[int, tuple[int, str]] = {}  # attempts that failed in a row, and why the last did
        self._given_up: set[str] = set()  # by run
        self._kept: set[int] = set()
        self._leases: SilenceWatch[int] = SilenceWatch(timers, self._silent)
        self._news: asyncio.Future[None] = self._loop.create_future()
        self._is_wanted = False
        self._is_stopped = False

    def want(self) -> None:
        """Keep a process beside each broker from now on."""
        if not self._is_wanted:
            self._is_wanted = True
            for broker_id in sorted(self._changes.live.brokers):
                self.check_broker(broker_id)

    def check_broker(self, broker_id: int) -> None:
        """Keep a process beside this broker, if any are wanted. It may have come back on another node."""
        session = self._sessions.get(broker_id)
        if session is not None and not self._is_at_home(session.hello):
            self._dismiss(session, "its broker has moved")
        if self._is_wanted and not self._is_stopped and broker_id not in self._kept:
            self._kept.add(broker_id)
            self._tasks.start(self._keep(broker_id))

    def broker_removed(self, broker_id: int) -> None:
        """End the process of a broker that is no more."""
        session = self._sessions.get(broker_id)
        if session is not None:
            self._dismiss(session, "its broker was removed")

    def stop(self) -> None:
        """Start nothing any more."""
        self._is_stopped = True
        self._leases.close()

    async def end_all(self, timeout: float) -> None:
        """End all processes: part of a clean stop of the cluster, after `stop`."""
        await asyncio.gather(*(self._end(each, timeout) for each in self._sessions.values()))

    # --- what runs ------------------------------------------------------------------------------------------------

    def running(self) -> Collection[int]:
        """Return the brokers whose process is up."""
        return self._sessions.keys()

    def run_of(self, broker_id: int) -> str:
        """Return the run of this broker's process; empty: it is not up."""
        session = self._sessions.get(broker_id)
        return "" if session is None else session.hello.run

    def is_starting(self, broker_id: int) -> bool:
        """Return whether its process is on its way, and nothing has gone wrong yet."""
        if broker_id not in self._kept or broker_id in self._sessions or broker_id in self._trouble:
            return False
        attempt = self._attempts.get(broker_id)
        if attempt is None:
            return True
        return not attempt.lost.done() and self._loop.time() - attempt.began_at < _PATIENCE_SECONDS

    def trouble(self) -> tuple[int, str]:
        """Return the most attempts that failed in a row, and why the last of them did."""
        return max(self._trouble.values(), default=(0, ""))

    def of_stream(self, stream: Stream) -> CoordinatorHostSession | None:
        """Return the process that speaks over this stream. None: it was given up, or has another stream."""
        return self._by_stream.get(stream)

    async def until(self, holds: Callable[[], bool], timeout: float) -> bool:
        """Return whether it holds in time, asked after each hello and each loss."""
        deadline = self._loop.time() + timeout
        while not holds():
            rest = deadline - self._loop.time()
            if rest <= 0:
                return False
            await asyncio.wait([self._news], timeout=rest)
        return True

    async def ask(self, broker_id: int, message: Message, timeout: float) -> None:
        """Have this broker's process carry out an order. StreamNotOpen: there is none just now."""
        session = self._sessions.get(broker_id)
        if session is None:
            raise StreamNotOpen(f"coordinators of broker {broker_id}", "its process does not run")
        await session.stream.request(message, timeout=timeout)

    # --- what is heard --------------------------------------------------------------------------------------------

    def hello(self, hello: CoordinatorHostHello, stream: Stream) -> None:
        """Let a process present itself, perhaps again. One that is not wanted is told to end."""
        before = self._sessions.get(hello.broker_id)
        if hello.run in self._given_up or not self._is_at_home(hello):
            self._send_away(stream)
            return
        if before is not None:
            self._by_stream.pop(before.stream, None)
            if before.hello.run != hello.run:
                self._given_up.add(before.hello.run)
                self._send_away(before.stream)
        session = CoordinatorHostSession(hello, stream)
        self._sessions[hello.broker_id] = self._by_stream[stream] = session
        attempt = self._attempts.get(hello.broker_id)
        if attempt is not None and not attempt.is_up.done():
            attempt.is_up.set_result(None)
        self._trouble.pop(hello.broker_id, None)
        self._leases.watch(hello.broker_id)
        self._tell()

    def heard(self, stream: Stream) -> CoordinatorHostSession | None:
        """Take note of a sign of life. None: this process is not wanted, and is told to end."""
        session = self._by_stream.get(stream)
        if session is None:
            self._send_away(stream)
        else:
            self._leases.heard(session.hello.broker_id)
        return session

    def process_ended(self, spec: CoordinatorHostSpec, run: str) -> None:
        """Take note that a process has ended. The shell notices it earlier than a lease does. An empty run: perhaps."""
        if run and self.run_of(spec.broker_id) not in ("", run):
            return  # another one has its place by now
        attempt = self._attempts.get(spec.broker_id)
        if attempt is not None:
            attempt.has_ended = bool(run)
        self._lost(spec.broker_id, "its process has ended", run)

    def _silent(self, broker_id: int) -> None:
        self._lost(broker_id, "it was silent")

    def _lost(self, broker_id: int, why: str, ended_run: str = "") -> None:
        if self._is_stopped:
            return
        session = self._sessions.pop(broker_id, None)
        if session is not None:
            _log.warning("The process for coordinators of broker %d is lost: %s.", broker_id, why)
            self._by_stream.pop(session.stream, None)
            self._given_up.add(session.hello.run)
            self._leases.forget(broker_id)
        attempt = self._attempts.get(broker_id)
        if attempt is not None and not attempt.lost.done():
            attempt.lost.set_result(why)
        self._on_lost(broker_id, why, ended_run)
        self._tell()

    def _dismiss(self, session: CoordinatorHostSession, why: str) -> None:
        self._send_away(session.stream)
        self._lost(session.hello.broker_id, why)

    def _is_at_home(self, hello: CoordinatorHostHello) -> bool:
        broker = self._changes.state.brokers.get(hello.broker_id)
        return broker is not None and broker.node_id == hello.node_id

    def _send_away(self, stream: Stream) -> None:
        try:
            stream.send(StopCoordinatorHost())
        except StreamError as error:
            _log.info("A process for coordinators is not told to end: %s", error.describe())

    def _tell(self) -> None:
        news, self._news = self._news, self._loop.create_future()
        news.set_result(None)

    # --- one process ----------------------------------------------------------------------------------------------

    async def _keep(self, broker_id: int) -> None:
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, self._random)
        while self._has_place(broker_id):
            if not await self._changes.until(lambda: self._may_start(broker_id), _LOOK_SECONDS):
                continue
            begun = self._loop.time()
            try:
                await self._run_once(broker_id)
            except RaylogError as error:
                attempt = backoff.failures + 1
                self._trouble[broker_id] = attempt, error.describe().rstrip(".")
                _log.warning("The coordinators of broker %d have no process, attempt %d: %s", broker_id, attempt, error)
                self._tell()
            if self._loop.time() - begun > _STEADY_SECONDS:
                backoff.reset()
            await asyncio.sleep(backoff.next())
        self._kept.discard(broker_id)
        self._trouble.pop(broker_id, None)

    def _has_place(self, broker_id: int) -> bool:
        return not self._is_stopped and broker_id in self._changes.state.brokers

    def _may_start(self, broker_id: int) -> bool:
        return not self._has_place(broker_id) or broker_id in self._changes.live.brokers

    async def _run_once(self, broker_id: int) -> None:
        """Start it or take it over, and wait until it is lost."""
        if not self._has_place(broker_id):
            return
        attempt = self._attempts[broker_id] = _Attempt()
        if broker_id in self._sessions:
            attempt.is_up.set_result(None)
        spec = self._spec(broker_id)
        await self._start(spec)
        patience = self._patience.of(broker_id)
        if await attempt.came_up(patience):
            self._patience.was_enough(broker_id)
            await asyncio.wait([attempt.lost])
        if not attempt.has_ended:
            await self._give_up(spec)  # before the next one gets its name
        if not attempt.is_up.done():
            if attempt.lost.done():
                raise HostNotStarted(broker_id, attempt.lost.result())
            self._patience.was_too_short(broker_id, patience)
            raise HostNotStarted(broker_id, f"it was not up within {patience:.0f} s")

    async def _start(self, spec: CoordinatorHostSpec) -> None:
        """One that has said hello already is only to be watched, which may fail: its lease is enough."""
        try:
            await asyncio.wait_for(self._launcher.start(spec), _LAUNCH_SECONDS)
        except (RaylogError, asyncio.TimeoutError) as error:
            if spec.broker_id in self._sessions:
                _log.info("The end of the process for %s will be noticed by its silence: %r", spec, error)
            elif isinstance(error, asyncio.TimeoutError):
                await self._give_up(spec)
                raise HostNotStarted(spec.broker_id, "it was not started in time") from None
            else:
                raise

    async def _give_up(self, spec: CoordinatorHostSpec) -> None:
        """A process that still lives ends when it is heard of again; this speeds it up, and makes its name free."""
        try:
            await asyncio.wait_for(self._launcher.stop(spec), _LAUNCH_SECONDS)
        except (RaylogError, asyncio.TimeoutError) as error:
            _log.info("The process for %s may still live: %r", spec, error)

    async def _end(self, session: CoordinatorHostSession, timeout: float) -> None:
        if not session.stream.closed.done():
            self._send_away(session.stream)
            await asyncio.wait([session.stream.closed], timeout=timeout)

    def _spec(self, broker_id: int) -> CoordinatorHostSpec:
        broker = self._changes.state.broker(broker_id)
        return CoordinatorHostSpec(self._cluster_id, broker_id, broker.node_id, self.endpoints(broker_id))

    def endpoints(self, beside: int) -> tuple[str, ...]:
        """Return where brokers are, for a process beside this one: that one first. UnknownBroker."""
        state = self._changes.state
        nearest = state.broker(beside)
        others = [each for each in state.brokers.values() if each.id != nearest.id and not each.fenced]
        return nearest.endpoints[0], *(each.endpoints[-1] for each in others)


class CoordinatorLauncher(Protocol):
    """Starts processes for coordinators: the shell through Ray, the simulator by itself.

    Whether they live, they tell the controller themselves.
    """

    async def start(self, spec: CoordinatorHostSpec) -> None:
        """Returns when the process was asked to start, or runs already. HostNotStarted: it was not, and will not be."""

    async def stop(self, spec: CoordinatorHostSpec) -> None:
        """End a process that is not wanted any more, or never start it. Do nothing where there is none."""
