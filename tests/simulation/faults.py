"""What happens to a simulated cluster: a seeded series of faults, and then their end.

What is spared: the machine crashes and disk errors that would take more than what is promised to survive. With
`flush.policy=replicated` a power cut takes what was not synced, so a second machine may lose its power only once
the replicas of the first have all come back into the ISR. Killing, stopping and cutting off have no such bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from raylog.errors import DiskFailed
from tests.simulation.machines import Process
from tests.simulation.simulated_cluster import BrokerHome, SimulatedCluster

_BETWEEN_SECONDS = (0.05, 1.5)


@dataclass
class Faults:
    """`begin`, and in the end `stop`, after which nothing is broken any more."""

    cluster: SimulatedCluster
    random: Random
    may_crash_machines: bool = True
    may_crash_all: bool = False  # flush.policy=fsync: nothing that counts is lost by any power cut
    counts: dict[str, int] = field(default_factory=dict)
    _crashed: set[int] = field(default_factory=set)
    _paused: list[Process] = field(default_factory=list)
    _stopped: bool = False

    def begin(self) -> None:
        self._later(self._strike)

    def stop(self) -> None:
        """Let everything work again; what is down comes back by itself."""
        self._stopped = True
        self.cluster.world.trace("--- the faults are over")
        self.cluster.world.network.heal()
        for process in self._paused:
            if process.is_alive:
                process.resume()
        for home in self.cluster.homes.values():
            home.machine.free_disk()
            home.machine.slow_disk(1.0)
            if home.machine.is_up and not home.is_running and (home.process is None or not home.process.is_alive):
                self.cluster.start_broker(home)

    def _later(self, action: Callable[[], None]) -> None:
        self.cluster.world.after(self.random.uniform(*_BETWEEN_SECONDS), action)

    def _strike(self) -> None:
        if self._stopped:
            return
        faults: list[tuple[int, Callable[[], bool]]] = [
            (6, self._kill_replica),
            (3, self._kill_leader),
            (3, self._kill_broker),
            (3, self._kill_controller),
            (4, self._kill_at_disk),
            (5, self._pause),
            (5, self._cut_off),
            (2, self._flap),
            (3, self._cut_streams),
            (2, self._heal),
            (3, self._crash_machine),
            (2, self._fail_disk),
            (1, self._fill_disk),
            (1, self._slow_disk),
            (1, self._jump_clock),
            (2, self._second_controller),
        ]
        action = self.random.choices([fault for _, fault in faults], [weight for weight, _ in faults])[0]
        if action():
            name = action.__name__.strip("_")
            self.counts[name] = self.counts.get(name, 0) + 1
        self._later(self._strike)

    # --- processes ----------------------------------------------------------------------------------------------

    def _kill(self, processes: list[Process]) -> bool:
        if processes:
            self.random.choice(processes).kill()
        return bool(processes)

    def _kill_replica(self) -> bool:
        return self._kill([running.process for running in self.cluster.replicas])

    def _kill_leader(self) -> bool:
        return self._kill([each.process for each in self.cluster.replicas if each.leads_epoch is not None])

    def _kill_broker(self) -> bool:
        return self._kill([home.process for home in self.cluster.homes.values() if home.process and home.is_running])

    def _kill_controller(self) -> bool:
        return self._kill([running.process for running in self.cluster.controllers])

    def _kill_at_disk(self) -> bool:
        processes = self.cluster.processes()
        if processes:
            operation = self.random.choice(("", "sync", "rename", "write_at", "truncate", "remove"))
            self.random.choice(processes).kill_at_disk(operation, skip=self.random.randint(0, 5))
        return bool(processes)

    def _pause(self) -> bool:
        processes = [process for process in self.cluster.processes() if not process.is_paused]
        if processes:
            process = self.random.choice(processes)
            process.pause()
            self._paused.append(process)
            self.cluster.world.after(self.random.choice((0.2, 1.0, 3.0, 8.0)), self._resume, process)
        return bool(processes)

    def _resume(self, process: Process) -> None:
        if process in self._paused:
            self._paused.remove(process)
            if process.is_alive:
                process.resume()

    def _second_controller(self) -> bool:
        up = [home.machine for home in self.cluster.homes.values() if home.machine.is_up]
        if up:
            self.cluster.start_controller(self.random.choice(up))
        return bool(up)

    # --- the network --------------------------------------------------------------------------------------------

    def _cut_off(self) -> bool:
        """One machine from all or some of the others, both ways or one way, for a while."""
        network, homes = self.cluster.world.network, list(self.cluster.homes.values())
        one = self.random.choice(homes).machine
        others = [machine for machine in self.cluster.world.machines if machine is not one]
        if self.random.random() < 0.4:
            others = self.random.sample(others, self.random.randint(1, len(others)))
        ways = self.random.choice(("both", "both", "out", "in"))
        for other in others:
            if ways != "in":
                network.block(one, other)
            if ways != "out":
                network.block(other, one)
        self.cluster.world.after(self.random.choice((0.3, 1.0, 3.0, 6.0)), self._heal)
        return True

    def _flap(self) -> bool:
        one, other = self.random.sample(self.cluster.world.machines, 2)
        self.cluster.world.network.flap(one, other, self.random.uniform(0.5, 4.0))
        return True

    def _cut_streams(self) -> bool:
        self.cluster.world.network.cut_some(self.random.choice((0.1, 0.5, 1.0)))
        return True

    def _heal(self) -> bool:
        self.cluster.world.network.heal()
        return True

    # --- machines and disks -------------------------------------------------------------------------------------

    def _crash_machine(self) -> bool:
        """Where that cannot take the last copy of what was acknowledged."""
        up = [home for home in self.cluster.homes.values() if home.machine.is_up]
        if not self.may_crash_machines or not up:
            return False
        if self.may_crash_all:
            victims = up if self.random.random() < 0.3 else [self.random.choice(up)]
        else:
            self._crashed = {broker_id for broker_id in self._crashed if not self._is_whole(broker_id)}
            victims = [] if self._crashed else [self.random.choice(up)]
        for home in victims:
            self._crashed.add(home.broker_id)
            self.cluster.crash_machine(home)
        return bool(victims)

    def _is_whole(self, broker_id: int) -> bool:
        """Whether all its replicas are in sync again, as the newest controller has it recorded."""
        controller = self.cluster.serving()
        if controller is None:
            return False
        state = controller._changes.state
        running = {
            (each.spec.topic_id, each.spec.partition): each.spec.incarnation
            for each in self.cluster.replicas
            if each.spec.broker_id == broker_id and each.log is not None and not each.log.unproven
        }
        # In sync as the process that runs: right after a crash the record still speaks of the one that died.
        return all(
            broker_id in each.isr and running.get(each.id) == state.incarnation(*each.id, broker_id)
            for each in state.partitions_on(broker_id)
        )

    def _fail_disk(self) -> bool:
        """An error that goes by. What was not synced on that disk may be lost, as in a power cut."""
        homes = [home for home in self.cluster.homes.values() if home.machine.is_up]
        if not homes or not self._may_lose(homes):
            return False
        home = self.random.choice(homes)
        self._crashed.add(home.broker_id)
        operation = self.random.choice(("sync", "write_at", "read_at", ""))
        place = self.random.choice((".log", "topic", ""))
        seconds = self.random.uniform(0.1, 2.0)
        home.machine.fail_disk(operation, place, seconds=seconds, error=DiskFailed("simulated"))
        # After a failed sync the page cache is not to be trusted, so a broker whose metadata log met one stays away
        # until somebody has rebooted the machine.
        self.cluster.world.after(seconds + 1.0, self.cluster.crash_machine, home)
        return True

    def _may_lose(self, homes: list[BrokerHome]) -> bool:
        self._crashed = {broker_id for broker_id in self._crashed if not self._is_whole(broker_id)}
        return self.may_crash_machines and not self._crashed and bool(homes)

    def _fill_disk(self) -> bool:
        home = self.random.choice(list(self.cluster.homes.values()))
        home.machine.fill_disk()
        self.cluster.world.after(self.random.uniform(0.2, 3.0), home.machine.free_disk)
        return True

    def _slow_disk(self) -> bool:
        home = self.random.choice(list(self.cluster.homes.values()))
        home.machine.slow_disk(self.random.choice((10.0, 100.0)))
        self.cluster.world.after(self.random.uniform(0.2, 3.0), home.machine.slow_disk, 1.0)
        return True

    def _jump_clock(self) -> bool:
        machine = self.random.choice(self.cluster.world.machines)
        machine.jump_wall_clock(self.random.choice((-86_400.0, -60.0, 60.0, 86_400.0)))
        return True
