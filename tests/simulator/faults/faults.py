"""Faults of a simulated cluster: a seeded series, and then its end.

Here are those that take no bytes, and so have no bound: processes are killed and paused, clocks jump, disks are full or
slow, and controllers come in twos; those of the network are in `network_faults.py`. What takes bytes is in `losses.py`,
where it is bounded by what the plan promises.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from tests.simulator.cluster.chooser import Chooser
from tests.simulator.cluster.simulated_cluster import SimulatedCluster
from tests.simulator.faults.hostile_clients import HostileClients
from tests.simulator.faults.losses import Losses
from tests.simulator.faults.network_faults import NetworkFaults
from tests.simulator.faults.races import Races
from tests.simulator.plan import Plan
from tests.simulator.world.machines import Machine, Process

_SHORTEST_PAUSE = 0.05
_LOOK_SECONDS = 0.001
_LOOKS_FOR_CHANGE = 2_000

# By the plan's theme: what has so much more weight.
_OFTEN: dict[str, dict[str, int]] = {
    "races": {"race_join": 20, "race_record": 20, "starve_follower": 15, "leader_among_clients": 10, "see_saw": 10,
              "kill_at_change": 10, "fill_follower": 15, "leave_behind": 15},
    "divorces": {"divorce": 50},
    "controllers": {"split": 20, "zombie_controller": 20, "kill_controller": 10, "second_controller": 5},
    "forgetful voters": {"forget_metadata": 60, "split": 10, "kill_controller": 5},
    "older copies": {"restore_older": 100, "kill_controller": 10, "split": 10},
    "lost copies": {"lose_and_silence": 40, "flip_bit": 20, "lose_while_joining": 15, "leave_behind": 20},
    "rot": {"rot_bit": 60, "rot_alone": 40, "turn_read_only": 10, "kill_leader": 10},
    "power": {"crash_machine": 20, "crash_all_at_write": 30, "fail_disk": 15, "fail_sync_and_crash": 20},
}  # fmt: skip


@dataclass
class Faults:
    """`begin`, and in the end `stop`, after which nothing is broken any more.

    `lost` is told of each partition and offset from which on everything was lost by all machines at once.
    """

    cluster: SimulatedCluster
    random: Random
    plan: Plan
    lost: Callable[[int, int], None]
    chooser: Chooser
    counts: dict[str, int] = field(default_factory=dict)
    _paused: list[Process] = field(default_factory=list)
    _stopped: bool = False

    def __post_init__(self) -> None:
        self.network = NetworkFaults(self.cluster, self.random)
        self.races = Races(self.cluster, self.random, self.plan, self.network.heal)
        self.losses = Losses(self.cluster, self.random, self.plan, self.lost, self.races, self.chooser)
        self.hostile = HostileClients(self.cluster, self.random)
        faults: list[tuple[int, Callable[[], bool]]] = [
            (6, self._kill_replica),
            (3, self._kill_leader),
            (4, self._kill_at_change),
            (4, self._see_saw),
            (3, self._kill_broker),
            (3, self._kill_controller),
            (4, self._kill_at_disk),
            (5, self._pause),
            *self.network.faults(),
            (1, self._fill_disk),
            (1, self._slow_disk),
            (1, self._jump_clock),
            (2, self._second_controller),
            (1, self.hostile.ask_for_what_is_internal),
            (1, self.hostile.pull_as_nobody),
            *self.races.faults(),
            *self.losses.faults(),
        ]
        often = _OFTEN.get(self.plan.theme, {})
        if self.plan.theme == "power" and self.plan.may_crash_all_once:
            often = {"cut_all_power": 100}  # it asks that all copies are whole, so other losses have to wait
        self._weights = [weight + often.get(fault.__name__.strip("_"), 0) for weight, fault in faults]
        self._faults = [fault for _, fault in faults]

    def begin(self) -> None:
        for home in self.cluster.homes.values():
            home.machine.slow_disk(self.plan.disk_slowness)
        self._later()

    def stop(self) -> None:
        """Let everything work again; what is down comes back by itself."""
        self._stopped = self.races.is_over = True
        self.cluster.world.trace("--- the faults are over")
        self.cluster.loses_orders = False
        self.cluster.world.network.heal()
        for process in self._paused:
            if process.is_alive:
                process.resume()
        for home in self.cluster.homes.values():
            home.machine.free_disk()
            home.machine.slow_disk(1.0)
            if home.machine.is_up and not home.is_running and (home.process is None or not home.process.is_alive):
                self.cluster.start_broker(home)

    def _later(self) -> None:
        self.cluster.world.after(self.random.uniform(_SHORTEST_PAUSE, self.plan.longest_pause), self._strike)

    def _strike(self) -> None:
        if self._stopped:
            return
        if not (self.losses.are_being_counted or self.races.are_to_be_alone):
            fault = self.random.choices(self._faults, self._weights)[0]
            if fault():
                name = fault.__name__.strip("_")
                self.counts[name] = self.counts.get(name, 0) + 1
        self._later()

    # --- processes ----------------------------------------------------------------------------------------------

    def _kill(self, processes: list[Process]) -> bool:
        if processes:
            self.random.choice(processes).kill()
        return bool(processes)

    def _kill_replica(self) -> bool:
        return self._kill([running.process for running in self.cluster.replicas])

    def _kill_leader(self) -> bool:
        return self._kill([each.process for each in self.cluster.replicas if each.leads_epoch is not None])

    def _kill_at_change(self) -> bool:
        """The leader of a partition, as soon as the controller has decided anything about that."""
        controller = self.cluster.serving()
        partitions = [] if controller is None else list(controller.reign.changes.state.partitions.values())
        if partitions:
            partition = self.random.choice(partitions)
            self._await_change(partition.partition, partition.partition_epoch, _LOOKS_FOR_CHANGE)
        return bool(partitions)

    def _await_change(self, partition: int, epoch: int, looks: int) -> None:
        controller = self.cluster.serving()
        for state in [] if controller is None else controller.reign.changes.state.partitions.values():
            if state.partition == partition and state.partition_epoch > epoch:
                soon = self.random.choice((0.0, 0.0005, 0.002, 0.01))
                self.cluster.world.after(soon, self._kill_leader_of, partition)
                return
        if looks and not self._stopped:
            self.cluster.world.after(_LOOK_SECONDS, self._await_change, partition, epoch, looks - 1)

    def _kill_leader_of(self, partition: int) -> None:
        leaders = [each for each in self.cluster.replicas if each.leads_epoch is not None]
        if not self._stopped:
            self._kill([each.process for each in leaders if each.spec.partition == partition])

    def _see_saw(self) -> bool:
        """Kill each leader of a partition in turn, before the others have fetched what it wrote."""
        partition = self.random.randrange(self.plan.partitions)
        network, seconds = self.cluster.world.network, self.random.choice((0.01, 0.03, 0.1, 0.4))
        machines = [home.machine for home in self.cluster.homes.values()]
        for one in machines:
            for other in machines:
                if one is not other:
                    network.slow_down(one, other, seconds)
        when = 0.0
        for _ in range(self.random.randint(2, 6)):
            when += self.random.uniform(0.05, 0.6)
            self.cluster.world.after(when, self._kill_leader_of, partition)
        self.cluster.world.after(when, self.network.heal)
        return True

    def _kill_broker(self) -> bool:
        return self._kill([home.process for home in self.cluster.homes.values() if home.process and home.is_running])

    def _kill_controller(self) -> bool:
        return self._kill([running.process for running in self.cluster.controllers])

    def _kill_at_disk(self) -> bool:
        processes = self.cluster.processes()
        if processes:
            operation = self.random.choice(("", "sync", "rename", "write_at", "truncate", "remove"))
            place = self.random.choice(("", "", "checkpoint", "metadata"))
            self.random.choice(processes).kill_at_disk(operation, place, skip=self.random.randint(0, 5))
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

    # --- disks and clocks ---------------------------------------------------------------------------------------

    def _fill_disk(self) -> bool:
        home = self.random.choice(list(self.cluster.homes.values()))
        home.machine.fill_disk()
        self.cluster.world.after(self.random.uniform(0.2, 3.0), home.machine.free_disk)
        return True

    def _slow_disk(self) -> bool:
        home = self.random.choice(list(self.cluster.homes.values()))
        home.machine.slow_disk(self.random.choice((10.0, 100.0)))
        self.cluster.world.after(self.random.uniform(0.2, 3.0), self._as_slow_as_planned, home.machine)
        return True

    def _as_slow_as_planned(self, machine: Machine) -> None:
        if not self._stopped:  # from then on no disk is slow
            machine.slow_disk(self.plan.disk_slowness)

    def _jump_clock(self) -> bool:
        machine = self.random.choice(self.cluster.world.machines)
        machine.jump_wall_clock(self.random.choice((-86_400.0, -60.0, 60.0, 86_400.0)))
        return True
