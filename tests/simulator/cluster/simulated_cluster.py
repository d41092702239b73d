"""A whole raylog cluster in a simulated world: real brokers, controller, replicas, started and restarted as by Ray.

Each broker has a machine; the controller runs on one of them and, when it has ended, comes back after a while on
another, whether the old one is dead or only stopped. A process for replicas is started on its broker's machine by the
controller's word, through a launcher that takes its time and may lose an order. The broker says what is opened in it.

What is real: all decisions, cores, logs and messages. What is simulated: processes, streams, disks, clocks, and what
Ray does for us.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from raylog.actors.broker.broker import Broker, BrokerSpec
from raylog.actors.cluster.cluster_settings import OWN_REPLICAS_MAX
from raylog.actors.cluster.topic_admin import NewTopic
from raylog.actors.controller.controller import Controller, ControllerSpec
from raylog.actors.coordinators.coordinator import HostedCoordinator, MakeCore
from raylog.actors.housekeeping.housekeeper import Housekeeper, HousekeeperSpec
from raylog.actors.kernel.environment import Environment
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.host_messages import ReplicaToOpen
from raylog.actors.protocol.replica_spec import HostSpec, ReplicaSpec
from raylog.actors.replica.host import ReplicaHost
from raylog.actors.replica.hosted_log import HostedLog
from raylog.actors.replica.hosted_replica import HostedReplica
from raylog.actors.replica.leader import LeaderRole
from raylog.actors.replica.rules.replication import Leadership
from raylog.errors import (
    ControllerFenced,
    DiskFailed,
    MetadataQuorumUnavailable,
    PeerUnreachable,
    RaylogError,
    ReplicaCrashed,
)
from raylog.storage.directory.data_directory import Claim
from raylog.storage.log.partition_log import PartitionLog
from tests.simulator.checks.grant_watch import GrantWatch
from tests.simulator.checks.kept_promises import KeptPromises
from tests.simulator.checks.step_checks import ControllerSteps, HostSteps
from tests.simulator.cluster.simulated_coordinators import SimulatedCoordinatorHost, SimulatedCoordinators
from tests.simulator.world.faulty_disk import FaultyDisk
from tests.simulator.world.machines import Machine, Process, SimEnvironment
from tests.simulator.world.world import World

CLUSTER_ID = "simulated-cluster"
_RESTART_SECONDS = (0.2, 2.0)
_START_SECONDS = (0.01, 0.3)
_BOOT_SECONDS = (0.5, 6.0)
_ORDER_LOST = 0.02
_CONTROLLER_TIMEOUT = 10.0
_COORDINATORS = 3  # of each kind, one or two in a process


@dataclass
class BrokerHome:
    """A broker's machine and data directory, which outlive all of its processes."""

    broker_id: int
    machine: Machine
    process: Process | None = None
    broker: Broker | None = None
    housekeeper: Process | None = None
    needs_reboot: bool = False
    has_older_disk: bool = False  # a copy of its disk, which has forgotten promises

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.is_alive and self.broker is not None

    @property
    def endpoint(self) -> Endpoint | None:
        if not self.is_running or self.broker is None or not self.broker.endpoints:
            return None
        return self.broker.endpoints[-1]


@dataclass
class RunningReplica:
    spec: ReplicaSpec
    process: Process  # of its host
    replica: HostedReplica

    @property
    def hosted(self) -> HostedLog | None:
        return self.replica._hosted

    @property
    def log(self) -> PartitionLog | None:
        hosted = self.hosted
        return None if hosted is None or hosted.failed.done() else hosted.log

    @property
    def has_registered(self) -> bool:
        """Whether its log is open, and it has heard that the controller has heard of it."""
        log = self.log
        return log is not None and (log.marks.registers_later or not log.unproven)

    @property
    def _leader_role(self) -> LeaderRole | None:
        replica = self.replica._replica
        role = None if replica is None else replica._role
        return role if isinstance(role, LeaderRole) and not role._ended else None

    @property
    def leads_epoch(self) -> int | None:
        role = self._leader_role
        return None if role is None else role.epoch

    @property
    def leadership(self) -> Leadership | None:
        role = self._leader_role
        return None if role is None else role._leadership


