"""The controller: decides everything about the cluster, and keeps it in the metadata log.

    beginning ──log recovered, or formed──► serving ──a higher epoch, an unexpected error, close──► over

What it rules with under one epoch is a `ControllerReign`: the changes that it makes, and all that acts on them.

    brokers ──register, report──► sessions.py ──decisions──► changes.py ──► metadata log
                                                                 └─committed─► replica_starts.py,
               coordinator_starts.py, replica_removal.py, leadership_upkeep.py, internal_topics.py, admin.py

A writer of the metadata log is good for one beginning, so what stands on it is made with it, whole. A controller that
was to form a cluster, and finds a log that is not blank, begins again with another reign.

What must stay true:
- No request is served before a record of this controller's own epoch is committed (rule 17); until then each is refused
  as retriable.
- Once it is over it stays so, says why in `stopped`, and decides and starts nothing any more. Its owner makes another.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, NamedTuple

from raylog.actors.cluster.admin_wire import plain_answer, request_of
from raylog.actors.cluster.broker_membership import mark_directory, report_gateway
from raylog.actors.cluster.control_counters import cluster_readings
from raylog.actors.cluster.coordinator_state import COORDINATORS
from raylog.actors.controller.admin import ControllerAdmin
from raylog.actors.controller.admin_calls import carry_out
from raylog.actors.controller.changes import ClusterChanges, ReplicaChange
from raylog.actors.controller.coordinator_hosts import CoordinatorLauncher
from raylog.actors.controller.coordinator_starts import CoordinatorSupervisor
from raylog.actors.controller.copy_checks import CopyChecks
from raylog.actors.controller.host_moves import HostMoves
from raylog.actors.controller.host_starts import HostLauncher, HostSupervisor
from raylog.actors.controller.internal_topics import InternalTopics
from raylog.actors.controller.leadership_upkeep import LeadershipUpkeep
from raylog.actors.controller.replica_removal import ReplicaRemoval
from raylog.actors.controller.replica_starts import ReplicaSupervisor
from raylog.actors.controller.secret_rotation import SecretRotation
from raylog.actors.controller.sessions import BrokerSessions, ReplicaEvents
from raylog.actors.controller.voter_upkeep import VoterUpkeep
from raylog.actors.kernel.background import BackgroundTasks, Timers
from raylog.actors.kernel.environment import Environment, Server
from raylog.actors.kernel.metrics import Reading
from raylog.actors.kernel.stream_interface import Answer, Dispatch, Request, Response, Stream
from raylog.actors.metadata_log.writer import MetadataWriter, Recovered
from raylog.actors.protocol.admin_messages import Administer, Administered
from raylog.actors.protocol.control_messages import (
    AllocateProducerIds,
    BrokerHeartbeat,
    MarkDirectory,
    ProducerIdsAllocated,
    ProposeIsr,
    RegisterBroker,
    StandDown,
    StopBroker,
)
from raylog.actors.protocol.coordinator_messages import (
    CoordinatorHeartbeat,
    CoordinatorHostHello,
    EnsureCoordinators,
    FindTopicById,
    TopicFoundById,
)
from raylog.actors.protocol.coordinator_spec import CoordinatorHostSpec
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.gateway_messages import ReportGateway
from raylog.actors.protocol.incarnations import incarnation_of
from raylog.actors.protocol.messages import Done
from raylog.actors.protocol.metadata_records import BrokerIdsUsed, ClusterFormed
from raylog.actors.protocol.names import COORDINATED_TOPICS
from raylog.actors.protocol.replica_spec import HostSpec
from raylog.errors import (
    ControllerNotReady,
    InvalidRequest,
    MetadataNotBlank,
    RaylogError,
    StreamError,
    WrongCluster,
)

FORMAT_VERSION: Final = 1
_FIND_SECONDS: Final = 5.0
_DIAL_AGAIN_SECONDS: Final = 0.1
_STOP_BROKER_SECONDS: Final = 10.0
_STOP_COORDINATOR_SECONDS: Final = 3.0
_CLOSE_SECONDS: Final = 10.0

FindBrokers = Callable[[], Awaitable[Mapping[int, Endpoint]]]

_log = logging.getLogger(__name__)


class ReignMeans(NamedTuple):
    """The means that all reigns of one controller have in common."""

    env: Environment
    tasks: BackgroundTasks
    timers: Timers
    cluster_id: str
    balance_leaders: bool
    host_launcher: HostLauncher
    coordinator_launcher: CoordinatorLauncher
    coordinated: tuple[str, ...]
    coordinators_each: int


class ControllerReign:
    """All that one epoch of a controller consists of. `on_broker` is called first when a broker has registered."""

    def __init__(self, means: ReignMeans, writer: MetadataWriter, on_broker: Callable[[int], None]) -> None:
        self.writer = writer
        self._on_broker = on_broker
        self._coordinated = means.coordinated
        self.changes = changes = ClusterChanges(writer, self._committed)
        random = means.env.random
        incarnations = count(1)

        def next_incarnation() -> int:
            return incarnation_of(changes.epoch, next(incarnations))

        self.hosts = HostSupervisor(
            changes, means.host_launcher, means.tasks, random, means.cluster_id, next_incarnation
        )
        self.supervisor = ReplicaSupervisor(
            changes, means.tasks, random, next_incarnation, means.host_launcher.starts_at_once
        )
        self.coordinators = CoordinatorSupervisor(
            changes, writer, means.coordinator_launcher, means.tasks, means.timers, random, means.cluster_id
        )
        self.removal = ReplicaRemoval(changes, means.tasks, random)
        self.leadership = LeadershipUpkeep(changes, balance_leaders=means.balance_leaders)
        events = ReplicaEvents(
            registered=self.supervisor.registered,
            lost=self.supervisor.lost,
            unwanted=self.supervisor.unwanted,
            broker_registered=self._broker_registered,
            hosts_heard=self.hosts.heard,
        )
        self.sessions = BrokerSessions(changes, writer, means.timers, events)
        self.checks = CopyChecks(changes, self.sessions, means.tasks, random)
        self.moves = HostMoves(changes, self.supervisor)
        self.rotation = SecretRotation(
            means.env, means.tasks, lambda: writer.epoch, lambda: (each.stream for each in self.sessions.all())
        )
        self.internal_topics = InternalTopics(
            changes, random, lambda: self.sessions.registered, means.coordinators_each
        )
        self.admin = ControllerAdmin(
            changes,
            self.sessions,
            writer,
            random,
            self._broker_removed,
            self.coordinators.settings_changed,
            lambda: self.coordinators.describe(means.coordinated),
            self.internal_topics.records,
        )

    def take_over(self, recovered: Recovered) -> None:
        """Fold what the log holds; nothing acts on it yet."""
        self.changes.begin(recovered)

    def begin(self) -> None:
        """Act on the recovered state."""
        self.sessions.begin()
        self.supervisor.begin(self.sessions)
        self.coordinators.begin(self._coordinated)
        self.removal.begin(self.sessions)
        self.leadership.begin()
        self.checks.begin()

    def end(self) -> None:
        """Start nothing any more, and let no lease run out."""
        self.supervisor.stop()
        self.hosts.stop()
        self.coordinators.stop()
        self.sessions.close()

    def _broker_registered(self, broker_id: int) -> None:
        self._on_broker(broker_id)
        self.supervisor.check_broker(broker_id)
        self.rotation.look()
        self.removal.check_broker(broker_id)
        self.coordinators.hosts.check_broker(broker_id)
        self.internal_topics.add_copies(self._coordinated)

    def _broker_removed(self, broker_id: int) -> None:
        self.removal.broker_removed(broker_id)
        self.coordinators.hosts.broker_removed(broker_id)

    def _committed(self, changes: Sequence[ReplicaChange]) -> None:
        """Tell those who act, in the order in which work is wanted.

        What serves comes first: replicas that are to run, then coordinators. What may wait comes after that: data that
        is needed no more, and leaders in their preferred places.
        Each only takes notes and starts tasks of its own, so none sees the work of another that was told before.
        """
        self.supervisor.committed(changes)
        self.coordinators.committed(changes)
        self.removal.committed(changes)
        self.leadership.committed(changes)
        self.checks.committed(changes)


@dataclass(frozen=True, slots=True)
class ControllerSpec:
    """The facts that a controller process starts with."""

    cluster_id: str
    name: str  # for people
    form_on: tuple[int, ...] = ()  # begin a new cluster with these brokers as voters; else take over what is there
    next_broker_id: int = 0  # of that new cluster: above all whose directories have a number
    balance_leaders: bool = True
    coordinated: tuple[str, ...] = ()  # raylog's own topics that are there from the beginning, with their coordinators
    coordinators_each: int = COORDINATORS  # the partitions of such a topic, where it is still to be created


class Controller:
    """Made on its event loop; `start`, and in the end `shutdown` or `close`."""

    def __init__(
        self,
        env: Environment,
        spec: ControllerSpec,
        launcher: HostLauncher,
        coordinator_launcher: CoordinatorLauncher,
        find_brokers: FindBrokers,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.stopped: asyncio.Future[BaseException | None] = loop.create_future()  # why it is over; None: closed
        self.endpoints: tuple[Endpoint, ...] = ()
        self._env = env
        self._spec = spec
        self._find_brokers = find_brokers
        self._timers = Timers(loop)
        self._tasks = BackgroundTasks(self._stop)
        self._dialling = BackgroundTasks(self._stop)
        self._dialled: dict[int, Stream] = {}
        self._means = ReignMeans(
            env, self._tasks, self._timers, spec.cluster_id, spec.balance_leaders, launcher, coordinator_launcher,
            spec.coordinated, spec.coordinators_each,
        )  # fmt: skip
        self.reign = self._new_reign()
        self._is_serving = False
        self._is_shutting_down = False
        self._closed: asyncio.Future[None] | None = None
        self._server: Server | None = None
        self._handlers: Dispatch[Callable[[Request, Any], Answer | Awaitable[Answer]]] = Dispatch({
            RegisterBroker: self._on_registration,
            BrokerHeartbeat: self._on_heartbeat,
            ProposeIsr: self._on_proposal,
            StandDown: self._on_standing_down,
            AllocateProducerIds: self._on_allocation,
            MarkDirectory: self._on_mark,
            ReportGateway: self._on_gateway,
            CoordinatorHostHello: self._on_coordinator_host,
            CoordinatorHeartbeat: self._on_coordinators,
            EnsureCoordinators: self._on_coordinators_wanted,
            FindTopicById: self._on_topic_sought,
            Administer: self._on_administration,
        })

    def _new_reign(self) -> ControllerReign:
        return ControllerReign(self._means, MetadataWriter(self._env, self._spec.name), self._broker_registered)

    # --- beginning ------------------------------------------------------------------------------------------------

    async def start(self, timeout: float = 30.0) -> None:
        """Returns once it serves.

        MetadataQuorumUnavailable, ControllerFenced, WrongCluster: it never will, and is to be closed.
        """
        self._server, self.endpoints = await self._env.listen("controller", "controller", self.handle)
        self._dialling.start(self._dial_brokers())
        recovered = await self._recovered(timeout)
        await self._dialling.close()
        reign = self.reign
        reign.writer.fenced.add_done_callback(lambda fenced: self._stop(fenced.result()))
        reign.take_over(recovered)
        if reign.changes.state.cluster_id != self._spec.cluster_id:
            found, expected = reign.changes.state.cluster_id, self._spec.cluster_id
            raise WrongCluster("the metadata log", f"cluster {found}", f"cluster {expected}")
        reign.begin()
        self._tasks.start(reign.leadership.run())
        self._tasks.start(reign.moves.run())
        self._tasks.start(VoterUpkeep(reign.changes, reign.writer, self._stop).run())
        if self._spec.coordinated:
            self._tasks.start(reign.internal_topics.create_missing(self._spec.coordinated, self._spec.form_on))
        self._is_serving = True
        _log.info("%s serves under epoch %d from version %d.", self._spec.name, self.epoch, recovered.version)

    async def _recovered(self, timeout: float) -> Recovered:
        spec = self._spec
        if spec.form_on:
            formed = ClusterFormed(spec.cluster_id, self._env.wall_ms(), FORMAT_VERSION)
            numbered = BrokerIdsUsed(spec.next_broker_id)
            try:
                return await self.reign.writer.form(self._reachable, spec.form_on, [formed, numbered], timeout=timeout)
            except MetadataNotBlank as error:
                _log.warning("%s This controller takes over what is there.", error.describe())
                self.reign = self._new_reign()
        return await self.reign.writer.recover(self._reachable, timeout=timeout)

    async def _dial_brokers(self) -> None:
        """Dial brokers again and again, until the log is recovered; from then on brokers find their controller."""
        under_way: dict[int, None] = {}
        while True:
            try:
                endpoints = await asyncio.wait_for(self._find_brokers(), _FIND_SECONDS)
            except (RaylogError, asyncio.TimeoutError) as error:
                _log.warning("%s does not find the brokers yet: %r", self._spec.name, error)
                endpoints = {}
            for broker_id, endpoint in endpoints.items():
                stream = self._dialled.get(broker_id)
                if broker_id not in under_way and (stream is None or stream.closed.done()):
                    under_way[broker_id] = None
                    self._dialling.start(self._dial(broker_id, endpoint, under_way))
            await asyncio.sleep(_DIAL_AGAIN_SECONDS)

    async def _dial(self, broker_id: int, endpoint: Endpoint, under_way: dict[int, None]) -> None:
        try:
            self._dialled[broker_id] = await self._env.dial(endpoint, "controller", self.handle)
        except StreamError as error:
            _log.info("Broker %d is not reached yet: %s", broker_id, error)
        del under_way[broker_id]

    def _reachable(self) -> Iterator[tuple[int, Stream]]:
        return iter([each for each in self._dialled.items() if not each[1].closed.done()])

    # --- serving --------------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        return self.reign.writer.epoch

    @property
    def is_serving(self) -> bool:
        return self._is_serving

    @property
    def admin(self) -> ControllerAdmin:
        """ControllerNotReady where it does not serve."""
        self._check_serving()
        return self.reign.admin

    async def rotate_secrets(self, grace_seconds: float, timeout: float) -> None:
        """See `SecretRotation.rotate`. ControllerNotReady."""
        self._check_serving()
        await self.reign.rotation.rotate(grace_seconds, timeout)

    def readings(self) -> Iterator[Reading]:
        """The metrics of a controller, while it serves."""
        if self._is_serving:
            yield from self.reign.changes.counters.readings()
            yield from cluster_readings(self.reign.changes.state, self.reign.changes.live)

    def host_ended(self, spec: HostSpec) -> None:
        """Take note that this process has ended. The shell calls it, and may be the first to notice."""
        self.reign.hosts.process_ended(spec)

    def coordinators_ended(self, spec: CoordinatorHostSpec, run: str) -> None:
        """Take note that this process has ended, likewise. An empty run: it is not sure."""
        self.reign.coordinators.hosts.process_ended(spec, run)

    def handle(self, request: Request) -> Answer | Awaitable[Answer]:
        """The handler of all its streams."""
        handler = self._handlers.handler_of(request.message)
        self._check_serving()
        return handler(request, request.message)

    def _check_serving(self) -> None:
        if not self._is_serving:
            raise ControllerNotReady("This controller has not begun to serve, or is over.")

    def _check_knows(self, version: int) -> None:
        """Raise ControllerNotReady unless this version is known: one that was replaced would tell what was before."""
        if self.reign.changes.version < version:
            raise ControllerNotReady("This controller knows less than the requester. Another one has taken over.")

    def _on_registration(self, request: Request, asked: RegisterBroker) -> Awaitable[Answer]:
        return self.reign.sessions.register(asked, request.stream)

    def _on_heartbeat(self, request: Request, beat: BrokerHeartbeat) -> Awaitable[Answer]:
        return self.reign.sessions.heartbeat(beat, request.stream)

    def _on_standing_down(self, request: Request, asked: StandDown) -> Awaitable[Answer]:
        return self.reign.sessions.stand_down(asked, request.stream)

    def _on_proposal(self, request: Request, proposal: ProposeIsr) -> Awaitable[Answer]:
        if self._is_shutting_down:
            raise ControllerNotReady("The cluster is being shut down.")
        return self.reign.sessions.propose_isr(proposal, request.stream)

    async def _on_allocation(self, _: Request, asked: AllocateProducerIds) -> Answer:
        return Response(ProducerIdsAllocated(*await self.reign.admin.allocate_producer_ids(asked.count)))

    async def _on_mark(self, request: Request, asked: MarkDirectory) -> Answer:
        """Only the broker of this stream speaks for its directory."""
        self.reign.sessions.check_speaks_for(request.stream, asked.broker_id)
        await self.reign.changes.commit(mark_directory(self.reign.changes.state, asked))
        return Response(Done())

    async def _on_gateway(self, request: Request, asked: ReportGateway) -> Answer:
        self.reign.sessions.check_speaks_for(request.stream, asked.broker_id)
        await self.reign.changes.commit(report_gateway(self.reign.changes.state, asked))
        return Response(Done())

    def _on_coordinator_host(self, request: Request, hello: CoordinatorHostHello) -> Answer:
        if self._is_shutting_down:
            raise ControllerNotReady("The cluster is being shut down.")
        self.reign.rotation.heard_of(request.stream)
        self.reign.coordinators.hosts.hello(hello, request.stream)
        return None

    async def _on_coordinators(self, request: Request, beat: CoordinatorHeartbeat) -> Answer:
        if self._is_shutting_down:
            raise ControllerNotReady("The cluster is being shut down.")
        self.reign.rotation.heard_of(request.stream)
        return Response(await self.reign.coordinators.heartbeat(beat, request.stream))

    async def _on_topic_sought(self, _: Request, sought: FindTopicById) -> Answer:
        """Name this topic. The requester has seen it, so its creation is committed, and so is the answer."""
        self._check_knows(sought.seen)
        topic = self.reign.changes.state.topics.get(sought.topic_id)
        await self.reign.changes.commit(())
        return Response(TopicFoundById("" if topic is None else topic.name))

    async def _on_administration(self, _: Request, asked: Administer) -> Answer:
        if self._is_shutting_down:
            raise ControllerNotReady("The cluster is being shut down.")
        self._check_knows(asked.seen)
        request = request_of(asked.call, asked.arguments)
        answer = await carry_out(self.reign.admin, request, asked.timeout_ms / 1000)
        return Response(Administered(plain_answer(request, answer), self.reign.changes.version))

    async def _on_coordinators_wanted(self, _: Request, wanted: EnsureCoordinators) -> Answer:
        """Done: there are some, or will be in a moment; where, metadata tells."""
        if wanted.topic not in COORDINATED_TOPICS:
            raise InvalidRequest(f"The topic {wanted.topic!r} has no coordinators.")
        await self.reign.admin.ensure_coordinated(wanted.topic)
        return None

    def _broker_registered(self, broker_id: int) -> None:
        dialled = self._dialled.pop(broker_id, None)
        if dialled is not None:
            self._tasks.start(dialled.close(timeout=0.0))

    # --- ending ---------------------------------------------------------------------------------------------------

    async def shutdown(self, timeout: float = _STOP_BROKER_SECONDS) -> None:
        """Stop the whole cluster cleanly: coordinators, replicas (which close their logs), brokers, this controller."""
        self._check_serving()
        self._is_shutting_down = True
        self.reign.end()
        coordinators, hosts = self.reign.coordinators, self.reign.hosts
        await asyncio.gather(coordinators.hosts.end_all(_STOP_COORDINATOR_SECONDS), hosts.give_up_all())
        self.reign.changes.snapshot()
        stops = [session.stream.request(StopBroker(), timeout=timeout) for session in self.reign.sessions.all()]
        for stop in await asyncio.gather(*stops, return_exceptions=True):
            if isinstance(stop, BaseException):
                _log.warning("A broker was not stopped cleanly: %s", stop)
        await self.close()

    async def close(self) -> None:
        """End this controller only; replicas and brokers go on. A second call waits for the first."""
        if self._closed is not None:
            await asyncio.wait([self._closed], timeout=_CLOSE_SECONDS)
            return
        self._closed = asyncio.get_running_loop().create_future()
        self._end()
        await self.reign.writer.close()
        await self._dialling.close()
        await self._tasks.close()
        if self._server is not None:
            await self._server.close(timeout=1.0)
        for stream in self._dialled.values():
            await stream.close(timeout=0.0)
        self._timers.close()
        self._closed.set_result(None)
        if not self.stopped.done():
            self.stopped.set_result(None)

    def _stop(self, reason: BaseException) -> None:
        """Decide nothing any more: it cannot go on. Its owner sees `stopped` and closes it."""
        self._end()
        if not self.stopped.done():
            _log.critical("%s is over: %s", self._spec.name, reason)
            self.stopped.set_result(reason)

    def _end(self) -> None:
        self._is_serving = False
        self.reign.end()
