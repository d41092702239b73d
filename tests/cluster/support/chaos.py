"""Three raylets on this machine with a broker each, a partition replicated on all three, and what kills parts of it.

    fault ──► the partition is whole again: three replicas in sync, three brokers, a controller ──► the next fault

A writer and a reader run all the while (`chaos_clients.py`). What a fault costs is the longest time without an
acknowledgement until all is whole again; what it may never cost is an acknowledged record.
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
from typing import Any, Final

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
from tests.cluster.support.chaos_clients import Clients, longest_silence

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

    def __init__(self, ray_nodes: RayCluster, folder: Path) -> None:
        self._ray_nodes = ray_nodes
        self._folder = folder
        self._nodes: dict[str, Any] = {name: self._add_node(name) for name in NODES}
        self.cluster = raylog.start(folder / "unused", form=True)
        self.cluster.create_topic(TOPIC, replication_factor=3, config={"min.insync.replicas": 2})
        self.until_whole()

    def _add_node(self, name: str) -> Any:
        variables = {"RAYLOG_DATA_DIR": str(self._folder / name)}
        return self._ray_nodes.add_node(num_cpus=1, resources={"raylog_broker": 1}, env_vars=variables, wait=True)

    # --- what is there --------------------------------------------------------------------------------------------

    def replicas(self) -> tuple[ReplicaDescription, ...]:
        return self.cluster.describe_replicas(TOPIC, timeout=_CALL_SECONDS)

    def leader(self) -> ReplicaDescription:
        return next(each for each in self.replicas() if each.broker == self._partition().leader)

    def follower(self) -> ReplicaDescription:
        return next(each for each in self.replicas() if each.broker != self._partition().leader)

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
        replicas = self.replicas()
        roles = {each.broker: each.role for each in replicas if each.in_sync}
        leader = self._partition().leader
        expected = {each.broker: "leader" if each.broker == leader else "follower" for each in replicas}
        return "" if roles == expected else f"broker {leader} leads, and the replicas in sync are {roles}"

    def _partition(self) -> PartitionDescription:
        return self.cluster.describe_topic(TOPIC, timeout=_CALL_SECONDS).partitions[0]

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
        """Signal a replica. If it leads, another leader is awaited too."""
        before = self._partition()
        epoch = before.leader_epoch + (before.leader == replica.broker)
        happened()
        os.kill(replica.pid, number)
        return lambda: (
            all(each.incarnation != replica.incarnation for each in self.replicas())
            and self._partition().leader_epoch >= epoch
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
def chaos_cluster(folder: Path) -> Iterator[ChaosCluster]:
    """`RAY_TMPDIR` names a folder for this Ray alone, and `RAY_AUTH_MODE` is disabled."""
    nodes = RayCluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        ray.init(address=nodes.address, log_to_driver=False, logging_level=logging.ERROR)
        yield ChaosCluster(nodes, folder)
    finally:
        ray.shutdown()
        for node in nodes.list_all_nodes():  # type: ignore[no-untyped-call]
            for raylet in node.all_processes.get("raylet", ()):  # none where Ray has ended it already
                kill_tree(raylet.process.pid)
        nodes.shutdown()  # type: ignore[no-untyped-call]


# --- cycles, and what they cost ---------------------------------------------------------------------------------------


@dataclass
class Report:
    """The cost of the faults."""

    silences: dict[str, list[float]] = field(default_factory=dict)  # seconds without an acknowledgement, by fault
    times_to_whole: dict[str, list[float]] = field(default_factory=dict)
    acknowledged: int = 0
    lost: int = 0
    doubled: int = 0

    def __str__(self) -> str:
        lines = [f"{'fault':26} {'count':>5} {'median':>8} {'max':>8}   {'whole again: median':>19} {'max':>8}"]
        for name, gaps in self.silences.items():
            whole = self.times_to_whole[name]
            lines.append(
                f"{name:26} {len(gaps):5} {statistics.median(gaps):7.2f}s {max(gaps):7.2f}s   "
                f"{statistics.median(whole):18.2f}s {max(whole):7.2f}s"
            )
        lines.append(f"records acknowledged {self.acknowledged}, lost {self.lost}, doubled {self.doubled}")
        return "\n".join(lines)


def run_cycles(cycles: int, chaos: ChaosCluster, random: Random, tell: Callable[[str], None]) -> Report:
    """Every kind of fault as often as any other, in changing order. InvariantBroken."""
    report = Report()
    clients = Clients(chaos.cluster.access(), TOPIC)
    names: list[str] = []
    clients.until_acknowledged(1)
    for cycle in range(cycles):
        if not names:
            names = random.sample(list(FAULTS), len(FAULTS))
        name = names.pop()
        _one_fault(name, chaos, clients, report)
        tell(f"{cycle + 1:4} {name:26} {report.silences[name][-1]:6.2f}s {report.times_to_whole[name][-1]:6.2f}s")
    _reckon(clients, report)
    return report


def _one_fault(name: str, chaos: ChaosCluster, clients: Clients, report: Report) -> None:
    time.sleep(_BEFORE_SECONDS)
    began: list[float] = []
    replaced = FAULTS[name](chaos, lambda: began.append(time.monotonic()))
    chaos.until_whole(replaced)
    whole_at = time.monotonic()
    clients.until_acknowledged(2)
    times = [at for at, _ in clients.writer.acknowledged]
    report.silences.setdefault(name, []).append(longest_silence(times, began[0], whole_at))
    report.times_to_whole.setdefault(name, []).append(whole_at - began[0])


def _reckon(clients: Clients, report: Report) -> None:
    records = clients.finish()
    history = clients.history
    found = {value: offset for offset, value in records}
    report.acknowledged = len(history.acknowledged)
    report.lost = sum(found.get(value) != offset for value, offset in history.acknowledged.items())
    report.doubled = len(records) - len(found)
    if not report.lost and not report.doubled:
        history.check_final(records, 0, records[-1][0] + 1)
