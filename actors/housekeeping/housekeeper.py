"""The housekeeping process of one broker: it compacts the logs of its replicas, one at a time, and scrubs them.

    replica ──CompactLog──► waiting (bounded, first come first served) ──► off the loop ──► LogCompacted
    broker  ◄──HousekeeperHello──  until one of them ends

What must stay true:
- Nothing depends on it but time and disk space. It writes files under names of their own beside a log's, and the log's
  owner alone puts them in place; so it may be killed, stopped or replaced at any moment.
- A compaction that nobody waits for any more is not begun; one that is under way is given up at its next batch.
- All compactions of a broker share one budget of memory.
- A process that has had nothing to do for a while ends. Its broker has it started again when there is work.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, Final

from raylog.actors.housekeeping.compaction_messages import log_compacted, plan_of
from raylog.actors.housekeeping.scrubber import Scrubber
from raylog.actors.kernel.background import BackgroundTasks
from raylog.actors.kernel.environment import Environment
from raylog.actors.kernel.metrics import Reading
from raylog.actors.kernel.stream_interface import Answer, Dispatch, Request, Response, Stream, unknown
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.housekeeping_messages import (
    CompactLog,
    HousekeeperHello,
    StopHousekeeper,
    SuspectReplica,
)
from raylog.actors.protocol.secret_messages import KeepSecrets
from raylog.errors import (
    CompactionAbandoned,
    CompactionOutdated,
    HousekeeperBusy,
    InvalidRequest,
    RaylogError,
    StreamNotOpen,
)
from raylog.storage.compaction import plan_files
from raylog.storage.compaction.cleaner import CompactionReport, run_compaction
from raylog.storage.compaction.key_map import DEFAULT_BUDGET_BYTES, MemoryBudget

MAX_WAITING: Final = 64
_REDIAL_SECONDS: Final = 0.5
_ASK_SECONDS: Final = 5.0
_SUSPICION_SECONDS: Final = 15.0
_LONELY_SECONDS: Final = 60.0  # without a broker; whoever starts that again starts this again

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HousekeeperSpec:
    """Settings that a housekeeping process gets at its start."""

    broker_id: int
    broker: Endpoint
    directory: str  # of the broker: nothing outside of it is touched
    cluster: str = ""  # its name, for metrics
    budget_bytes: int = DEFAULT_BUDGET_BYTES
    idle_seconds: float = inf  # without work, after which it ends


class _Job:
    """A compaction that was asked for."""

    def __init__(self, asked: CompactLog, stream: Stream, over: asyncio.Future[object]) -> None:
        self.asked = asked
        self.done: asyncio.Future[Response | RaylogError] = asyncio.get_running_loop().create_future()
        self._stream = stream
        self._over = over

    def is_wanted(self) -> bool:
        """Called from another thread, too."""
        return not self._stream.closed.done() and not self._over.done()


class Housekeeper:
    """The core of a housekeeping process. `run` returns when the process is to end."""

    def __init__(self, env: Environment, spec: HousekeeperSpec, pid: int) -> None:
        self._env = env
        self._spec = spec
        self._pid = pid
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[object] = self._loop.create_future()  # its result says why
        self._tasks = BackgroundTasks(self._end)
        self._budget = MemoryBudget(spec.budget_bytes)
        self._orders: Dispatch[Callable[[Any], None]] = Dispatch(
            {KeepSecrets: self._keep_secrets, StopHousekeeper: self._stop}
        )
        self._waiting: deque[_Job] = deque()
        self._worked_at = self._loop.time()
        self._is_working = False
        self._arrived = asyncio.Event()
        self._stream: Stream | None = None  # to the broker
        self._scrubber = Scrubber(env, spec.directory, self._tell_suspicion)

    async def run(self) -> str:
        """Live until the broker says that it is over, or is gone for long. Returns why."""
        server, endpoints = await self._env.listen(f"housekeeper-{self._spec.broker_id}", "housekeeper", self.handle)
        self._tasks.start(self._work())
        self._tasks.start(self._scrubber.run())
        self._tasks.start(self._keep_broker(endpoints))
        if self._spec.idle_seconds < inf:
            self._tasks.start(self._end_when_idle())
        reason = await self._over
        await self._tasks.close()
        await server.close(timeout=1.0)
        if isinstance(reason, BaseException):
            raise reason
        return str(reason)

    def _end(self, reason: object) -> None:
        if not self._over.done():
            self._over.set_result(reason)

    async def _end_when_idle(self) -> None:
        while (left := self._seconds_left()) > 0:
            await asyncio.sleep(left)
        self._end("it has nothing to do")

    def _seconds_left(self) -> float:
        """Return how long it lives on, unless there is work. With work under way that is the whole time."""
        read_at = self._scrubber.idle_since
        if self._waiting or self._is_working or read_at is None:
            return self._spec.idle_seconds
        return max(read_at, self._worked_at) + self._spec.idle_seconds - self._loop.time()

    # --- being asked ----------------------------------------------------------------------------------------------

    def handle(self, request: Request) -> Answer | Awaitable[Answer]:
        """The handler of the streams of replicas."""
        asked = request.message
        if not isinstance(asked, CompactLog):
            raise unknown(asked)
        if not asked.directory.startswith(f"{self._spec.directory}/") or "/../" in f"{asked.directory}/":
            raise InvalidRequest(f"{asked.directory} is not a replica of broker {self._spec.broker_id}.")
        if not asked.segments or not asked.run.isalnum():
            raise InvalidRequest(f"A compaction of {asked.directory} has no segments, or no name.")
        if len(self._waiting) >= MAX_WAITING:
            raise HousekeeperBusy(len(self._waiting))
        job = _Job(asked, request.stream, self._over)
        self._waiting.append(job)
        self._arrived.set()
        return self._answer(job)

    @staticmethod
    async def _answer(job: _Job) -> Answer:
        outcome = await job.done
        if isinstance(outcome, RaylogError):
            raise outcome
        return outcome

    # --- working --------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        while True:
            if not self._waiting:
                self._arrived.clear()
                await self._arrived.wait()
            job = self._waiting.popleft()
            self._is_working = True
            job.done.set_result(await self._carry_out(job))
            self._is_working, self._worked_at = False, self._loop.time()

    async def _carry_out(self, job: _Job) -> Response | RaylogError:
        directory = job.asked.directory
        if not job.is_wanted():
            return CompactionAbandoned(directory)
        begun = self._loop.time()
        try:
            report = await self._env.off_loop(partial(self._compact, job))
        except RaylogError as error:
            _log.info("The compaction of %s came to nothing: %s", directory, error)
            return error
        _log.info("%s was compacted in %.1f s.", directory, self._loop.time() - begun)
        return Response(log_compacted(report))

    def _compact(self, job: _Job) -> CompactionReport:
        asked, disk = job.asked, self._env.disk
        limit = asked.segments[-1][1]
        try:
            with plan_files.opened(disk, asked.directory, limit, asked.run) as (aborted_later, last_writes):
                plan = plan_of(asked, aborted_later, last_writes)
                return run_compaction(disk, plan, self._budget, job.is_wanted)
        except FileNotFoundError:  # nobody waits for this one any more
            raise CompactionOutdated(asked.segments[0][0], limit) from None

    # --- the broker -----------------------------------------------------------------------------------------------

    async def _keep_broker(self, endpoints: tuple[Endpoint, ...]) -> None:
        hello = HousekeeperHello(self._pid, tuple(map(str, endpoints)))
        last_seen = self._loop.time()
        while self._loop.time() - last_seen < _LONELY_SECONDS:
            try:
                stream = await self._env.dial(self._spec.broker, "housekeeper", self._from_broker)
                await stream.request(hello, timeout=_ASK_SECONDS)
                self._stream = stream
                await stream.closed
                last_seen = self._loop.time()
            except RaylogError as error:
                _log.info("The housekeeping of broker %d is without it: %s", self._spec.broker_id, error)
            await asyncio.sleep(_REDIAL_SECONDS * (1 + self._env.random.random()))
        self._end("its broker is gone")

    async def _tell_suspicion(self, topic_id: bytes, partition: int, offset: int) -> None:
        if self._stream is None:
            raise StreamNotOpen("the broker", "it is looked for again")
        await self._stream.request(SuspectReplica(topic_id, partition, offset), timeout=_SUSPICION_SECONDS)

    def readings(self) -> Iterator[Reading]:
        """Metrics of this process."""
        return self._scrubber.readings()

    def _from_broker(self, request: Request) -> Answer:
        self._orders.handler_of(request.message)(request.message)
        return None

    def _keep_secrets(self, order: KeepSecrets) -> None:
        self._env.keys.adopt(order.secrets)

    def _stop(self, _: StopHousekeeper) -> None:
        self._end("its broker stopped it")