@dataclass
class RunningHost:
    """A process for replicas, and those that are in it."""

    spec: HostSpec
    process: Process
    host: ReplicaHost
    _known: dict[HostedReplica, RunningReplica] = field(default_factory=dict)

    def replicas(self) -> list[RunningReplica]:
        """The same object for the same replica each time."""
        there = self.host.hosted()
        self._known = {
            each: self._known.get(each) or RunningReplica(each.spec, self.process, each) for each in there
        }
        return list(self._known.values())


class SimulatedHost(ReplicaHost):
    """A host that fails the run where a replica in it met an error that nobody foresaw."""

    def __init__(self, cluster: SimulatedCluster, env: SimEnvironment, spec: HostSpec) -> None:
        super().__init__(env, spec, env.process.pid)
        self._cluster = cluster
        self._world = cluster.world

    def _open(self, order: ReplicaToOpen) -> None:
        if self._cluster.may_open(self._spec.broker_id):
            super()._open(order)

    def has_ended(self, replica: HostedReplica, why: str) -> None:
        self._world.trace("{} is over: {}", replica.spec, why)
        hosted = replica._hosted
        if hosted is not None and hosted.failed.done() and isinstance(hosted.failed.result(), ReplicaCrashed):
            self._world.fail(f"{replica.spec} met an error that nobody foresaw", hosted.failed.result())


@dataclass
class RunningController:
    process: Process
    controller: Controller | None = None

    @property
    def serves(self) -> bool:
        return self.process.is_alive and self.controller is not None and self.controller.is_serving

    @property
    def epoch(self) -> int:
        return -1 if self.controller is None else self.controller.reign.changes.epoch


