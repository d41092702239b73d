"""Brokers and a controller, the real cores, in a simulated world; only the replica processes are stand-ins.

A `StandIn` does what a replica does towards its broker: it locks its directory, says hello, sends heartbeats, obeys
StopReplica, and remembers its assignments. Its log is whatever the test says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import replace
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
    ReplicaFailed,
    ReplicaHeartbeat,
    ReplicaHello,
    StopReplica,
)
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.replica_spec import ReplicaSpec
from raylog.errors import (
    ControllerFenced,
    ControllerNotReady,
    DirectoryLocked,
    RaylogError,
    ReplicaNotStarted,
    StreamError,
)
from raylog.storage.directory.data_directory import Claim
from raylog.storage.directory.partition_directory import PARTITION_FILE
from raylog.storage.disk.checkpoints import write_checkpoint
from tests.simulator.world.fake_network import NetworkSettings
from tests.simulator.world.machines import Machine, Process, SimEnvironment
from tests.simulator.world.world import World
from tests.unit.actors.coordinator_stand_ins import CoordinatorStandIns

_T = TypeVar("_T")

CLUSTER_ID = "cluster-1"
DIRECTORY = "/data"
CALM = NetworkSettings(slow_chance=0.0, stuck_chance=0.0, notice=(0.0, 0.001))
START_SECONDS = 0.05


class StandIn:
    """One replica process."""

    def __init__(self, spec: ReplicaSpec, log_end: tuple[int, int], unproven: str) -> None:
        self.spec = spec
        self.log_end = log_end  # last epoch, log end offset
        self.unproven = unproven
        self.assigned: Assign | None = None
        self.is_stopped = False
        self.has_lock = False
        self.refusals: list[str] = []
        self.broker: Stream | None = None
        self.process: Process | None = None

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.spec.topic_id, self.spec.partition, self.spec.broker_id)

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.is_alive

    async def run(self, env: SimEnvironment, pid: int) -> None:
        spec = self.spec
        env.disk.make_directory(spec.directory)
        try:
            env.disk.lock_directory(spec.directory)
        except DirectoryLocked:
            return  # another one, that another controller has asked for, was quicker
        self.has_lock = True
        write_checkpoint(env.disk, f"{spec.directory}/{PARTITION_FILE}", 1, {"topic_id": spec.topic_id.hex()})
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def handle(request: Request) -> Answer:
            if isinstance(request.message, Assign):
                self.assigned = request.message
            elif isinstance(request.message, StopReplica):
                self.is_stopped = True
                if not over.done():
                    over.set_result(None)
            return None

        while not over.done():
            try:
                self.broker = await env.dial(spec.broker, "replica", handle)
                await self.broker.request(self.hello(pid), timeout=2.0)
                while not self.broker.closed.done() and not over.done():
                    self.broker.send(ReplicaHeartbeat("waiting", 0, 0, 0, self.log_end[1], 100))
                    await asyncio.wait({self.broker.closed, over}, timeout=0.3, return_when="FIRST_COMPLETED")
            except StreamError as error:
                self.refusals.append(str(error))
            await asyncio.sleep(0.1)

    def hello(self, pid: int) -> ReplicaHello:
        spec = self.spec
        return ReplicaHello(
            spec.topic_id, spec.partition, spec.incarnation, pid, ("unix:/replica",), *self.log_end, self.unproven
        )

    def fail(self, *, damaged: bool) -> None:
        assert self.broker is not None
        self.broker.send(ReplicaFailed("LogDamaged", "bytes are missing", damaged))

    async def propose(self, isr: tuple[int, ...], cluster: ControlCluster, **changed: int) -> None:
        """As the leader: let the ISR be these brokers, as the processes in its assignment."""
        assert self.assigned is not None
        assert self.broker is not None
        assigned = self.assigned
        incarnations = {broker: incarnation for broker, incarnation, _ in assigned.replicas}
        proposal = ProposeIsr(
            assigned.topic_id,
            assigned.partition,
            changed.get("leader", assigned.leader),
            changed.get("leader_epoch", assigned.leader_epoch),
            changed.get("partition_epoch", assigned.partition_epoch),
            tuple((broker, incarnations[broker]) for broker in isr),
        )
        await self.broker.request(proposal, timeout=3.0)


class Launcher:
    """Starts stand-ins, a moment after it was asked."""

    def __init__(self, cluster: ControlCluster) -> None:
        self._cluster = cluster
        self.started: list[ReplicaSpec] = []
        self.stopped: list[ReplicaSpec] = []
        self.refuses = False
        self.hangs = False  # what is asked for never begins

    async def start(self, spec: ReplicaSpec) -> None:
        self.started.append(spec)
        if self.refuses:
            raise ReplicaNotStarted(spec.topic, spec.partition, spec.broker_id, "the test says so")
        if not self.hangs:
            self._cluster.world.after(START_SECONDS, self._cluster.start_replica, spec)

    def starts_at_once(self, _node_id: str) -> int:
        return 4

    async def stop(self, spec: ReplicaSpec) -> None:
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
        self.stand_ins: list[StandIn] = []
        self.log_ends: dict[ReplicaKey, tuple[int, int]] = {}
        self.unproven: dict[ReplicaKey, str] = {}
        self.launcher = Launcher(self)
        self.coordinators = CoordinatorStandIns(self)
        self._runs = 0

    # --- starting -------------------------------------------------------------------------------------------------

    def form(self) -> None:
        """All brokers, and a controller that forms the cluster on them."""
        for broker_id in self.machines:
            self.start_broker(broker_id)
        self.start_controller(form_on=tuple(self.machines))
        self.until(lambda: self.serves() and len(self.live_brokers()) == len(self.machines))

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
        spec = ControllerSpec(CLUSTER_ID, name, form_on)
        controller = Controller(env, spec, self.launcher, self.coordinators, self._find_brokers)
        self.controllers.append(controller)
        try:
            await controller.start()
            await controller.stopped
        except ControllerFenced:  # another one was quicker
            pass
        await controller.close()

    def start_replica(self, spec: ReplicaSpec) -> None:
        key = ReplicaKey(spec.topic_id, spec.partition, spec.broker_id)
        stand_in = StandIn(spec, self.log_ends.get(key, (-1, 0)), self.unproven.get(key, ""))
        self.replicas[key] = stand_in
        self.stand_ins.append(stand_in)

        async def main(env: SimEnvironment) -> None:
            while stand_in.process is None:
                await asyncio.sleep(0)
            await stand_in.run(env, stand_in.process.pid)

        if self.machines[spec.broker_id].is_up:
            stand_in.process = self.machines[spec.broker_id].start(str(spec), main)

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
        task = stand_in.process.run(stand_in.propose(isr, self, **changed))
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
