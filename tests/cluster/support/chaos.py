"""Three raylets on this machine with a broker each, a topic replicated on all three, and what kills parts of it.

    fault ──► the topic is whole again: three replicas in sync, three brokers, a controller ──► the next fault

A writer and a reader run all the while (`chaos_clients.py`; of many partitions `many_partition_clients.py`). What a
fault costs is the longest time without an acknowledgement until all is whole again; what it may never cost is an
acknowledged record. A topic of many partitions shares hosts, so whoever kills a replica kills a third of them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final, TypeAlias

import ray
from ray.cluster_utils import Cluster as RayCluster

import raylog
from raylog.actors.cluster.descriptions import (
    BrokerDescription,
    ClusterDescription,
    PartitionDescription,
    ReplicaDescription,
)
from raylog.actors.protocol.actor_names import CONTROLLER, DEFAULT_CLUSTER, broker_name, namespace
from raylog.errors import RaylogError
from tests.cluster.conftest import kill_tree
from tests.cluster.support.chaos_clients import Clients, Tally
from tests.cluster.support.many_partition_clients import ManyPartitionClients

TOPIC: Final = "clicks"
NODES: Final = ("a", "b", "c")
_PAUSED_SECONDS: Final = 3.0
_AWAY_SECONDS: Final = 4.0
_WHOLE_SECONDS: Final = 90.0
_CALL_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 0.05
_BEFORE_SECONDS: Final = 0.3  # of undisturbed writing


class ChaosCluster:
    """Made by `chaos_cluster`."""

    def __init__(self, ray_nodes: RayCluster, folder: Path, partitions: int) -> None:
        self._ray_nodes = ray_nodes
        self._folder = folder
        self._nodes: dict[str, Any] = {name: self._add_node(name) for name in NODES}
        self.cluster = raylog.start(folder / "unused", form=True)
        self.partitions = partitions
        config = {"min.insync.replicas": 2, "replica.host": "auto" if partitions == 1 else "shared"}
        self.cluster.create_topic(TOPIC, partitions, 3, config)
        self.until_whole()

    def _add_node(self, name: str) -> Any:
        variables = {"RAYLOG_DATA_DIR": str(self._folder / name)}
        return self._ray_nodes.add_node(num_cpus=1, resources={"raylog_broker": 1}, env_vars=variables, wait=True)

    # --- what is there --------------------------------------------------------------------------------------------

    def replicas(self) -> tuple[ReplicaDescription, ...]:
        return self.cluster.describe_replicas(TOPIC, timeout=_CALL_SECONDS)

    def leader(self) -> ReplicaDescription:
        """Return the one that leads the first partition."""
        return next(each for each in self._first() if each.broker == self._leaders()[0].leader)

    def follower(self) -> ReplicaDescription:
        return next(each for each in self._first() if each.broker != self._leaders()[0].leader)

    def _first(self) -> list[ReplicaDescription]:
        return [each for each in self.replicas() if each.partition == 0]

    def until_whole(self, replaced: Replaced = lambda: True) -> None:
        """Nothing is missing any more."""
        deadline = time.monotonic() + _WHOLE_SECONDS
        why = ""
        while time.monotonic() < deadline:
            try:
                why = self._missing() if replaced() else "its victim is still the same"
            except RaylogError as error:
                why = str(error)
            if not why:
                return
            time.sleep(_LOOK_SECONDS)
        raise AssertionError(f"the partition is not whole {_WHOLE_SECONDS:g} s after a fault: {why}")

    def _missing(self) -> str:
        alive = [each.broker for each in self._describe().brokers if each.alive]
        if len(alive) < len(NODES):
            return f"brokers {alive} are alive"
        leaders = [each.leader for each in self._leaders()]
        if without := leaders.count(-1):
            return f"{without} partitions have no leader"
        replicas = self.replicas()
        wrong = [each for each in replicas if not each.in_sync or each.role != _role(each, leaders)]
        if wrong:
            return f"{len(wrong)} of {len(replicas)} replicas are not in place, the first is {wrong[0]}"
        return ""

    def _leaders(self) -> tuple[PartitionDescription, ...]:
        return self.cluster.describe_topic(TOPIC, timeout=_CALL_SECONDS).partitions

    def _describe(self) -> ClusterDescription:
        return self.cluster.describe_cluster(timeout=_CALL_SECONDS)

    def _broker(self, broker: int) -> BrokerDescription:
        return next(each for each in self._describe().brokers if each.broker == broker)

    # --- faults: each returns how to see that its victim was replaced ---------------------------------------------

    def kill_leader(self, happened: Happened) -> Replaced:
        return self._signal_replica(self.leader(), signal.SIGKILL, happened)

    def kill_follower(self, happened: Happened) -> Replaced:
        return self._signal_replica(self.follower(), signal.SIGKILL, happened)

    def kill_controller(self, happened: Happened) -> Replaced:
        epoch = self._describe().controller_epoch
        self._kill_actor(CONTROLLER, happened)
        return lambda: self._describe().controller_epoch > epoch

    def kill_leaders_broker(self, happened: Happened) -> Replaced:
        return self._kill_broker(self.leader().broker, happened)

    def kill_followers_broker(self, happened: Happened) -> Replaced:
        return self._kill_broker(self.follower().broker, happened)

    def stop_leader(self, happened: Happened) -> Replaced:
        """A stopped process: it holds its lock and its streams, and says nothing."""
        leader = self.leader()
        replaced = self._signal_replica(leader, signal.SIGSTOP, happened)
        time.sleep(_PAUSED_SECONDS)
        with contextlib.suppress(ProcessLookupError):  # its broker may have killed it meanwhile
            os.kill(leader.pid, signal.SIGCONT)
        return replaced

    def lose_leaders_node(self, happened: Happened) -> Replaced:
        """Lose a leader's node with all its processes; it comes back as another Ray node with the same directory."""
        broker = self.leader().broker
        before = self._broker(broker)
        name = Path(before.directory).parent.name
        raylet = self._nodes[name].all_processes["raylet"][0].process.pid
        happened()
        kill_tree(raylet)
        self._ray_nodes.remove_node(self._nodes[name], allow_graceful=False)
        time.sleep(_AWAY_SECONDS)
        self._nodes[name] = self._add_node(name)
        return lambda: self._broker(broker).epoch > before.epoch

    def _signal_replica(self, replica: ReplicaDescription, number: int, happened: Happened) -> Replaced:
        """Signal a replica's process. Of what leads there another leader is awaited too."""
        there = {_life(each): each for each in self.replicas() if each.pid == replica.pid}
        led = {each.partition for each in there.values() if each.role == "leader"}
        epochs = [each.leader_epoch + (each.partition in led) for each in self._leaders()]
        happened()
        os.kill(replica.pid, number)
        return lambda: (
            not any(_life(each) in there for each in self.replicas())
            and all(each.leader_epoch >= epoch for each, epoch in zip(self._leaders(), epochs, strict=True))
        )

    def _kill_broker(self, broker: int, happened: Happened) -> Replaced:
        epoch = self._broker(broker).epoch
        self._kill_actor(broker_name(broker), happened)
        return lambda: self._broker(broker).epoch > epoch

    def _kill_actor(self, name: str, happened: Happened) -> None:
        actor = ray.get_actor(name, namespace=namespace(DEFAULT_CLUSTER))
        pid = ray.get(actor.__ray_call__.remote(lambda _: os.getpid()), timeout=_CALL_SECONDS)
        happened()
        os.kill(pid, signal.SIGKILL)


