"""Brokers and a controller, the real cores, in a simulated world; only the hosts and their replicas are stand-ins.

A `HostStandIn` does what a host does towards its broker: it says hello, sends heartbeats, and obeys. A `StandIn` is a
replica in it: it locks its directory, says hello, and remembers its assignments. Its log is whatever the test says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from raylog.actors.broker.broker import Broker, BrokerSpec
from raylog.actors.cluster.assignments import assignment_of, move_shares
from raylog.actors.cluster.partition import PartitionState
from raylog.actors.cluster.state import ClusterState, ReplicaKey
from raylog.actors.cluster.topic_admin import NewTopic
from raylog.actors.controller.admin import ControllerAdmin
from raylog.actors.controller.controller import Controller, ControllerSpec
from raylog.actors.kernel.stream_interface import Answer, Request, Stream
from raylog.actors.protocol.control_messages import (
    Assign,
    ProposeIsr,
    ReplicaMarks,
)
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.host_messages import (
    OWN,
    SPARE,
    HostHeartbeat,
    HostHello,
    OpenReplicas,
    ReplicaFailed,
    ReplicaHello,
    ReplicaToOpen,
    StopHost,
    StopReplica,
)
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.replica_spec import HostSpec, ReplicaSpec
from raylog.errors import (
    ControllerFenced,
    ControllerNotReady,
    DirectoryLocked,
    HostNotStarted,
    RaylogError,
    StreamError,
)
from raylog.storage.directory.data_directory import Claim
from raylog.storage.directory.partition_directory import PARTITION_FILE
from raylog.storage.disk.checkpoints import write_checkpoint
from raylog.storage.disk.disk import DirectoryLock
from tests.simulator.world.fake_network import NetworkSettings
from tests.simulator.world.machines import Machine, Process, SimEnvironment
from tests.simulator.world.world import World
from tests.unit.actors.coordinator_stand_ins import COORDINATORS, CoordinatorStandIns

_T = TypeVar("_T")

CLUSTER_ID = "cluster-1"
DIRECTORY = "/data"
CALM = NetworkSettings(slow_chance=0.0, stuck_chance=0.0, notice=(0.0, 0.001))
START_SECONDS = 0.05


class HostStandIn:
    """One process for replicas."""

    def __init__(self, cluster: ControlCluster, spec: HostSpec) -> None:
        self.spec = spec
        self.room = SPARE
        self.process: Process | None = None
        self.is_deaf = False  # it does not answer to an order to stop
        self.lingers = False  # its process does not end when it should
        self.refusals: list[str] = []
        self.stream: Stream | None = None
        self.replicas: dict[tuple[bytes, int], StandIn] = {}
        self._cluster = cluster
        self._over: asyncio.Future[None] | None = None

    async def run(self, env: SimEnvironment, pid: int) -> None:
        over = self._over = asyncio.get_running_loop().create_future()
        while not over.done():
            try:
                stream = self.stream = await env.dial(self.spec.broker, "replica", partial(self._handle, env))
                await stream.request(HostHello(self.spec.incarnation, pid, ("unix:/host",), self.room), timeout=2.0)
                for stand_in in self.replicas.values():
                    await stream.request(stand_in.hello(), timeout=2.0)
                while not stream.closed.done() and not over.done():
                    stream.send(HostHeartbeat(tuple(each.marks() for each in self.replicas.values())))
                    await asyncio.wait({stream.closed, over}, timeout=0.3, return_when="FIRST_COMPLETED")
                if over.done():
                    await stream.close()
                    if self.lingers:
                        await asyncio.get_running_loop().create_future()
            except StreamError as error:
                self.refusals.append(str(error))
            await asyncio.sleep(0.1)

    def _handle(self, env: SimEnvironment, request: Request) -> Answer | Awaitable[Answer]:
        message = request.message
        if isinstance(message, StopReplica) and self.is_deaf:
            return asyncio.get_running_loop().create_future()
        if isinstance(message, OpenReplicas):
            self.room = message.room
            for order in message.replicas:
                self._open(env, order)
        elif isinstance(message, Assign) and (message.topic_id, message.partition) in self.replicas:
            self.replicas[message.topic_id, message.partition].assigned = message
        elif isinstance(message, StopReplica):
            self._stop(message.topic_id, message.partition)
        elif isinstance(message, StopHost):
            for partition in list(self.replicas):
                self._stop(*partition)
            self.end()
        return None

    def _open(self, env: SimEnvironment, order: ReplicaToOpen) -> None:
        spec = ReplicaSpec(
            CLUSTER_ID, order.topic, order.topic_id, order.partition, self.spec.broker_id, order.incarnation,
            order.settings, order.directory, self.spec.node_id, self.room,
        )  # fmt: skip
        stand_in = self._cluster.new_stand_in(self, spec)
        if self._cluster.openings_fail:
            stand_in.fail(damaged=False)
            return
        env.disk.make_directory(spec.directory)
        try:
            stand_in.lock = env.disk.lock_directory(spec.directory)
        except DirectoryLocked:
            return  # another one, that another controller has asked for, was quicker
        self.replicas[spec.id] = stand_in
        write_checkpoint(env.disk, f"{spec.directory}/{PARTITION_FILE}", 1, {"topic_id": spec.topic_id.hex()})
        if not self._cluster.openings_hang:
            self.say(stand_in.hello())

    def _stop(self, topic_id: bytes, partition: int) -> None:
        stand_in = self.replicas.pop((topic_id, partition), None)
        if stand_in is not None:
            stand_in.is_stopped = True
            if stand_in.lock is not None:
                stand_in.lock.release()
        if self.room == OWN:
            self.end()

    def say(self, message: Message) -> None:
        assert self.stream is not None
        self.stream.send(message)

    def end(self) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_result(None)


class StandIn:
    """One replica in a host."""

    def __init__(self, host: HostStandIn, spec: ReplicaSpec, log_end: tuple[int, int], unproven: str) -> None:
        self.host = host
        self.spec = spec
        self.log_end = log_end  # last epoch, log end offset
        self.unproven = unproven
        self.assigned: Assign | None = None
        self.is_stopped = False
        self.lock: DirectoryLock | None = None
        self.has_full_disk = False

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.spec.topic_id, self.spec.partition, self.spec.broker_id)

    @property
    def process(self) -> Process | None:
        return self.host.process

    @property
    def broker(self) -> Stream | None:
        return self.host.stream

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.is_alive

    def hello(self) -> ReplicaHello:
        spec = self.spec
        return ReplicaHello(spec.topic_id, spec.partition, spec.incarnation, *self.log_end, self.unproven, 0)

    def marks(self) -> ReplicaMarks:
        spec = self.spec
        return ReplicaMarks(
            spec.topic_id, spec.partition, spec.incarnation,
            "waiting", 0, 0, self.log_end[1], 100, self.has_full_disk, spec.room, self.log_end[0],
        )  # fmt: skip

    def fail(self, *, damaged: bool) -> None:
        spec = self.spec
        self.host.say(
            ReplicaFailed(
                spec.topic_id, spec.partition, spec.incarnation, "LogDamaged", "bytes are missing", damaged
            )
        )

    def proposal(self, isr: tuple[int, ...], **changed: int) -> ProposeIsr:
        """As of the leader: let the ISR be these brokers, as the incarnations in its assignment."""
        assert self.assigned is not None
        assigned = self.assigned
        incarnations = {broker: incarnation for broker, incarnation, _ in assigned.replicas}
        return ProposeIsr(
            assigned.topic_id,
            assigned.partition,
            changed.get("leader", assigned.leader),
            changed.get("leader_epoch", assigned.leader_epoch),
            changed.get("partition_epoch", assigned.partition_epoch),
            tuple((broker, incarnations[broker]) for broker in isr),
        )

    async def propose(self, isr: tuple[int, ...], **changed: int) -> None:
        assert self.broker is not None
        await self.broker.request(self.proposal(isr, **changed), timeout=3.0)


class Launcher:
    """Starts stand-ins of hosts, a moment after it was asked."""

    def __init__(self, cluster: ControlCluster) -> None:
        self._cluster = cluster
        self.started: list[HostSpec] = []
        self.stopped: list[HostSpec] = []
        self.refuses = False
        self.hangs = False  # what is asked for never begins

    async def start(self, spec: HostSpec) -> None:
        self.started.append(spec)
        if self.refuses:
            raise HostNotStarted(spec.broker_id, "the test says so")
        if not self.hangs:
            self._cluster.world.after(START_SECONDS, self._cluster.start_host, spec)

    def starts_at_once(self, _node_id: str) -> int:
        return 4

    async def stop(self, spec: HostSpec) -> None:
        self.stopped.append(spec)


class ControlCluster:
    """Brokers 1 to n on a machine each, the controller on one of its own."""

    def __init__(self, world: World, brokers: int = 3, *, one_node: bool = False) -> None:
        """`one_node`: Ray has all brokers on one node, though they are machines of their own here."""
        self.world = world
        self._one_node = one_node
        self.head = world.add_machine("head")
        self.machines: dict[int, Machine] = {each: world.add_machine(f"m{each}") for each in range(1, brokers + 1)}
        self.brokers: dict[int, Broker] = {}
        self.processes: dict[int, Process] = {}
        self.specs: dict[int, BrokerSpec] = {}  # of the newest process
        self.controllers: list[Controller] = []
        self.controller_processes: list[Process] = []
        self.replicas: dict[ReplicaKey, StandIn] = {}  # the newest of each
        self.stand_ins: list[StandIn] = []  # all that ever were told to open
        self.hosts: list[HostStandIn] = []
        self.openings_fail = False  # no replica can open its log
        self.openings_hang = False  # nor does it say so
        self.log_ends: dict[ReplicaKey, tuple[int, int]] = {}
        self.unproven: dict[ReplicaKey, str] = {}
        self.launcher = Launcher(self)
        self.coordinators = CoordinatorStandIns(self)
        self.coordinated: tuple[str, ...] = ()  # topics that the controller creates by itself
        self._runs = 0

    # --- starting -------------------------------------------------------------------------------------------------

    def form(self) -> None:
        """All brokers, and a controller that forms the cluster on them."""
        for broker_id in self.machines:
            self.start_broker(broker_id)
        self.start_controller(form_on=tuple(self.machines))
        self.until(lambda: self.serves() and len(self.live_brokers()) == len(self.machines))
        self.until(self.has_spare_hosts)

    def has_spare_hosts(self) -> bool:
        """Whether each broker has as many processes as it wants."""
        return all(broker._replicas.hosts.wanted() == 0 for broker in self.brokers.values())

    def start_broker(self, broker_id: int) -> None:
        self._runs += 1
        claim = Claim(f"directory-{self._runs}")
        node = "node" if self._one_node else f"node-{broker_id}"
        spec = BrokerSpec(
            CLUSTER_ID, broker_id, f"run-{self._runs}", node, f"m{broker_id}", "", DIRECTORY, claim
        )
        self.specs[broker_id] = spec
        self.processes[broker_id] = self.machines[broker_id].start(f"broker-{broker_id}", self._broker_main, spec)

    async def _broker_main(self, env: SimEnvironment, spec: BrokerSpec) -> None:
        self.brokers[spec.broker_id] = broker = await Broker.open(env, spec, self.find_controller)
        while not (broker.failed.done() or broker.stopped.done()):
            await asyncio.sleep(0.01)
        if broker.failed.done():
            raise broker.failed.result()

    def start_controller(self, form_on: tuple[int, ...] = ()) -> None:
        self._runs += 1
        name = f"controller-{self._runs}"
        self.controller_processes.append(self.head.start(name, self._controller_main, name, form_on))

    async def _controller_main(self, env: SimEnvironment, name: str, form_on: tuple[int, ...]) -> None:
        spec = ControllerSpec(CLUSTER_ID, name, form_on, coordinated=self.coordinated, coordinators_each=COORDINATORS)
        controller = Controller(env, spec, self.launcher, self.coordinators, self._find_brokers)
        self.controllers.append(controller)
        try:
            await controller.start()
            await controller.stopped
        except ControllerFenced:  # another one was quicker
            pass
        await controller.close()

    def start_host(self, spec: HostSpec) -> None:
        stand_in = HostStandIn(self, spec)
        self.hosts.append(stand_in)

        async def main(env: SimEnvironment) -> None:
            while stand_in.process is None:
                await asyncio.sleep(0)
            await stand_in.run(env, stand_in.process.pid)

        if self.machines[spec.broker_id].is_up:
            stand_in.process = self.machines[spec.broker_id].start(str(spec), main)

    def new_stand_in(self, host: HostStandIn, spec: ReplicaSpec) -> StandIn:
        key = ReplicaKey(spec.topic_id, spec.partition, spec.broker_id)
        stand_in = StandIn(host, spec, self.log_ends.get(key, (-1, 0)), self.unproven.get(key, ""))
        self.replicas[key] = stand_in
        self.stand_ins.append(stand_in)
        return stand_in

    async def find_controller(self) -> Endpoint:
        if not self.controllers or not self.controllers[-1].endpoints:
            raise ControllerNotReady("The test has not started one.")
        return self.controllers[-1].endpoints[-1]

    async def _find_brokers(self) -> Mapping[int, Endpoint]:
        return {each: broker.endpoints[-1] for each, broker in self.brokers.items() if self.processes[each].is_alive}

    # --- looking --------------------------------------------------------------------------------------------------

    @property
    def controller(self) -> Controller:
        return self.controllers[-1]

    @property
    def admin(self) -> ControllerAdmin:
        return self.controller.admin

    @property
    def state(self) -> ClusterState:
        """As the controller knows it."""
        return self.controller.reign.changes.state

    def serves(self) -> bool:
        return (
            len(self.controllers) == len(self.controller_processes)
            and self.controller_processes[-1].is_alive
            and self.controller.is_serving
        )

    def live_brokers(self) -> set[int]:
        return {each.broker for each in self.admin.list_brokers() if each.alive}

    def partition(self, topic: str = "clicks", number: int = 0) -> PartitionState:
        return self.state.partition_named(topic, number)

    def replica(self, broker_id: int, topic: str = "clicks", partition: int = 0) -> StandIn:
        """The newest process of it."""
        return self.replicas[ReplicaKey(self.state.topic(topic).id, partition, broker_id)]

    def leader(self, topic: str = "clicks", partition: int = 0) -> StandIn:
        return self.replica(self.partition(topic, partition).leader, topic, partition)

    # --- letting things happen ------------------------------------------------------------------------------------

    def until(self, predicate: Any, limit: float = 20.0) -> float:
        """Run until it holds; how many seconds that took."""
        began = self.world.now
        assert self.world.run_until_idle_or(predicate, limit), f"It does not hold after {limit} s."
        return self.world.now - began

    def ask(self, call: Coroutine[Any, Any, _T], limit: float = 60.0) -> _T:
        """Let the controller's process carry out an admin call."""
        task = self.controller_processes[-1].run(call)
        self.until(task.done, limit)
        return task.result()

    def refusal(self, call: Coroutine[Any, Any, object], limit: float = 60.0) -> RaylogError:
        try:
            self.ask(call, limit)
        except RaylogError as error:
            return error
        raise AssertionError("It was not refused.")

    def propose(self, stand_in: StandIn, isr: tuple[int, ...], **changed: int) -> None:
        """Raises what the stand-in is answered."""
        assert stand_in.process is not None
        task = stand_in.process.run(stand_in.propose(isr, **changed))
        self.until(task.done)
        task.result()

    def create_topic(self, name: str = "clicks", replicas: tuple[tuple[int, ...], ...] = ((1, 2, 3),)) -> None:
        """Led, and every replica assigned."""
        self.ask(self.admin.create_topic(NewTopic(name, assignment=replicas)))
        self.until(lambda: all(self.is_assigned(name, number) for number in range(len(replicas))))

    def is_assigned(self, topic: str, number: int) -> bool:
        partition = self.partition(topic, number)
        for broker_id in partition.replicas:
            wanted = assignment_of(self.state, *partition.id, broker_id, 0, 0, move_shares(self.state))
            stand_in = self.replicas.get(ReplicaKey(*partition.id, broker_id))
            assigned = None if stand_in is None else stand_in.assigned
            if assigned is None or replace(assigned, metadata_version=0, controller_epoch=0) != wanted:
                return False
        return True

    def kill(self, stand_in: StandIn) -> None:
        assert stand_in.process is not None
        stand_in.process.kill()

    def kill_controller(self) -> None:
        self.controller_processes[-1].kill()
