"""A broker: one data directory, its copy of the metadata log, and the processes that host its replicas.

    controller ──RegisterBroker, heartbeats──► (controller_link.py)
    controller ──metadata log──► copy ──committed──► fold ──┬─► replicas (local_replicas.py)
                                                            └─► clients (metadata_service.py)
    controller ──orders──► replica_orders.py
    replicas ──hello, heartbeats, proposals──► local_replicas.py, controller_link.py

It decides nothing about partitions. What must stay true:
- Its replicas outlive it. A new broker process on the same directory waits a moment for those that still run, before it
  registers, so that its own end costs no election.
- Where it cannot go on (its copy of the log is offline, an error that nobody expected), it says so in `failed`, and
  its process is to end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from raylog.actors.broker.controller_link import PASSED_ON, ControllerLink
from raylog.actors.broker.gateway_registration import GatewayRegistration
from raylog.actors.broker.local_replicas import AssignmentDelivery, LocalReplicas, ReplicaSession
from raylog.actors.broker.metadata_service import MetadataService
from raylog.actors.broker.producer_id_block import ProducerIdBlock
from raylog.actors.broker.replica_directories import ReplicaDirectories
from raylog.actors.broker.replica_orders import ORDERS, ReplicaOrders
from raylog.actors.broker.secret_keeping import SecretKeeping
from raylog.actors.cluster.metadata_fold import MetadataFold
from raylog.actors.cluster.placement.hosts import HostLimits, host_limits
from raylog.actors.cluster.state import ClusterState
from raylog.actors.housekeeping.watch import HousekeeperWatch
from raylog.actors.kernel.background import BackgroundTasks, Timers
from raylog.actors.kernel.environment import Environment, FindController, Server
from raylog.actors.kernel.metrics import DISK_FREE_BYTES, DISK_TOTAL_BYTES, REPLICAS, Reading
from raylog.actors.kernel.stream_interface import Answer, Dispatch, Request, Stream
from raylog.actors.metadata_log.copy import MetadataCopy
from raylog.actors.metadata_log.directory_marks import DirectoryMarks
from raylog.actors.metadata_log.files import Loaded, MetadataFiles
from raylog.actors.metadata_log.rules.tail import MetadataSnapshot
from raylog.actors.protocol.cluster_secrets import ClusterSecrets
from raylog.actors.protocol.control_messages import (
    AllocateProducerIds,
    AppendMetadata,
    GetMetadata,
    InstallSnapshot,
    Promise,
    ProposeIsr,
    ReadMetadata,
    RegisterBroker,
    StandDown,
    StopBroker,
)
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.gateway_messages import FollowUsers, GatewayHello
from raylog.actors.protocol.host_messages import HostHeartbeat, HostHello, ReplicaFailed, ReplicaHello
from raylog.actors.protocol.housekeeping_messages import FindHousekeeper, HousekeeperHello, SuspectReplica
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.metadata_records import CommittedBatch
from raylog.actors.protocol.secret_messages import KeepSecrets
from raylog.config import NO_LIMIT
from raylog.errors import (
    DiskError,
    InvalidRequest,
    RaylogError,
    ReplicaNotFree,
)
from raylog.storage.directory.data_directory import BrokerIdentity, Claim, DataDirectory

_RETURN_SECONDS: Final = 1.0  # for replicas that still run to say hello to a new broker process
_LOOK_AGAIN_SECONDS: Final = 0.05
_USAGE_SECONDS: Final = 5.0
_SWEEP_AGAIN_SECONDS: Final = 10.0
_STOP_SECONDS: Final = 5.0
_LOOK_FOR_DUE_SECONDS: Final = 60.0
_LOOK_AT_LEAST_SECONDS: Final = 1800.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BrokerSpec:
    """Settings that a broker process gets at its start. `run` is drawn anew for each."""

    cluster_id: str
    broker_id: int
    run: str
    node_id: str
    host: str
    rack: str
    directory: str
    claim: Claim | None = None  # with which a blank directory becomes this broker's; None: it never is blank
    cores: int = 1  # of its node


class _Opened(NamedTuple):
    """The contents of a broker's directory, read under its lock."""

    directories: ReplicaDirectories
    directory_id: str
    usage: tuple[int, int]
    boot_id: str
    metadata_files: MetadataFiles
    metadata: Loaded