def _life(replica: ReplicaDescription) -> tuple[int, int, int]:
    return replica.partition, replica.broker, replica.incarnation


def _role(replica: ReplicaDescription, leaders: list[int]) -> str:
    return "leader" if leaders[replica.partition] == replica.broker else "follower"


Happened = Callable[[], None]  # called when the fault happens
Replaced = Callable[[], bool]
Fault = Callable[[ChaosCluster, Happened], Replaced]

FAULTS: Final[dict[str, Fault]] = {
    "leader killed": ChaosCluster.kill_leader,
    "follower killed": ChaosCluster.kill_follower,
    "controller killed": ChaosCluster.kill_controller,
    "leader's broker killed": ChaosCluster.kill_leaders_broker,
    "follower's broker killed": ChaosCluster.kill_followers_broker,
    "leader stopped for 3 s": ChaosCluster.stop_leader,
    "leader's node lost": ChaosCluster.lose_leaders_node,
}


@contextlib.contextmanager
def chaos_cluster(folder: Path, partitions: int = 1) -> Iterator[ChaosCluster]:
    """`RAY_TMPDIR` names a folder for this Ray alone, and `RAY_AUTH_MODE` is disabled."""
    nodes = RayCluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        ray.init(address=nodes.address, log_to_driver=False, logging_level=logging.ERROR)
        yield ChaosCluster(nodes, folder, partitions)
    finally:
        ray.shutdown()
        for node in nodes.list_all_nodes():  # type: ignore[no-untyped-call]
            for raylet in node.all_processes.get("raylet", ()):  # none where Ray has ended it already
                kill_tree(raylet.process.pid)
        nodes.shutdown()  # type: ignore[no-untyped-call]


