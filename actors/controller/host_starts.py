"""Starting the processes that host replicas, as many as the brokers ask for (rule 26: the controller is the creator).

    broker wants more ──launcher──► underway ──named in a heartbeat──► it runs
                           ▲            └── ended, refused, not heard of in time ──► pause ──┐
                           └───────────────────────────────────────────────────────────────┘

A broker says in each heartbeat which hosts run on it and how many more there should be. What is in them is its affair.

What must stay true:
- Every host gets an incarnation that no other process of the cluster ever had: controller epoch, then a counter.
- No more are underway for a broker than it wants. Where they keep failing, the pause between two attempts grows, and
  where they are too slow, the time that they are given.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from random import Random
from typing import Final, Protocol

from raylog.actors.controller.changes import ClusterChanges
from raylog.actors.kernel.background import BackgroundTasks
from raylog.actors.kernel.backoff import Backoff
from raylog.actors.kernel.patience import Patience
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.replica_spec import HostSpec
from raylog.errors import HostNotStarted, RaylogError

_LAUNCH_SECONDS: Final = 15.0
_HELLO_SECONDS: Final = 30.0
_LONGEST_HELLO_SECONDS: Final = 240.0
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0

_log = logging.getLogger(__name__)


class HostSupervisor:
    """`next_incarnation` gives one that no other process has."""

    def __init__(
        self,
        changes: ClusterChanges,
        launcher: HostLauncher,
        tasks: BackgroundTasks,
        random: Random,
        cluster_id: str,
        next_incarnation: Callable[[], int],
    ) -> None:
        self._changes = changes
        self._launcher = launcher
        self._tasks = tasks
        self._cluster_id = cluster_id
        self._next_incarnation = next_incarnation
        self._underway: dict[int, dict[int, asyncio.Future[bool]]] = {}  # by broker and incarnation: does it run?
        self._specs: dict[int, HostSpec] = {}  # of those that are underway
        self._wanted: dict[int, int] = {}
        self._random = random
        self._backoffs: dict[int, Backoff] = {}
        self._patience: Patience[int] = Patience(_HELLO_SECONDS, _LONGEST_HELLO_SECONDS)  # by broker
        self._pausing: set[int] = set()
        self._is_stopped = False

    def stop(self) -> None:
        """Start nothing any more."""
        self._is_stopped = True

    async def give_up_all(self) -> None:
        """End processes that have not said hello yet: part of a clean stop of the cluster, after `stop`."""
        await asyncio.gather(*(self._give_up(spec) for spec in list(self._specs.values())))

    def heard(self, broker_id: int, running: Collection[int], wanted: int) -> None:
        """Take note of what a heartbeat of this broker says."""
        underway = self._underway.setdefault(broker_id, {})
        for incarnation in running:
            if (outcome := underway.get(incarnation)) is not None and not outcome.done():
                outcome.set_result(True)
        self._wanted[broker_id] = wanted
        self._start_wanted(broker_id)

    def process_ended(self, spec: HostSpec) -> None:
        """Take note that a process has ended. Before its hello the shell notices that earlier than a time-out does."""
        outcome = self._underway.get(spec.broker_id, {}).get(spec.incarnation)
        if outcome is not None and not outcome.done():
            outcome.set_result(False)

    def _start_wanted(self, broker_id: int) -> None:
        underway = self._underway[broker_id]
        on_their_way = sum(not outcome.done() for outcome in underway.values())
        missing = self._wanted.get(broker_id, 0) - on_their_way
        if self._is_stopped or broker_id in self._pausing or broker_id not in self._changes.live.brokers:
            return
        for _ in range(missing):
            incarnation = self._next_incarnation()
            underway[incarnation] = asyncio.get_running_loop().create_future()
            self._tasks.start(self._bring_up(broker_id, incarnation))

    async def _bring_up(self, broker_id: int, incarnation: int) -> None:
        outcome = self._underway[broker_id][incarnation]
        try:
            spec = self._specs[incarnation] = self._spec(broker_id, incarnation)
            await asyncio.wait_for(self._launcher.start(spec), _LAUNCH_SECONDS)
            await self._hello(broker_id, outcome)
            self._backoffs.pop(broker_id, None)
        except (RaylogError, asyncio.TimeoutError) as error:
            if (spec_then := self._specs.get(incarnation)) is not None:
                self._tasks.start(self._give_up(spec_then))
            await self._pause(broker_id, error)
        finally:
            self._specs.pop(incarnation, None)
            del self._underway[broker_id][incarnation]
        # The next heartbeat says how many are wanted still.

    async def _hello(self, broker_id: int, outcome: asyncio.Future[bool]) -> None:
        """Wait until the process is heard of. HostNotStarted: it has ended, or it is given up."""
        seconds = self._patience.of(broker_id)
        await asyncio.wait([outcome], timeout=seconds)
        if not outcome.done():
            self._patience.was_too_short(broker_id, seconds)
            raise HostNotStarted(broker_id, f"it was not up within {seconds:.0f} s")
        if not outcome.result():
            raise HostNotStarted(broker_id, "it ended before it was heard of")
        self._patience.was_enough(broker_id)

    async def _pause(self, broker_id: int, error: Exception) -> None:
        """Wait, and log why: loudly, once for each step by which the pause grows."""
        if self._is_stopped:
            return
        backoff = self._backoffs.setdefault(broker_id, Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, self._random))
        pause, failures = backoff.next(), backoff.failures
        level = logging.WARNING if backoff.full(failures) < _LONGEST_PAUSE else logging.INFO
        why = "Ray did not take it in time" if isinstance(error, asyncio.TimeoutError) else str(error)
        _log.log(level, "A host of broker %d could not be started, attempt %d: %s", broker_id, failures, why)
        self._pausing.add(broker_id)
        await asyncio.sleep(pause)
        self._pausing.discard(broker_id)

    async def _give_up(self, spec: HostSpec) -> None:
        try:
            await asyncio.wait_for(self._launcher.stop(spec), _LAUNCH_SECONDS)
        except (RaylogError, asyncio.TimeoutError) as error:
            _log.info("%s may still come up, and be refused or used: %r", spec, error)

    def _spec(self, broker_id: int, incarnation: int) -> HostSpec:
        """Return what the process is told. UnknownBroker: it has been removed meanwhile."""
        broker = self._changes.state.broker(broker_id)
        endpoint = Endpoint.parse(broker.endpoints[0])
        return HostSpec(self._cluster_id, broker_id, incarnation, broker.node_id, endpoint)


class HostLauncher(Protocol):
    """Starts processes on their brokers' nodes: the shell through Ray, the simulator by itself.

    Whether they live is found out by their brokers.
    """

    async def start(self, spec: HostSpec) -> None:
        """Returns when the process was asked to start. HostNotStarted: it was not, and will not be."""

    def starts_at_once(self, node_id: str) -> int:
        """The number of processes that are best under way on that node: beyond that they wait there, in no order."""

    async def stop(self, spec: HostSpec) -> None:
        """End a process that is not wanted any more, or never start it. Do nothing where there is none."""
