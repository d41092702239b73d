"""A process that hosts replicas: what they have in common, and nothing of what they are (rule 35).

    spare ──first OpenReplicas─┬─► own: ends with its replica
                               └─► shared: replicas come and go
    any   ──StopHost──► all logs closed ──► over

Shared: the loop, the server and its streams, the line to the broker, signs of life, the wheel of timers, threads for
the disk. Each replica has its own log, lock, incarnation, roles and end.

What must stay true:
- Requests go to the replica that their frame names. One that is not here leads nothing: whoever asks looks for the
  leader anew.
- A replica that fails takes no other with it. An error that nobody foresaw outside of a replica's own tasks ends the
  process, and so all of them at once.
- An order to end a replica is answered when its log is closed and its lock is free (rule 26).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final, TypeAlias

from raylog.actors.kernel.background import BackgroundTasks, Timers
from raylog.actors.kernel.environment import Environment
from raylog.actors.kernel.metrics import ReadingGroup
from raylog.actors.kernel.stream_interface import (
    Answer,
    Dispatch,
    Handler,
    LaterAnswer,
    Request,
    Response,
    Stream,
    unknown,
)
from raylog.actors.protocol.control_messages import NO_LEADER, Assign, ReplicaMarks
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.host_messages import (
    OWN,
    SPARE,
    HostHello,
    OpenReplicas,
    ReplicaHello,
    ReplicaToOpen,
    StopHost,
    StopReplica,
)
from raylog.actors.protocol.messages import CLIENT_MESSAGE_BYTES, NO_TOPIC
from raylog.actors.protocol.replica_spec import HostSpec, ReplicaSpec
from raylog.actors.protocol.replication_messages import NO_EPOCH, ListOffsets, SuspectBatch, WatchRecords
from raylog.actors.protocol.secret_messages import KeepSecrets
from raylog.actors.replica.broker_line import BrokerLine
from raylog.actors.replica.hosted_replica import HostedReplica
from raylog.actors.replica.leader_streams import LeaderStreams
from raylog.actors.replica.offset_lists import listed_offsets
from raylog.actors.replica.parked_appends import TransactionJoins
from raylog.actors.replica.reads import LeaderReads
from raylog.actors.replica.record_watches import RecordWatches
from raylog.actors.replica.sweep import HostSweep
from raylog.errors import NotLeader, ReplicaNotFree

PartitionKey: TypeAlias = tuple[bytes, int]  # topic id, partition

_CLOSE_SECONDS: Final = 1.0
_OBEY_AT_ONCE: Final = 16  # what waits for the disk is done beside the loop: some 0.1 ms each
_OPENINGS_AT_ONCE: Final = 4  # threads that open logs take the interpreter from the loop, and the loop serves others
_log = logging.getLogger(__name__)


class ReplicaHost:
    """`run` returns when the host is over, and says why."""

    def __init__(
        self, env: Environment, spec: HostSpec, pid: int, clock: Callable[[], float] | None = None
    ) -> None:
        """`clock`: a finer one than the loop's, to measure requests with."""
        self._env = env
        self._spec = spec
        self._pid = pid
        loop = self._loop = asyncio.get_running_loop()
        self._clock = clock or loop.time
        self._timers = Timers(loop)
        self._sweep: HostSweep[HostedReplica] = HostSweep(self._timers)
        self._over: asyncio.Future[str] = loop.create_future()
        self._openings = asyncio.Semaphore(_OPENINGS_AT_ONCE)
        self._tasks = BackgroundTasks(self._fail)
        self._joins = TransactionJoins(env, spec.broker, spec.node_id)
        self._streams = LeaderStreams(env, self.handle)
        self._watches = RecordWatches(self._timers, self._leader_of)
        self._line = BrokerLine(env, spec, self._from_broker, self)
        self._endpoints: tuple[Endpoint, ...] = ()
        self._room = SPARE
        self._clients: set[Stream] = set()
        self._largest_batch = 0  # that a topic here has ever taken
        self._obeyed_in_turn = 0
        self._assigned: deque[tuple[Assign, LaterAnswer]] = deque()  # those that wait for their turn
        self._replicas: dict[PartitionKey, HostedReplica] = {}
        self._handlers: dict[PartitionKey, Handler] = {}
        self._orders: Dispatch[Callable[[Request, Any], Answer | Awaitable[Answer]]] = Dispatch({
            Assign: self._on_assign,
            OpenReplicas: self._on_openings,
            StopReplica: self._stop_replica,
            StopHost: self._stop_host,
            KeepSecrets: self._on_secrets,
            SuspectBatch: self._on_suspicion,
        })

    async def run(self) -> str:
        """Live as this host until it is over. An error that nobody foresaw is raised."""
        server, self._endpoints = await self._env.listen(
            f"host-{self._spec.incarnation:x}", "replica", self.handle, self._has_stream
        )
        self._tasks.start(self._line.keep())
        reason = await self._over
        await self._stop_all()
        await server.close(timeout=_CLOSE_SECONDS)
        await self._line.close()
        await self._tasks.close()
        await self._joins.close()
        await self._streams.close()
        self._sweep.close()
        self._timers.close()
        return reason

    def stop(self, reason: str) -> None:
        """End cleanly."""
        if not self._over.done():
            self._over.set_result(reason)

    def readings(self) -> Iterator[ReadingGroup]:
        """Yield the metrics of each of its replicas."""
        for replica in self.hosted():
            if (readings := replica.readings()) is not None:
                yield readings

    def hosted(self) -> list[HostedReplica]:
        """Return all that are here, open or not yet."""
        return list(self._replicas.values())

    def _fail(self, error: BaseException) -> None:
        if not self._over.done():
            self._over.set_exception(error)

    async def _stop_all(self) -> None:
        replicas = self.hosted()
        for replica in replicas:
            replica.stop("its host ends")
        if replicas:
            await asyncio.wait([replica.over for replica in replicas])

    # --- being asked ----------------------------------------------------------------------------------------------

    def handle(self, request: Request) -> Answer | Awaitable[Answer]:
        """Answer what comes over any stream but that to the broker: from clients, followers, leaders."""
        handler = self._handlers.get((request.topic_id, request.partition))
        if handler is None:
            if isinstance(request.message, WatchRecords):
                return self._watches.watch(request, request.message)
            if isinstance(request.message, ListOffsets):
                return Response(listed_offsets(request.message, self._leader_of))
            if request.topic_id == NO_TOPIC:
                raise unknown(request.message)
            raise NotLeader(request.topic_id.hex(), request.partition, NO_LEADER, NO_EPOCH)
        return handler(request)

    def _leader_of(self, key: PartitionKey) -> LeaderReads | None:
        replica = self._replicas.get(key)
        return None if replica is None or key not in self._handlers else replica.reads

    def _has_stream(self, stream: Stream) -> None:
        """Let a client send batches as large as a topic here takes."""
        if not stream.is_internal:
            self._clients.add(stream)
            stream.closed.add_done_callback(lambda _: self._clients.discard(stream))
            stream.take_frames_of(self._largest_batch + CLIENT_MESSAGE_BYTES)

    def _note_largest_batch(self, replica: HostedReplica) -> None:
        """Tell clients that are here already, where a topic takes larger batches than all did so far."""
        size = replica.max_message_bytes
        if size > self._largest_batch:
            self._largest_batch = size
            for stream in self._clients:
                stream.take_frames_of(size + CLIENT_MESSAGE_BYTES)

    def _from_broker(self, request: Request) -> Answer | Awaitable[Answer]:
        return self._orders.handler_of(request.message)(request, request.message)

    def _on_assign(self, _: Request, assigned: Assign) -> Answer | Awaitable[Answer]:
        """Let few replicas obey in a turn of the loop: a thousand may have new leaders at once.

        Signs of life and appends of others go out in between.
        """
        if self._obeyed_in_turn < _OBEY_AT_ONCE:
            self._obey(assigned)
            return None
        later = LaterAnswer()
        self._assigned.append((assigned, later))
        return later

    def _obey(self, assigned: Assign) -> None:
        if not self._obeyed_in_turn:
            self._loop.call_soon(self._obey_next)
        self._obeyed_in_turn += 1
        replica = self._replicas.get((assigned.topic_id, assigned.partition))
        if replica is not None:
            replica.assign(assigned)

    def _obey_next(self) -> None:
        self._obeyed_in_turn = 0
        while self._assigned and self._obeyed_in_turn < _OBEY_AT_ONCE:
            assigned, later = self._assigned.popleft()
            try:
                self._obey(assigned)
            except Exception as error:  # noqa: BLE001 (it goes back as the answer, as from any handler)
                later.fail(error)
            else:
                later.give(None)

    def _on_secrets(self, _: Request, message: KeepSecrets) -> Answer:
        self._env.keys.adopt(message.secrets)
        return None

    def _on_suspicion(self, request: Request, found: SuspectBatch) -> Answer | Awaitable[Answer]:
        replica = self._replicas.get((request.topic_id, request.partition))
        return None if replica is None else replica.suspect(found)

    # --- replicas come and go -------------------------------------------------------------------------------------

    def _on_openings(self, _: Request, orders: OpenReplicas) -> Answer:
        """Begin to open them. Where one is refused, all of them are begun that come before it."""
        self._room = orders.room
        for order in orders.replicas:
            self._open(order)
        return None

    def _open(self, order: ReplicaToOpen) -> None:
        key = order.topic_id, order.partition
        present = self._replicas.get(key)
        if present is not None and present.spec.incarnation == order.incarnation:
            return  # the broker asks a second time
        if present is not None or self._over.done():
            raise ReplicaNotFree(order.topic, order.partition, "its host has not let go of it yet")
        host = self._spec
        spec = ReplicaSpec(
            host.cluster_id, order.topic, order.topic_id, order.partition, host.broker_id, order.incarnation,
            order.settings, order.directory, host.node_id, self._room,
        )  # fmt: skip
        replica = HostedReplica(
            self._env, spec, self._timers, self._clock, self._line, self._joins, self._streams, self._sweep
        )
        self._replicas[key] = replica
        self._tasks.start(self._live(key, replica))

    async def _live(self, key: PartitionKey, replica: HostedReplica) -> None:
        try:
            why = await replica.run(lambda: self._is_open(key, replica), self._openings)
        finally:
            self._handlers.pop(key, None)
            if self._replicas.get(key) is replica:
                del self._replicas[key]
        replica.over.set_result(None)
        self.has_ended(replica, why)
        if self._room == OWN:
            self.stop(why)

    def _is_open(self, key: PartitionKey, replica: HostedReplica) -> None:
        self._handlers[key] = replica.handle
        self._note_largest_batch(replica)
        replica.when_settings_change(partial(self._note_largest_batch, replica))
        self._line.announce(replica.hello())

    def has_ended(self, replica: HostedReplica, why: str) -> None:
        """Take note that a replica is over, and its lock free."""
        _log.info("%s is over: %s", replica.spec, why)

    async def _stop_replica(self, _: Request, order: StopReplica) -> Answer:
        replica = self._replicas.get((order.topic_id, order.partition))
        if replica is not None and replica.spec.incarnation == order.incarnation:
            replica.stop("its broker stopped it", is_kept=order.is_kept)
            await asyncio.wait([replica.over])
        return None

    async def _stop_host(self, _: Request, __: StopHost) -> Answer:
        """Close all logs. The answer goes out before the stream ends with this process."""
        await self._stop_all()
        asyncio.get_running_loop().call_soon(self.stop, "its broker stopped it")
        return None

    # --- what the line tells of it --------------------------------------------------------------------------------

    def hello(self) -> HostHello:
        endpoints = tuple(map(str, self._endpoints))
        return HostHello(self._spec.incarnation, self._pid, endpoints, self._room)

    def replicas(self) -> Iterable[ReplicaHello]:
        return [replica.hello() for replica in self._replicas.values() if replica.is_open]

    def marks(self) -> Iterable[ReplicaMarks]:
        return [replica.marks() for replica in self._replicas.values() if replica.is_open]

    def changed_marks(self) -> Iterable[ReplicaMarks]:
        changed = [replica.marks() for replica in self._sweep.take_changed() if replica.is_open]
        for marks in changed:
            if marks.has_full_disk:  # it is over after a while, and nobody tells
                self._sweep.changed(self._replicas[marks.topic_id, marks.partition])
        return changed