AnyClients: TypeAlias = Clients | ManyPartitionClients

# --- cycles, and what they cost ---------------------------------------------------------------------------------------


@dataclass
class Report:
    """The cost of the faults."""

    silences: dict[str, list[float]] = field(default_factory=dict)  # seconds without an acknowledgement, by fault
    times_to_whole: dict[str, list[float]] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)

    def __str__(self) -> str:
        lines = [f"{'fault':26} {'count':>5} {'median':>8} {'max':>8}   {'whole again: median':>19} {'max':>8}"]
        for name, gaps in self.silences.items():
            whole = self.times_to_whole[name]
            lines.append(
                f"{name:26} {len(gaps):5} {statistics.median(gaps):7.2f}s {max(gaps):7.2f}s   "
                f"{statistics.median(whole):18.2f}s {max(whole):7.2f}s"
            )
        tally = self.tally
        lines.append(f"records acknowledged {tally.acknowledged}, lost {tally.lost}, doubled {tally.doubled}")
        return "\n".join(lines)


def run_cycles(cycles: int, chaos: ChaosCluster, random: Random, tell: Callable[[str], None]) -> Report:
    """Every kind of fault as often as any other, in changing order. InvariantBroken."""
    report = Report()
    access = chaos.cluster.access()
    few = chaos.partitions == 1
    clients = Clients(access, TOPIC) if few else ManyPartitionClients(access, TOPIC, chaos.partitions)
    names: list[str] = []
    clients.until_acknowledged(1)
    for cycle in range(cycles):
        if not names:
            names = random.sample(list(FAULTS), len(FAULTS))
        name = names.pop()
        _one_fault(name, chaos, clients, report)
        tell(f"{cycle + 1:4} {name:26} {report.silences[name][-1]:6.2f}s {report.times_to_whole[name][-1]:6.2f}s")
    report.tally = clients.reckon()
    return report


def _one_fault(name: str, chaos: ChaosCluster, clients: AnyClients, report: Report) -> None:
    time.sleep(_BEFORE_SECONDS)
    began: list[float] = []
    replaced = FAULTS[name](chaos, lambda: began.append(time.monotonic()))
    chaos.until_whole(replaced)
    whole_at = time.monotonic()
    clients.until_acknowledged(2)
    report.silences.setdefault(name, []).append(clients.longest_silence(began[0], whole_at))
    report.times_to_whole.setdefault(name, []).append(whole_at - began[0])