@dataclass
class SimulatedCluster:
    """`form` makes it; processes that end come back by themselves until `is_over`."""

    world: World
    homes: dict[int, BrokerHome] = field(default_factory=dict)
    hosts: list[RunningHost] = field(default_factory=list)  # whose processes live
    controllers: list[RunningController] = field(default_factory=list)  # whose processes live
    is_over: bool = False
    has_head: bool = True  # as Ray's head, without which no controller is started
    has_housekeepers: bool = False
    loses_orders: bool = True  # to start a host or a coordinator; each is repeated after a time-out
    coordinator_makers: dict[str, MakeCore] = field(default_factory=dict)  # by topic
    coordinator_hosts: list[SimulatedCoordinatorHost] = field(default_factory=list)  # all that ever ran
    grants: GrantWatch = field(init=False)
    _promises: KeptPromises = field(default_factory=KeptPromises)
    _runs: int = 0
    _is_formed: bool = False

    def __post_init__(self) -> None:
        self.grants = GrantWatch(self)

    # --- beginning ----------------------------------------------------------------------------------------------

    def form(self, brokers: int, limit: float = 30.0) -> None:
        """Start everything on blank disks, and wait until the controller serves and all brokers are registered."""
        for broker_id in range(1, brokers + 1):
            home = BrokerHome(broker_id, self.world.add_machine(f"machine-{broker_id}"))
            self.homes[broker_id] = home
            self.start_broker(home)
        self.start_controller(self.homes[1].machine)
        assert self.world.run_until_idle_or(self._is_complete, limit), "the cluster does not form"
        self._is_formed = True

    def until_complete(self, limit: float = 30.0) -> None:
        """Wait for brokers that are fenced again, since their registration had to wait for a slow disk."""
        assert self.world.run_until_idle_or(self._is_complete, limit), "the brokers do not stay"

    def _is_complete(self) -> bool:
        controller = self.serving()
        if controller is None:
            return False
        return controller.reign.changes.live.brokers >= set(self.homes)

    def create_topic(self, topic: str, partitions: int, replication: int, settings: Mapping[str, str]) -> None:
        controller, process = self.serving(), self.controllers[-1].process
        assert controller is not None
        new = NewTopic(topic, partitions, replication, settings=settings)
        # An order to start a replica may get lost, more than once.
        made = process.run(controller.admin.create_topic(new, timeout=120.0))
        assert self.world.run_until_idle_or(made.done, 130.0), "the topic is not created"
        made.result()

    def limit_own_replicas(self, most: int) -> None:
        """Give a process of their own to no more replicas of a broker, from now on; others share one."""
        controller, process = self.serving(), self.controllers[-1].process
        assert controller is not None
        done = process.run(controller.admin.alter_cluster_settings({OWN_REPLICAS_MAX: most}, timeout=20.0))
        assert self.world.run_until_idle_or(done.done, 30.0), "the settings are not changed"
        done.result()

    # --- brokers ------------------------------------------------------------------------------------------------

    def start_broker(self, home: BrokerHome) -> None:
        self._runs += 1
        name = f"broker-{home.broker_id}"
        self._forget_broker(home)
        home.process = home.machine.start(name, self._broker_main, home, f"run-{self._runs}", on_exit=self._broker_gone)

    def _forget_broker(self, home: BrokerHome) -> None:
        if home.broker is not None and not home.has_older_disk:
            self._promises.process_ended(home.broker)
        home.broker = None

    async def _broker_main(self, env: Environment, home: BrokerHome, run: str) -> None:
        node = home.machine.name
        spec = BrokerSpec(CLUSTER_ID, home.broker_id, run, f"node-{node}", node, "", "/data", Claim(run))
        try:
            broker = await Broker.open(env, spec, self.find_controller)
        except RaylogError as error:
            self.world.trace("broker {} cannot start: {}", home.broker_id, error)
            home.needs_reboot = isinstance(error, DiskFailed)
            return
        home.broker = broker
        if not home.has_older_disk:
            self._promises.process_began(broker)
        self._keep_housekeeper(home)
        ends: list[asyncio.Future[Any]] = [broker.failed, broker.stopped]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if broker.failed.done():
            reason = broker.failed.result()
            self.world.trace("broker {} gives up: {!r}", home.broker_id, reason)
            if not isinstance(reason, RaylogError):
                self.world.fail(f"broker {home.broker_id} met an error that nobody foresaw", reason)

    def _broker_gone(self, process: Process) -> None:
        for home in self.homes.values():
            if home.process is process:
                self.world.after(self._pause(_RESTART_SECONDS), self._start_again, home, process)

    def _start_again(self, home: BrokerHome, ended: Process) -> None:
        if self.is_over or not home.machine.is_up or home.process is not ended:
            return
        if home.needs_reboot:
            self._reboot(home)
        else:
            self.start_broker(home)

    def _reboot(self, home: BrokerHome) -> None:
        """Reboot in good order: all that is written is synced. A metadata log that has failed needs it (rule 2)."""
        home.needs_reboot = False
        home.machine.disk.sync_everything()
        self.crash_machine(home)

    # --- housekeeping -------------------------------------------------------------------------------------------

    def _keep_housekeeper(self, home: BrokerHome) -> None:
        """Keep a housekeeper as a broker does: start one if there is none, and again some time after it has ended."""
        is_there = home.housekeeper is not None and home.housekeeper.is_alive
        if self.has_housekeepers and not is_there and home.is_running and not self.is_over:
            home.housekeeper = home.machine.start(
                f"housekeeper-{home.broker_id}", self._housekeeper_main, home, on_exit=self._housekeeper_gone
            )

    async def _housekeeper_main(self, env: SimEnvironment, home: BrokerHome) -> None:
        assert home.broker is not None
        spec = HousekeeperSpec(home.broker_id, home.broker.endpoints[0], "/data")  # where the next broker will be, too
        await Housekeeper(env, spec, env.process.pid).run()

    def _housekeeper_gone(self, process: Process) -> None:
        for home in self.homes.values():
            if home.housekeeper is process:
                self.world.after(self._pause(_RESTART_SECONDS), self._keep_housekeeper, home)

    async def find_controller(self) -> Endpoint:
        """Return the newest process under the name, well or not, as Ray's names do."""
        for running in reversed(self.controllers):
            if running.controller is not None and running.controller.endpoints:
                return running.controller.endpoints[-1]
        raise PeerUnreachable("the controller", "there is none")

    # --- the controller -----------------------------------------------------------------------------------------

    def serving(self) -> Controller | None:
        """Return the serving controller with the highest epoch: several may believe that they serve."""
        running = self.in_office()
        return None if running is None else running.controller

    def in_office(self) -> RunningController | None:
        return max((each for each in self.controllers if each.serves), key=lambda each: each.epoch, default=None)

    def start_controller(self, machine: Machine) -> None:
        self._runs += 1
        process = machine.start(f"controller-{self._runs}", self._controller_main, on_exit=self._controller_gone)
        self.controllers.append(RunningController(process))

    async def _controller_main(self, env: Environment) -> None:
        running = self.controllers[-1]
        form_on = () if self._is_formed else tuple(list(self.homes)[:3])
        spec = ControllerSpec(
            CLUSTER_ID, running.process.name, form_on, coordinated=tuple(self.coordinator_makers),
            coordinators_each=_COORDINATORS,
        )
        launcher = SimulatedLauncher(self, running.process)
        coordinators = SimulatedCoordinators(self)
        running.controller = controller = Controller(env, spec, launcher, coordinators, self._find_brokers)
        running.process.loop.after_call = ControllerSteps(controller)
        try:
            await controller.start(_CONTROLLER_TIMEOUT)
        except RaylogError as error:
            self.world.trace("{} does not get to serve: {}", spec.name, error)
        else:
            await asyncio.wait([controller.stopped])
            reason = controller.stopped.result()
            if reason is not None and not isinstance(reason, ControllerFenced | MetadataQuorumUnavailable):
                self.world.fail(f"{spec.name} is over", reason)
        await controller.close()

    async def _find_brokers(self) -> dict[int, Endpoint]:
        found = {home.broker_id: home.endpoint for home in self.homes.values()}
        return {broker_id: endpoint for broker_id, endpoint in found.items() if endpoint is not None}

    def _controller_gone(self, process: Process) -> None:
        self.controllers = [running for running in self.controllers if running.process is not process]
        self.world.after(self._pause(_RESTART_SECONDS), self._replace_controller)

    def _replace_controller(self) -> None:
        """Start another controller unless one runs, healthy or not: Ray knows one process of the name."""
        if self.is_over or self.controllers or not self.has_head:
            return
        up = [home.machine for home in self.homes.values() if home.machine.is_up]
        if up:
            self.start_controller(self.world.random.choice(up))
        else:
            self.world.after(1.0, self._replace_controller)

    def lose_head(self) -> None:
        """Lose the head, and its controller with it."""
        self.has_head = False
        for running in list(self.controllers):
            running.process.kill()

    def bring_head_back(self) -> None:
        self.has_head = True
        self._replace_controller()

    # --- machines -----------------------------------------------------------------------------------------------

    def crash_machine(self, home: BrokerHome, boot_after: tuple[float, float] = _BOOT_SECONDS) -> None:
        """Crash a machine and let it boot again after a while. No process's `on_exit` is called."""
        if not home.machine.is_up:
            return
        had_controller = any(running.process.machine is home.machine for running in self.controllers)
        home.machine.crash()
        self.controllers = [running for running in self.controllers if running.process.is_alive]
        self.hosts = [running for running in self.hosts if running.process.is_alive]
        self.world.after(self._pause(boot_after), self.boot, home)
        if had_controller:
            self.world.after(self._pause(_RESTART_SECONDS), self._replace_controller)

    def boot(self, home: BrokerHome) -> None:
        if not home.machine.is_up:
            home.machine.restart()
            self.start_broker(home)

    def change_disk(self, home: BrokerHome, disk: FaultyDisk, *, is_older: bool) -> FaultyDisk:
        """Give a machine that is down another disk; returns the one that it had."""
        assert not home.machine.is_up
        self._forget_broker(home)
        disk.crash_machine(self.world.random)
        before, home.machine.disk, home.has_older_disk = home.machine.disk, disk, is_older
        return before

    # --- replicas -----------------------------------------------------------------------------------------------

    @property
    def replicas(self) -> list[RunningReplica]:
        """All whose processes live, in a repeatable order."""
        return [replica for host in self.hosts for replica in host.replicas()]

    def may_open(self, broker_id: int) -> bool:
        """Whether a host of this broker obeys an order to open a replica; else it gets lost."""
        return True

    def start_host(self, spec: HostSpec, ordered_by: Process) -> None:
        home = self.homes[spec.broker_id]
        if not home.machine.is_up:
            return
        self.world.trace("{} was ordered by {}", spec, ordered_by.name)
        name = f"host-{spec.incarnation:x}@{spec.broker_id}"
        home.machine.start(name, self._host_main, spec, on_exit=self._host_gone)

    async def _host_main(self, env: SimEnvironment, spec: HostSpec) -> None:
        host = SimulatedHost(self, env, spec)
        self.hosts.append(RunningHost(spec, env.process, host))
        env.process.loop.after_call = HostSteps(host)
        self.world.trace("{} is over: {}", spec, await host.run())

    def _host_gone(self, process: Process) -> None:
        gone = [running for running in self.hosts if running.process is process]
        self.hosts = [running for running in self.hosts if running.process is not process]
        for running in self.controllers:  # Ray tells whoever started it, sooner or later
            if running.serves and gone and running.controller is not None:
                running.controller.host_ended(gone[0].spec)

    def _pause(self, seconds: tuple[float, float]) -> float:
        return self.world.random.uniform(*seconds)

    # --- looking ------------------------------------------------------------------------------------------------

    def broker_endpoints(self) -> list[Endpoint]:
        return [home.endpoint for home in self.homes.values() if home.endpoint is not None]

    def processes(self) -> list[Process]:
        """All of the cluster that live, in a repeatable order."""
        return [process for home in self.homes.values() for process in list(home.machine.processes)]

    def serving_coordinators(self) -> dict[tuple[str, int, int], HostedCoordinator]:
        """Return those in processes that may still live, by topic, partition and epoch."""
        hosted = [each for host in self.coordinator_hosts for each in host.hosted() if each.is_serving]
        return {(each.spec.topic, each.spec.partition, each.spec.epoch): each for each in hosted}

    def coordinator_processes(self) -> list[Process]:
        return [process for process in self.processes() if process.name.startswith("coordinator")]


class SimulatedLauncher:
    """Starts hosts for one controller. An order takes its time, and now and then it is lost."""

    def __init__(self, cluster: SimulatedCluster, owner: Process) -> None:
        self._cluster = cluster
        self._owner = owner
        self._unwanted: set[int] = set()

    async def start(self, spec: HostSpec) -> None:
        world = self._cluster.world
        await asyncio.sleep(0.001)
        if world.random.random() >= _ORDER_LOST or not self._cluster.loses_orders:
            world.after(world.random.uniform(*_START_SECONDS), self._start, spec)

    def starts_at_once(self, _node_id: str) -> int:
        return 4

    async def stop(self, spec: HostSpec) -> None:
        self._unwanted.add(spec.incarnation)
        for running in list(self._cluster.hosts):
            if running.spec.incarnation == spec.incarnation and running.process.is_alive:
                running.process.kill("stopped by the launcher")

    def _start(self, spec: HostSpec) -> None:
        if spec.incarnation not in self._unwanted and not self._cluster.is_over:
            self._cluster.start_host(spec, self._owner)
