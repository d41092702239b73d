"""A voter of the metadata log loses what it has synced: its power goes, and the end of its log has rotted.

    one voter is cut off   the others commit that it is gone
    a second one forgets   the end of what it acknowledged
    the third one is away  so those two are a majority, by their number; but what was committed neither has
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from raylog.storage.format.record_batch import HEADER_BYTES
from raylog.storage.log.partition_log import PartitionLog
from raylog.storage.segment.segment import LOG_SUFFIX
from tests.simulator.cluster.simulated_cluster import BrokerHome, SimulatedCluster
from tests.simulator.faults.races import Races

_UNTIL_FENCED = (1.6, 3.0)
_BOOT_SECONDS = (0.3, 0.8)
_AWAY_SECONDS = 7.0


@dataclass
class ForgetfulVoters:
    """`hits` is told whose power goes."""

    cluster: SimulatedCluster
    random: Random
    races: Races
    hits: Callable[[BrokerHome], None]

    def strike(self) -> bool:
        controller = self.cluster.serving()
        if controller is None or len(controller.reign.writer.voting_brokers) != 3:
            return False
        late, forgetful, away = self.random.sample(
            [self.cluster.homes[each] for each in controller.reign.writer.voting_brokers], 3
        )
        if not all(home.is_running and home.machine.is_up for home in (late, forgetful, away)):
            return False
        others = [machine for machine in self.cluster.world.machines if machine is not late.machine]
        seconds = self.random.uniform(*_UNTIL_FENCED)
        self.races.surely_alone(seconds + _AWAY_SECONDS + 1.0)
        self.cluster.world.network.heal()
        self.cluster.world.network.partition([late.machine], others)
        self.cluster.world.after(seconds, self._forget, late, forgetful, away)
        return True

    def _forget(self, late: BrokerHome, forgetful: BrokerHome, away: BrokerHome) -> None:
        log = _metadata_log(forgetful)
        if self.races.is_over:
            return
        if log is not None and self._rot_end(forgetful, log):
            self.hits(forgetful)
            self.cluster.crash_machine(forgetful, _BOOT_SECONDS)
            for process in list(away.machine.processes):
                process.pause(_AWAY_SECONDS)
        self.cluster.world.network.heal()
        if late.machine.is_up:
            self.cluster.start_controller(late.machine)

    def _rot_end(self, home: BrokerHome, log: PartitionLog) -> bool:
        """Flip a bit in one of the last batches, where an opening after a power cut takes it for a torn tail."""
        marks = log.directory.marks_on_disk
        assert marks is not None
        synced = max(marks.recovery_point, log.segments.active.base_offset)
        if synced >= log.log_end_offset:
            return False
        offset = self.random.randrange(max(synced, log.log_end_offset - 3), log.log_end_offset)
        segment = log.segments.active
        place = segment.locate(offset)
        byte = place.position + HEADER_BYTES
        home.machine.disk.flip_bit(segment.path(LOG_SUFFIX), 8 * byte + self.random.randrange(8))
        self.cluster.world.trace("broker {}: its metadata log rots at offset {}", home.broker_id, place.base_offset)
        return True


def _metadata_log(home: BrokerHome) -> PartitionLog | None:
    return None if home.broker is None or not home.is_running else home.broker._copy._files._log
