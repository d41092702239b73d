"""A broker that comes back with an older copy of its directory, as from a backup; then the newer one is put back.

    power cut      while nothing runs the disk is copied
    some seconds   the broker is registered and goes on: it promises, syncs and acknowledges
    power cut      the copy is put in the place of the disk; perhaps there is a new controller, which asks it to promise
    refused        by now the copy has a lower mark than is recorded (`directory_marks.py`); the newer disk is back

It demands: no controller ever registers the copy. What the copy promises or syncs meanwhile may be gone with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from raylog.errors import DirectoryOutdated
from tests.simulator.checks.history import InvariantBroken
from tests.simulator.cluster.simulated_cluster import BrokerHome, SimulatedCluster
from tests.simulator.faults.races import Races
from tests.simulator.world.faulty_disk import FaultyDisk

_BOOT_SECONDS = (0.3, 0.8)
_LOOK_SECONDS = 0.05
_REGISTERED_SECONDS = 3.0  # in one go, under one controller: by then the mark has risen
_LONGEST_SECONDS = 9.0  # to come so far; else no copy is put back
_REFUSED_SECONDS = 8.0  # without a controller nobody refuses it
_NEW_CONTROLLER = 0.5  # which asks the copy for its promise too


@dataclass
class OlderCopies:
    """`hits` is told whose power goes."""

    cluster: SimulatedCluster
    random: Random
    races: Races
    hits: Callable[[BrokerHome], None]

    def strike(self) -> bool:
        homes = list(self.cluster.homes.values())
        if not all(home.is_running and home.machine.is_up for home in homes):
            return False
        home = self.random.choice(homes)
        self.races.surely_alone(_LONGEST_SECONDS + _REFUSED_SECONDS)
        self.hits(home)
        self.cluster.world.network.heal()
        home.machine.free_disk()  # a mark has to find room
        self.cluster.crash_machine(home, _BOOT_SECONDS)
        self._wait_for_mark(home, home.machine.disk.clone(), self._now, None)
        return True

    @property
    def _now(self) -> float:
        return self.cluster.world.now

    def _registration(self, home: BrokerHome) -> tuple[int, int] | None:
        """(controller epoch, broker epoch), while it is registered with the serving controller."""
        broker, controller = home.broker, self.cluster.serving()
        if broker is None or controller is None or not home.is_running or broker._link.broker_epoch is None:
            return None
        is_present = broker._link.controller_epoch == controller.reign.changes.epoch
        return (broker._link.controller_epoch, broker._link.broker_epoch) if is_present else None

    def _wait_for_mark(
        self, home: BrokerHome, copy: FaultyDisk, began: float, before: tuple[float, tuple[int, int]] | None
    ) -> None:
        """Wait until it has been registered for long enough; `before` says since when, and how."""
        if self.races.is_over or self._now - began > _LONGEST_SECONDS:
            return
        registration = self._registration(home)
        now = None if registration is None else (self._now, registration)
        since = before if before is not None and before[1] == registration else now
        if since is not None and self._now - since[0] >= _REGISTERED_SECONDS:
            self._put_copy(home, copy)
        else:
            self.cluster.world.after(_LOOK_SECONDS, self._wait_for_mark, home, copy, began, since)

    def _put_copy(self, home: BrokerHome, copy: FaultyDisk) -> None:
        self.hits(home)
        self.cluster.crash_machine(home, _BOOT_SECONDS)
        self.cluster.world.trace("broker {}: an older copy of its directory is put back", home.broker_id)
        newer = self.cluster.change_disk(home, copy, is_older=True)
        if self.random.random() < _NEW_CONTROLLER:
            for running in list(self.cluster.controllers):
                running.process.kill()
        self._wait_for_refusal(home, newer, self._now)

    def _wait_for_refusal(self, home: BrokerHome, newer: FaultyDisk, began: float) -> None:
        broker = home.broker
        if broker is not None and broker._link.broker_epoch is not None:
            broken = f"broker {home.broker_id} is registered with an older copy of its directory"
            self.cluster.world.fail("The older copy", InvariantBroken(broken))
        is_refused = broker is not None and broker.failed.done()
        if not (is_refused or self.races.is_over or self._now - began > _REFUSED_SECONDS):
            self.cluster.world.after(_LOOK_SECONDS, self._wait_for_refusal, home, newer, began)
            return
        if is_refused and broker is not None and not isinstance(broker.failed.result(), DirectoryOutdated):
            self.cluster.world.trace("it is refused for another reason: {!r}", broker.failed.result())
        self.hits(home)
        self.cluster.crash_machine(home, _BOOT_SECONDS)
        self.cluster.change_disk(home, newer, is_older=False)