async def _open_directory(env: Environment, spec: BrokerSpec) -> _Opened:
    identity = BrokerIdentity(spec.cluster_id, spec.broker_id)
    opening = partial(DataDirectory.open, spec.directory, identity, env.disk, claim=spec.claim)
    directory = await env.off_loop(opening)
    directories = ReplicaDirectories(directory)
    try:
        boot_id = env.disk.boot_id()
        usage = await env.off_loop(directories.usage)
        files = MetadataFiles(env.disk, spec.directory, spec.cluster_id)
        loaded = await env.off_loop(partial(files.load, env.wall_ms()))
    except RaylogError:
        directories.close()
        raise
    return _Opened(directories, directory.identity.claim.directory_id, usage, boot_id, files, loaded)


class Broker:
    """A broker that takes streams. Made by `Broker.open`; in the end `close` it."""

    def __init__(
        self,
        env: Environment,
        spec: BrokerSpec,
        opened: _Opened,
        find_controller: FindController,
        keep_secrets: Callable[[ClusterSecrets], None],
    ) -> None:
        self._env = env
        self._spec = spec
        loop = asyncio.get_running_loop()
        self.failed: asyncio.Future[BaseException] = loop.create_future()  # its result says why it cannot go on
        self.stopped: asyncio.Future[None] = loop.create_future()  # it was closed, by its owner or the controller
        self.endpoints: tuple[Endpoint, ...] = ()
        self.usage = opened.usage
        self._directories = opened.directories
        self._directory_id = opened.directory_id
        self._boot_id = opened.boot_id
        self._timers = Timers(loop)
        self._tasks = BackgroundTasks(self._fail)
        self._fold = MetadataFold()
        self._replicas = LocalReplicas(
            env, self._timers, self._tasks, spec.broker_id, self._host_limits, self._has_news
        )
        self._delivery = AssignmentDelivery(env, self._fold, self._replicas, self._tasks, spec.broker_id)
        self._service = MetadataService(self._fold, self._timers, spec.broker_id)
        self._housekeeper = HousekeeperWatch(env, self._tasks)
        self._secrets = SecretKeeping(env, keep_secrets, self._processes_beside)
        self._swept_under: tuple[int, int | None] = (-1, None)
        self._is_closing = False
        self._server: Server | None = None
        self._link = ControllerLink(env, self._tasks, find_controller, self.handle, self._replicas, self)
        self._producer_ids = ProducerIdBlock(self._link.ask)
        self._gateway = GatewayRegistration(
            env, self._tasks, spec.broker_id, lambda: self.state if self.is_caught_up else None, self._link.ask
        )
        self._orders = ReplicaOrders(env, opened.directories, self._replicas, self._fold, self._link, spec.broker_id)
        own = spec.broker_id, opened.directory_id
        self._copy = MetadataCopy(
            env, opened.metadata_files, opened.metadata, own, self._on_committed, self._on_snapshot
        )
        self._copy.offline.add_done_callback(self._copy_offline)
        self._marks = DirectoryMarks(env, own, self._copy.raise_mark, self._link.ask, lambda: self._link.is_registered)
        self._handlers: Dispatch[Callable[[Request, Any], Answer | Awaitable[Answer]]] = Dispatch({
            **dict.fromkeys((Promise, ReadMetadata, AppendMetadata, InstallSnapshot), self._on_metadata),
            **dict.fromkeys(PASSED_ON, self._on_question_to_controller),
            HostHello: self._on_host,
            HostHeartbeat: self._on_heartbeat,
            ReplicaHello: self._on_hello,
            ReplicaFailed: self._on_failure,
            ProposeIsr: self._on_proposal,
            StandDown: self._on_standing_down,
            **dict.fromkeys(ORDERS, self._on_order),
            StopBroker: self._on_stop,
            GetMetadata: self._on_metadata_wanted,
            AllocateProducerIds: self._on_producer_ids_wanted,
            HousekeeperHello: self._on_housekeeper,
            SuspectReplica: self._on_suspicion,
            FindHousekeeper: self._on_housekeeper_sought,
            GatewayHello: self._on_gateway,
            FollowUsers: self._on_follow_users,
            KeepSecrets: self._on_secrets,
        })

    # --- beginning and ending -------------------------------------------------------------------------------------

    @classmethod
    async def open(
        cls,
        env: Environment,
        spec: BrokerSpec,
        find_controller: FindController,
        keep_secrets: Callable[[ClusterSecrets], None] = lambda _: None,
    ) -> Broker:
        """A broker that takes streams; the controller may be found later. `keep_secrets` writes them to its directory.

        DirectoryLocked, WrongCluster, DirectoryNotOurs, DirectoryBlank, LogDamaged, DiskError: none can run here, and
        there is nothing to close.
        """
        opened = await _open_directory(env, spec)
        try:
            broker = cls(env, spec, opened, find_controller, keep_secrets)
            await broker._begin()
        except RaylogError:
            opened.directories.close()
            raise
        return broker

    async def _begin(self) -> None:
        self._server, self.endpoints = await self._env.listen(f"broker-{self._spec.broker_id}", "broker", self.handle)
        self._tasks.start(self._register_and_beat())
        self._tasks.start(self._keep_usage())
        self._tasks.start(self._marks.run())

    async def close(self) -> None:
        """Let all replicas close their logs, then end. A second call waits for the first."""
        if self._is_closing:
            await asyncio.wait([self.stopped], timeout=3 * _STOP_SECONDS)
            return
        self._is_closing = True
        await self._gateway.stop()
        await self._replicas.stop_all(_STOP_SECONDS)
        await self._housekeeper.stop()
        await self._tasks.close()
        self._service.close()
        await self._link.close()
        if self._server is not None:
            await self._server.close()
        await self._copy.close()
        self._timers.close()
        await self._env.off_loop(self._directories.close)
        self.stopped.set_result(None)

    @property
    def is_closing(self) -> bool:
        return self._is_closing

    def readings(self) -> Iterator[Reading]:
        """Metrics of this broker."""
        free, total = self.usage
        yield Reading(DISK_FREE_BYTES, (), free)
        yield Reading(DISK_TOTAL_BYTES, (), total)
        yield Reading(REPLICAS, (), len(self._replicas.all()))

    def _copy_offline(self, offline: asyncio.Future[RaylogError]) -> None:
        if not self._is_closing:
            self._fail(offline.result())

    def _fail(self, error: BaseException) -> None:
        _log.critical("Broker %d cannot go on: %s", self._spec.broker_id, error)
        if not self.failed.done():
            self.failed.set_result(error)

    # --- what it knows --------------------------------------------------------------------------------------------

    @property
    def state(self) -> ClusterState:
        """The state of the cluster as of `version`; not to be changed."""
        return self._fold.state

    @property
    def version(self) -> int:
        return self._fold.version

    @property
    def is_caught_up(self) -> bool:
        """Whether it is registered, and knows all that was decided before its controller began, and its registration.

        The first record of a controller comes after all that it has taken over.
        """
        link, fold = self._link, self._fold
        if link.broker_epoch is None:
            return False
        return fold.version > link.broker_epoch and fold.epoch >= link.controller_epoch

    # --- streams --------------------------------------------------------------------------------------------------

    def handle(self, request: Request) -> Answer | Awaitable[Answer]:
        """The handler of all its streams."""
        return self._handlers.handler_of(request.message)(request, request.message)

    def _on_metadata(self, request: Request, _: Message) -> Awaitable[Answer]:
        return self._copy.handle(request)

    def _on_metadata_wanted(self, request: Request, asked: GetMetadata) -> Awaitable[Answer]:
        return self._service.answer(asked, request.stream)

    def _on_producer_ids_wanted(self, _: Request, asked: AllocateProducerIds) -> Awaitable[Answer]:
        return self._producer_ids.hand_out(asked)

    def _on_question_to_controller(self, _: Request, asked: Message) -> Awaitable[Answer]:
        return self._link.pass_on(asked)

    def _on_hello(self, request: Request, hello: ReplicaHello) -> Answer:
        session = self._replicas.hello(hello, request.stream)
        self._delivery.changed([session.id])
        self._dismiss_unwanted([session])
        return None

    def _on_host(self, request: Request, hello: HostHello) -> Answer:
        self._replicas.hosts.hello(hello, request.stream)
        self._tell_secrets(request.stream)
        return None

    def _on_heartbeat(self, request: Request, beat: HostHeartbeat) -> Answer:
        self._replicas.heartbeat(beat, request.stream)
        return None

    def _on_failure(self, request: Request, failure: ReplicaFailed) -> Answer:
        self._replicas.failed(failure, request.stream)
        return None

    def _on_housekeeper(self, request: Request, hello: HousekeeperHello) -> Answer:
        self._housekeeper.hello(hello, request.stream)
        self._tell_secrets(request.stream)
        return None

    def _on_housekeeper_sought(self, _: Request, __: FindHousekeeper) -> Answer | Awaitable[Answer]:
        return self._housekeeper.find()

    def _on_follow_users(self, request: Request, _: FollowUsers) -> Answer:
        self._gateway.follow_users(request.stream)
        return None

    def _on_gateway(self, request: Request, hello: GatewayHello) -> Answer:
        self._gateway.hello(hello, request.stream)
        self._tell_secrets(request.stream)
        return None

    async def housekeeper_wanted(self) -> None:
        """Return when there is work for a housekeeping process: a replica asks for one, or logs may be due to be read.

        A process that is started then looks what is due itself.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        while not await self._housekeeper.wanted(_LOOK_FOR_DUE_SECONDS):
            if loop.time() - began >= self._seconds_between_reads():
                return

    def _seconds_between_reads(self) -> float:
        """Return how often a housekeeping process has to look, by the topic whose logs are read most often."""
        configs = [topic.config for topic in self._fold.state.topics.values()]
        intervals = [each.scrub_interval_ms / 1000 for each in configs if each.scrub_interval_ms != NO_LIMIT]
        return min([_LOOK_AT_LEAST_SECONDS, *intervals])

    async def _on_secrets(self, request: Request, message: KeepSecrets) -> Answer:
        await self._link.check_order(request.stream)
        await self._secrets.take(message)
        return None

    def _tell_secrets(self, stream: Stream) -> None:
        """Tell a process beside this one the secrets, unless they are the first ones: it has those."""
        if self._env.keys.secrets.version > 1:
            self._secrets.tell(stream)

    def _processes_beside(self) -> Iterator[Stream]:
        yield from (host.stream for host in self._replicas.hosts.all())
        yield from (each for each in (self._housekeeper.stream, self._gateway.stream) if each is not None)

    async def _on_proposal(self, request: Request, proposal: ProposeIsr) -> Answer:
        self._replicas.speaking(request.stream, (proposal.topic_id, proposal.partition))
        return await self._link.ask(proposal)

    async def _on_standing_down(self, request: Request, asked: StandDown) -> Answer:
        session = self._replicas.speaking(request.stream, (asked.topic_id, asked.partition))
        if session.incarnation != asked.incarnation:
            raise InvalidRequest("A replica stands down for itself, after its hello.")
        return await self._link.ask(asked)

    async def _on_suspicion(self, _: Request, found: SuspectReplica) -> Answer:
        await self._orders.tell_suspicion(found.topic_id, found.partition, found.offset)
        return None

    async def _on_order(self, request: Request, order: Message) -> Answer:
        await self._link.check_order(request.stream)
        return await self._orders.carry_out(order)

    async def _on_stop(self, request: Request, _: StopBroker) -> Answer:
        """The answer goes out before the stream ends with this broker."""
        await self._link.check_order(request.stream)
        await self._replicas.stop_all(_STOP_SECONDS)
        asyncio.get_running_loop().call_soon(self._begin_closing)
        return None

    def _begin_closing(self) -> None:
        self._tasks.start(self.close())

    # --- the controller -------------------------------------------------------------------------------------------

    @property
    def promised_epoch(self) -> int:
        """The highest epoch of a controller that its copy of the metadata log has promised to obey."""
        return self._copy.promised_epoch

    def registered(self) -> None:
        """The controller knows it, under a new registration."""
        self._marks.registered()
        self._check_caught_up()

    def registration(self) -> RegisterBroker:
        """The request that registers it as it is now."""
        spec = self._spec
        return RegisterBroker(
            spec.cluster_id,
            spec.broker_id,
            spec.run,
            spec.node_id,
            spec.host,
            spec.rack,
            tuple(map(str, self.endpoints)),
            spec.directory,
            self._directory_id,
            self._boot_id,
            self._replicas.running(),
            self._copy.mark,
        )

    async def _register_and_beat(self) -> None:
        await self._wait_for_living_replicas()
        await self._link.run()
        self._fail(self._link.refused.result())

    async def _wait_for_living_replicas(self) -> None:
        """Wait for replicas whose directories are in use. A stopped one cannot say hello: it is not waited for."""
        found = await self._env.off_loop(self._directories.find)
        living = [(each.topic_id, each.partition) for each in found if each.in_use]
        deadline = asyncio.get_running_loop().time() + _RETURN_SECONDS
        while asyncio.get_running_loop().time() < deadline:
            if all(self._replicas.get(each) is not None for each in living):
                return
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)

    async def _keep_usage(self) -> None:
        while True:
            await asyncio.sleep(_USAGE_SECONDS)
            try:
                self.usage = await self._env.off_loop(self._directories.usage)
            except DiskError as error:
                _log.warning("The size of the disk of broker %d is unknown: %s", self._spec.broker_id, error)

    def _host_limits(self) -> HostLimits:
        return host_limits(self._fold.state, self._spec.broker_id, self._spec.cores)

    def _has_news(self) -> None:
        self._link.wake()

    # --- the metadata log -----------------------------------------------------------------------------------------

    def _on_snapshot(self, snapshot: MetadataSnapshot) -> None:
        self._fold.replace(snapshot.records, snapshot.version, snapshot.epoch)
        self._delivery.changed_all()
        self._service.changed()
        self._check_caught_up()

    def _on_committed(self, batch: CommittedBatch) -> None:
        self._delivery.changed(self._fold.apply_batch(batch))
        self._service.changed()
        self._check_caught_up()

    def _check_caught_up(self) -> None:
        """Act on a state as new as the registration: it says which topics there are, and which replicas go."""
        self._gateway.changed()
        registration = self._link.controller_epoch, self._link.broker_epoch
        if registration != self._swept_under and self.is_caught_up:
            self._swept_under = registration
            self._service.begin()
            self._dismiss_unwanted(self._replicas.all())
            self._tasks.start(self._sweep(registration))

    def _dismiss_unwanted(self, sessions: Iterable[ReplicaSession]) -> None:
        if self.is_caught_up:
            for session in sessions:
                if not self._orders.is_expected(session.id):
                    self._replicas.dismiss(session, is_kept=False)

    async def _sweep(self, registration: tuple[int, int | None]) -> None:
        """Sweep until nothing is left, or until the next registration has begun to."""
        while registration == self._swept_under:
            try:
                if await self._orders.sweep():
                    return
            except (DiskError, ReplicaNotFree) as error:
                _log.warning("Broker %d has not removed what it holds in vain: %s", self._spec.broker_id, error)
            await asyncio.sleep(_SWEEP_AGAIN_SECONDS)
