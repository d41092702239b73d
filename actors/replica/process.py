"""The process of one replica: it opens the log, says hello to its broker, and does what the broker passes on.

    OPENING   recovery of the log                        ends: damage and refusals are told to the broker
    SERVING   with a broker, or looking for one again    StopReplica · the log fails · a later incarnation: over
    OVER      the log is closed

What must stay true:
- The broker hears of this replica before anybody else relies on it; a broker that went away is dialled again and hears
  all of it anew. Meanwhile the replica goes on: its broker is not in the path of data.
- A process ends by itself only after its log is closed, or has gone offline.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from raylog.actors.housekeeping.calls import HousekeeperCalls
from raylog.actors.kernel.background import Timers
from raylog.actors.kernel.environment import Environment, Server
from raylog.actors.kernel.metrics import (
    HIGH_WATERMARK,
    IS_LEADER,
    LOG_END_OFFSET,
    LOG_SIZE_BYTES,
    LOG_START_OFFSET,
    Reading,
)
from raylog.actors.kernel.stream_interface import Answer, Dispatch, Request, Response, Stream, unknown
from raylog.actors.protocol.control_messages import (
    Assign,
    ProposeIsr,
    ReplicaFailed,
    ReplicaHello,
    StandDown,
    StopReplica,
)
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.messages import CLIENT_MESSAGE_BYTES, Message
from raylog.actors.protocol.replica_spec import ReplicaSpec
from raylog.actors.protocol.replication_messages import SuspectBatch
from raylog.actors.protocol.secret_messages import KeepSecrets
from raylog.actors.replica.damage_care import DamageCare
from raylog.actors.replica.hosted_log import HostedLog, PartitionName, ReplicaCalls
from raylog.actors.replica.parked_appends import TransactionJoins
from raylog.actors.replica.replica import Replica
from raylog.actors.replica.rules.counters import ReplicaCounters
from raylog.actors.replica.upkeep import LogUpkeep
from raylog.errors import (
    EligibleLeadersNotAvailable,
    LogDamaged,
    RaylogError,
    StreamError,
    StreamNotOpen,
)
from raylog.storage.directory.partition_directory import PartitionIdentity
from raylog.storage.log.partition_log import PartitionLog

HEARTBEAT_SECONDS: Final = 0.3
_REDIAL_SECONDS: Final = 0.1
_ASK_SECONDS: Final = 5.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ending:
    """The reason why a replica process is over, and whether its directory is to be deleted."""

    reason: str
    delete: bool = False


class ReplicaProcess:
    """`run` returns when the replica is over."""

    def __init__(
        self, env: Environment, spec: ReplicaSpec, pid: int, clock: Callable[[], float] | None = None
    ) -> None:
        """`clock`: a finer one than the loop's, to measure requests with."""
        self._env = env
        self._spec = spec
        self._pid = pid
        self._loop = asyncio.get_running_loop()
        self._counters = ReplicaCounters(clock or self._loop.time)
        self._stopped: asyncio.Future[Ending] = self._loop.create_future()
        self._orders: Dispatch[Callable[[Any], Answer | Awaitable[Answer]]] = Dispatch({
            Assign: self._assign,
            StopReplica: self._stop,
            KeepSecrets: self._keep_secrets,
            SuspectBatch: self._suspect,
        })
        self._broker: Stream | None = None
        self._hosted: HostedLog | None = None
        self._replica: Replica | None = None

    async def run(self) -> Ending:
        """Live as this replica until it is over."""
        try:
            log = await self._env.off_loop(self._open)
        except RaylogError as error:
            await self._tell_failure(error)
            return Ending(str(error))
        _log.info("%s: opened [%d, %d).", self._spec, log.log_start_offset, log.log_end_offset)
        timers = Timers(self._loop)
        name = PartitionName(self._spec.topic, self._spec.topic_id, self._spec.partition)
        me = (self._spec.broker_id, self._spec.incarnation)
        joins = TransactionJoins(self._env, self._spec.broker, self._spec.node_id)
        calls = ReplicaCalls(self._propose, joins.add)
        hosted = HostedLog(log, name, me, self._spec.node_id, self._env, timers, self._counters, calls)
        self._hosted = hosted
        self._care = DamageCare(hosted, self._stand_down)
        hosted.room.stays_full = lambda: self._stays_full(hosted)
        self._replica = Replica(hosted, self._care)
        server, endpoints = await self._env.listen(
            self._server_name(), "replica", self._replica.handle, self._has_stream
        )
        hosted.start(LogUpkeep(hosted, HousekeeperCalls(self._env, self._ask_broker)).run())
        hosted.start(self._keep_broker(hosted, endpoints))
        ending = await self._until_over(hosted)
        await self._end(hosted, server)
        await joins.close()
        return ending

    def _has_stream(self, stream: Stream) -> None:
        """Let a client send batches as large as the topic takes. After that is raised the client has to dial again."""
        if self._hosted is not None:
            stream.take_frames_of(self._hosted.log.config.max_message_bytes + CLIENT_MESSAGE_BYTES)

    def stop(self, reason: str, *, delete: bool = False) -> None:
        """End cleanly."""
        if not self._stopped.done():
            self._stopped.set_result(Ending(reason, delete))

    def readings(self) -> Iterator[Reading]:
        """Metrics of this replica; none before its log is open, or after the log has gone offline."""
        hosted = self._hosted
        if hosted is None or hosted.log.offline_because is not None:
            return
        log, tags = hosted.log, (self._spec.topic, str(self._spec.partition))
        yield from self._counters.readings(tags)
        yield Reading(LOG_SIZE_BYTES, tags, log.size_bytes)
        yield Reading(LOG_START_OFFSET, tags, log.log_start_offset)
        yield Reading(LOG_END_OFFSET, tags, log.log_end_offset)
        yield Reading(HIGH_WATERMARK, tags, log.high_watermark)
        yield Reading(IS_LEADER, tags, hosted.is_leading)

    def _open(self) -> PartitionLog:
        spec = self._spec
        identity = PartitionIdentity(spec.cluster_id, spec.topic, spec.topic_id.hex(), spec.partition)
        return PartitionLog.open(
            spec.directory, identity, dict(spec.settings), now_ms=self._env.wall_ms(), disk=self._env.disk
        )

    def _server_name(self) -> str:
        return f"{self._spec.topic_id.hex()[:12]}-{self._spec.partition}-{self._spec.incarnation:x}"

    # --- the broker ---

    async def _keep_broker(self, hosted: HostedLog, endpoints: tuple[Endpoint, ...]) -> None:
        while True:
            stream: Stream | None = None
            try:
                stream = await self._env.dial(self._spec.broker, "replica", self._from_broker)
                await stream.request(self._hello(hosted, endpoints), timeout=_ASK_SECONDS)
                self._broker = stream
                await self._beat(stream)
            except StreamError as error:
                _log.info("%s: no broker for the moment: %s", self._spec, error)
            self._broker = None
            if stream is not None:  # a hello that is still on its way there must not come after the next one
                await stream.close(0)
            await asyncio.sleep(_REDIAL_SECONDS * (1 + self._env.random.random()))

    async def _beat(self, stream: Stream) -> None:
        assert self._replica is not None
        while not stream.closed.done():
            stream.send(self._replica.heartbeat())
            await asyncio.wait([stream.closed], timeout=HEARTBEAT_SECONDS)

    def _hello(self, hosted: HostedLog, endpoints: tuple[Endpoint, ...]) -> ReplicaHello:
        spec, log = self._spec, hosted.log
        # Also where that record has been deleted since: by (epoch, end) the longest log is found (rule 7).
        last_epoch = log.epochs.span_at(log.log_end_offset - 1)[0]
        names = tuple(str(endpoint) for endpoint in endpoints)
        return ReplicaHello(
            spec.topic_id, spec.partition, spec.incarnation, self._pid, names,
            last_epoch, log.log_end_offset, log.unproven,
        )  # fmt: skip

    def _from_broker(self, request: Request) -> Answer | Awaitable[Answer]:
        return self._orders.handler_of(request.message)(request.message)

    def _assign(self, order: Assign) -> Answer:
        if self._replica is not None:
            self._replica.assign(order)
        return None

    def _stop(self, order: StopReplica) -> Answer:
        self.stop("its broker stopped it", delete=order.delete)
        return None

    def _keep_secrets(self, order: KeepSecrets) -> Answer:
        self._env.keys.adopt(order.secrets)
        return None

    def _suspect(self, order: SuspectBatch) -> Awaitable[Answer]:
        if self._hosted is None:  # its log is not open yet
            raise unknown(order)
        return self._care.suspect(order.offset)

    def _stays_full(self, hosted: HostedLog) -> None:
        if hosted.is_leading:
            _log.warning("%s: its disk stays full, so another one is to lead.", self._spec)
            hosted.start(self._hand_over())

    async def _hand_over(self) -> None:
        try:
            await self._stand_down(False, "its disk stays full")
        except (EligibleLeadersNotAvailable, StreamError) as error:
            _log.warning("%s: it leads on with a full disk: %s", self._spec, error)

    async def _stand_down(self, is_damaged: bool, reason: str) -> None:
        spec = self._spec
        asked = StandDown(spec.topic_id, spec.partition, spec.broker_id, spec.incarnation, is_damaged, reason)
        await self._ask_broker(asked)

    async def _propose(self, proposal: ProposeIsr) -> None:
        broker = self._broker
        if broker is not None:  # whoever proposes tries again
            await broker.request(proposal, timeout=_ASK_SECONDS)

    async def _ask_broker(self, message: Message) -> Response:
        if self._broker is None:
            raise StreamNotOpen("the broker", "it is looked for again")
        return await self._broker.request(message, timeout=_ASK_SECONDS)

    # --- ending ---

    async def _until_over(self, hosted: HostedLog) -> Ending:
        either: list[asyncio.Future[Any]] = [self._stopped, hosted.failed]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if self._stopped.done():
            return self._stopped.result()
        return Ending(str(hosted.failed.result()))

    async def _end(self, hosted: HostedLog, server: Server) -> None:
        assert self._replica is not None
        self._replica.end()
        await server.close(timeout=1.0)
        if hosted.failed.done():
            await self._tell_failure(hosted.failed.result())
        await hosted.close()
        if self._broker is not None:
            await self._broker.close(timeout=1.0)

    async def _tell_failure(self, error: RaylogError) -> None:
        """Tell the broker why the log cannot be opened, if the broker can be reached."""
        _log.error("%s: it ends: %s", self._spec, error)
        failure = ReplicaFailed(type(error).__name__, str(error), isinstance(error, LogDamaged))
        try:
            stream = self._broker or await self._env.dial(self._spec.broker, "replica", self._from_broker)
            stream.send(failure)
            await stream.close(timeout=1.0)
        except StreamError as refused:
            _log.warning("%s: its broker does not hear of it: %s", self._spec, refused)
