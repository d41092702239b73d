"""A simulated cluster of real brokers and replicas, and a client's process with a link to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.protocol.endpoint import Endpoint
from tests.simulator.cluster.simulated_cluster import BrokerHome, RunningReplica, SimulatedCluster
from tests.simulator.world.fake_network import NetworkSettings
from tests.simulator.world.machines import Machine, SimEnvironment
from tests.simulator.world.world import World

_T = TypeVar("_T")

CALM = NetworkSettings(slow_chance=0.0, stuck_chance=0.0, notice=(0.0, 0.001))
TOPIC = "clicks"


class LinkWorld:
    """`link` knows the brokers' TCP addresses, or those given."""

    def __init__(
        self, world: World, brokers: int, bootstrap: Sequence[Endpoint] | None, node_id: str, machine: str
    ) -> None:
        self.world = world
        self.cluster = SimulatedCluster(world)
        self.cluster.form(brokers)
        self._bootstrap = self.cluster.broker_endpoints() if bootstrap is None else bootstrap
        self._node_id = node_id
        self._links: list[ClusterLink] = []
        self.process = world.add_machine(machine).start("client", self._main)
        self.until(lambda: bool(self._links))

    @property
    def link(self) -> ClusterLink:
        return self._links[0]

    async def _main(self, env: SimEnvironment) -> None:
        self._links.append(ClusterLink(env, self._bootstrap, self._node_id))
        await asyncio.sleep(1e6)

    # --- letting things happen ------------------------------------------------------------------------------------

    def begin(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        return self.process.run(work)

    def do(self, work: Coroutine[Any, Any, _T], limit: float = 60.0) -> _T:
        task = self.begin(work)
        self.until(task.done, limit)
        return task.result()

    def until(self, predicate: Callable[[], bool], limit: float = 60.0) -> float:
        """Run until it holds; how many seconds that took."""
        began = self.world.now
        assert self.world.run_until_idle_or(predicate, limit), f"It does not hold after {limit} s."
        return self.world.now - began

    def create_topic(self, name: str = TOPIC, partitions: int = 1, replication: int = 3) -> None:
        self.cluster.create_topic(
            name, partitions, replication, {"min.insync.replicas": "2"} if replication > 2 else {}
        )

    def replica_that_leads(self, partition: int = 0) -> RunningReplica:
        leading = [each for each in self.cluster.replicas if each.spec.partition == partition]
        return max(leading, key=lambda each: -1 if each.leads_epoch is None else each.leads_epoch)

    @property
    def controllers_machine(self) -> Machine:
        return self.cluster.controllers[-1].process.machine

    def home(self, broker: int) -> BrokerHome:
        return self.cluster.homes[broker]


@contextmanager
def link_world(
    seed: int = 5,
    *,
    brokers: int = 3,
    bootstrap: Sequence[Endpoint] | None = None,
    node_id: str = "",
    machine: str = "client",
) -> Iterator[LinkWorld]:
    with World(seed, settings=CALM) as world:
        made = LinkWorld(world, brokers, bootstrap, node_id, machine)
        yield made
        made.cluster.is_over = True
