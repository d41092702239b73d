"""Faults that are timed: each brings about a situation that mere chance hardly ever does.

They take no bytes. Most come down to the same: somebody believes a little longer than the others what is over, and is
asked to act on it meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from random import Random

from raylog.actors.controller.admin import ControllerAdmin
from raylog.actors.protocol.control_messages import ReplicaId
from raylog.errors import RaylogError
from tests.simulator.cluster.simulated_cluster import RunningReplica, SimulatedCluster
from tests.simulator.plan import TOPIC, Plan
from tests.simulator.world.machines import Machine, Process

_LOOK_SECONDS = 0.001
_LOOKS = 3_000
_ALONE = 0.7


@dataclass
class Races:
    """`heal` opens all links."""

    cluster: SimulatedCluster
    random: Random
    plan: Plan
    heal: Callable[[], object]
    is_over: bool = False
    _quiet_until: float = 0.0

    @property
    def are_to_be_alone(self) -> bool:
        """Another fault would most likely spoil what is going on."""
        return self.cluster.world.now < self._quiet_until

    def perhaps_alone(self, seconds: float) -> None:
        if self.random.random() < _ALONE:
            self._quiet_until = self.cluster.world.now + seconds

    def surely_alone(self, seconds: float) -> None:
        self._quiet_until = self.cluster.world.now + seconds

    def faults(self) -> list[tuple[int, Callable[[], bool]]]:
        return [
            (2, self._leader_among_clients),
            (2, self._starve_follower),
            (2, self._race_join),
            (2, self._race_record),
            (1, self._fill_follower),
            (1, self._divorce),
            (1, self._zombie_leader),
            (2, self._zombie_controller),
            (2, self._split),
            (1, self._leave_behind),
        ]

    # --- who ----------------------------------------------------------------------------------------------------

    def leader(self) -> RunningReplica | None:
        leaders = [each for each in self.cluster.replicas if each.leads_epoch is not None]
        return self.random.choice(leaders) if leaders else None

    def followers(self, leader: RunningReplica) -> list[RunningReplica]:
        """Return the followers in the order in which they would be elected."""
        controller = self.cluster.serving()
        if controller is None:
            return []
        partition = controller.reign.changes.state.partitions.get((leader.spec.topic_id, leader.spec.partition))
        order = [] if partition is None else list(partition.replicas)
        mine = [each for each in self.cluster.replicas if same_partition(each, leader) and each is not leader]
        return sorted((each for each in mine if each.spec.broker_id in order),
                      key=lambda each: order.index(each.spec.broker_id))  # fmt: skip

    def controller_machine(self) -> Machine | None:
        running = self.cluster.in_office()
        return None if running is None else running.process.machine

    def when(self, condition: Callable[[], bool], then: Callable[[], object], looks: int = _LOOKS) -> None:
        """Act as soon as a condition holds, unless that takes too long."""
        if self.is_over:
            return
        if condition():
            then()
        elif looks:
            self.cluster.world.after(_LOOK_SECONDS, self.when, condition, then, looks - 1)

    def kill(self, process: Process) -> None:
        if not self.is_over:
            process.kill()

    def _after(self, seconds: float, then: Callable[..., object], *args: object) -> None:
        self.cluster.world.after(seconds, then, *args)

    def _separate(self, one: Machine, others: list[Machine]) -> None:
        self.cluster.world.network.partition([one], [other for other in others if other is not one])

    def _brokers(self) -> list[Machine]:
        return [home.machine for home in self.cluster.homes.values()]

    # --- leaders and followers ----------------------------------------------------------------------------------

    def _leader_among_clients(self) -> bool:
        """Cut the leader off from all brokers while its clients still reach it."""
        leader = self.leader()
        if leader is None:
            return False
        self._separate(leader.process.machine, self._brokers())
        self._after(self.random.choice((0.5, 1.0, 3.0, 5.0)), self.heal)
        return True

    def _starve_follower(self) -> bool:
        """A leader is cut off from the controller and from whoever would be elected first, not from the others."""
        leader, controller = self.leader(), self.controller_machine()
        followers = [] if leader is None else self.followers(leader)
        if leader is None or controller is None or not followers:
            return False
        self._separate(leader.process.machine, [controller, followers[0].process.machine])
        seconds = self.random.choice((1.0, 3.0, 4.0))
        self._after(seconds, self.heal)
        self.perhaps_alone(seconds)
        return True

    def _race_join(self) -> bool:
        """A follower starts anew, what its leader sends it is late, and the leader dies as soon as it has joined."""
        leader = self.leader()
        followers = [] if leader is None else self.followers(leader)
        if leader is None or not followers:
            return False
        joining = followers[0] if self.random.random() < 0.7 else self.random.choice(followers)
        network, seconds = self.cluster.world.network, self.random.choice((0.1, 0.3, 0.6))
        here, there = leader.process.machine, joining.process.machine
        if here is not there:
            network.slow_down(here, there, seconds)
        controller = self.controller_machine()
        if controller not in (None, here) and self.random.random() < 0.6:
            network.slow_down(controller, here, seconds)
        joining.process.kill()
        self.perhaps_alone(1.0 + 2 * seconds)
        self.when(lambda: is_joining(leader, joining), lambda: self._after(
            self.random.uniform(0.0, seconds), self.kill_and_heal, leader.process))  # fmt: skip
        return True

    def _race_record(self) -> bool:
        """A follower has joined, its leader has not been told so and goes on without it, and then dies."""
        leader, controller = self.leader(), self.controller_machine()
        followers = [] if leader is None else self.followers(leader)
        if leader is None or not followers or controller in (None, leader.process.machine):
            return False
        followers[0].process.kill()
        self.perhaps_alone(5.0)
        self.when(lambda: is_proposed(leader, followers[0]), lambda: self._keep_untold(leader, followers[0]))
        return True

    def _keep_untold(self, leader: RunningReplica, joining: RunningReplica) -> None:
        self.cluster.world.network.block(leader.process.machine, joining.process.machine)
        broker = self.cluster.homes[leader.spec.broker_id].process
        if broker is not None:
            self._after(self.random.choice((0.001, 0.003)), broker.pause, 1.2)
        self._after(self.random.uniform(0.1, 0.8), self.kill, leader.process)
        self._after(3.5, self.heal)

    def kill_and_heal(self, process: Process) -> None:
        self.kill(process)
        self._after(1.0, self.heal)

    def _fill_follower(self) -> bool:
        """Fill the disk of the follower that would be elected first; then kill the leader."""
        leader = self.leader()
        followers = [] if leader is None else self.followers(leader)
        if leader is None or not followers or followers[0].process.machine is leader.process.machine:
            return False
        machine = followers[0].process.machine
        machine.fill_disk()
        self._after(self.random.uniform(0.0, 0.4), self.kill, leader.process)
        self._after(self.random.uniform(0.4, 2.0), machine.free_disk)
        self.perhaps_alone(1.5)
        return True

    def _divorce(self) -> bool:
        """Two replicas that hear nothing of each other lead in turns, so that each has what the other has not."""
        leader = self.leader()
        followers = [] if leader is None else self.followers(leader)
        if leader is None or not followers or leader.process.machine is self.controller_machine():
            return False
        self._separate(leader.process.machine, [each.process.machine for each in followers])
        name, when = (leader.spec.topic, leader.spec.partition), 0.0
        for _ in range(self.random.randint(2, 6)):
            when += self.random.uniform(0.2, 1.2)
            self._after(when, self._kill_leader_of, name)
        self._after(when + self.random.uniform(0.0, 0.5), self.heal)
        self.perhaps_alone(when + 1.0)
        return True

    def _kill_leader_of(self, name: tuple[str, int]) -> None:
        for running in list(self.cluster.replicas):
            if running.leads_epoch is not None and (running.spec.topic, running.spec.partition) == name:
                self.kill(running.process)

    def _zombie_leader(self) -> bool:
        """Stop the leader until another one leads, then let it go on."""
        leader = self.leader()
        if leader is None:
            return False
        leader.process.pause(self.random.uniform(0.8, 4.0))
        return True

    def _leave_behind(self) -> bool:
        """One replica is cut off from the others, which go on without it, and then fall silent (rule 7).

        Where they are too few for that, `min.insync.replicas` is lowered meanwhile.
        """
        leader, running = self.leader(), self.cluster.in_office()
        followers = [] if leader is None else self.followers(leader)
        if leader is None or running is None or running.controller is None or len(followers) < 2:
            return False
        behind, others = followers[0], [leader, *followers[1:]]
        self._separate(behind.process.machine, [each.process.machine for each in others])
        until_behind = self.plan.lag_ms / 1000 * 1.5 + 0.3
        if self.plan.min_insync > self.plan.least_insync:
            self._after(until_behind, self._set_minimum, self.plan.least_insync)
        for each in others:
            self._after(until_behind + 0.8, each.process.pause, 3.5)
        self._after(until_behind + 0.9, self.heal)
        self.perhaps_alone(until_behind + 4.5)
        return True

    def _set_minimum(self, minimum: int) -> None:
        running = self.cluster.in_office()
        if not self.is_over and running is not None and running.controller is not None:
            running.process.run(_alter(running.controller.admin, minimum))

    # --- controllers --------------------------------------------------------------------------------------------

    def _zombie_controller(self) -> bool:
        """Stop the controller until another one has taken over, then let it go on."""
        running = self.cluster.in_office()
        up = [machine for machine in self._brokers() if machine.is_up]
        if running is None or not up:
            return False
        seconds = self.random.uniform(0.3, 4.0)
        running.process.pause(seconds)
        self.perhaps_alone(seconds + 0.5)
        self._after(self.random.uniform(0.0, 0.5), self._start_controller, self.random.choice(up))
        return True

    def _start_controller(self, machine: Machine) -> None:
        if machine.is_up and not self.is_over:
            self.cluster.start_controller(machine)

    def _split(self) -> bool:
        """The brokers fall into two groups, and the group without the controller gets one of its own."""
        machines, controller = self._brokers(), self.controller_machine()
        some = self.random.sample(machines, self.random.randint(1, len(machines) - 1))
        others = [machine for machine in machines if machine not in some]
        self.cluster.world.network.partition(some, others)
        lonely = some if controller in others else others
        up = [machine for machine in lonely if machine.is_up]
        if up:
            self._after(self.random.choice((0.0, 0.3, 1.7)), self._start_controller, self.random.choice(up))
        seconds = self.random.choice((1.0, 3.0, 5.0, 7.0))
        self._after(seconds, self.heal)
        self.perhaps_alone(seconds + 0.5)
        return True


async def _alter(admin: ControllerAdmin, minimum: int) -> None:
    with suppress(RaylogError):  # it may be refused, or not be heard of any more
        await admin.alter_topic_settings(TOPIC, {"min.insync.replicas": minimum}, timeout=5.0)


def same_partition(one: RunningReplica, other: RunningReplica) -> bool:
    return (one.spec.topic_id, one.spec.partition) == (other.spec.topic_id, other.spec.partition)


def is_proposed(leader: RunningReplica, joining: RunningReplica) -> bool:
    """See `is_joining`; but its leader has not heard that it is recorded."""
    leadership = leader.leadership
    return leadership is not None and _is_among(leadership.proposed or (), joining)


def is_joining(leader: RunningReplica, joining: RunningReplica) -> bool:
    """Tell whether it joins as a process that is newer than the one that was killed."""
    leadership = leader.leadership
    if leadership is None:
        return False
    return _is_among((*leadership.recorded.isr, *(leadership.proposed or ())), joining)


def _is_among(members: tuple[ReplicaId, ...], joining: RunningReplica) -> bool:
    spec = joining.spec
    return any(broker == spec.broker_id and incarnation > spec.incarnation for broker, incarnation in members)


