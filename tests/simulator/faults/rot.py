"""Bits that rot on the disk of a replica while it runs, the leader's too; and who finds them.

Readers and followers meet some of them. For the rest a stand-in of the housekeeping process tells the replica where one
is, again and again until its file is gone: set aside with its directory, deleted, or cut off.

What must stay true: a bit rots only where every replica of its partition is in sync and has that batch, and one at a
time; and where there are two of them at least, and are to be. So whatever becomes of the damaged copy, the batch is
there. Where a single copy may have later records, nothing rots that an opening reads.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

from raylog.errors import OffsetOutOfRange, RaylogError
from raylog.storage.format.record_batch import HEADER_BYTES, read_header
from raylog.storage.log.partition_log import PartitionLog
from raylog.storage.segment.segment import LOG_SUFFIX, Place, Segment
from tests.simulator.checks.watcher import unobserved
from tests.simulator.cluster.simulated_cluster import BrokerHome, RunningReplica, SimulatedCluster
from tests.simulator.plan import TOPIC, Plan
from tests.simulator.world.faulty_disk import FaultyDisk

_SCRUBBED_AFTER = (0.3, 2.0)


@dataclass
class _RottenBit:
    home: BrokerHome
    partition: tuple[bytes, int]
    path: str
    batch: int  # where it stands
    byte: int
    value: int  # what that byte has become
    offset: int
    is_deleted: bool = False

    @property
    def is_there(self) -> bool:
        disk = self.home.machine.disk
        if self.is_deleted or disk.files().get(self.path, 0) < max(self.byte + 1, self.batch + HEADER_BYTES):
            return False
        data = _bytes_of(disk, self.path)
        is_same = self.byte < self.batch + 8 or read_header(data, self.batch).base_offset == self.offset
        return is_same and data[self.byte] == self.value


@dataclass
class Rot:
    cluster: SimulatedCluster
    random: Random
    plan: Plan
    _bits: list[_RottenBit] | None = None

    def is_on(self, broker_id: int) -> bool:
        return any(bit.home.broker_id == broker_id for bit in self._present())

    def is_in(self, running: RunningReplica) -> bool:
        """Tell whether the rot is in this log, which must not be read from outside: that would report it."""
        mine = running.spec.broker_id, (running.spec.topic_id, running.spec.partition)
        return any((bit.home.broker_id, bit.partition) == mine for bit in self._present())

    @property
    def is_anywhere(self) -> bool:
        return bool(self._present())

    def _present(self) -> list[_RottenBit]:
        self._bits = [bit for bit in self._bits or [] if bit.is_there]
        return self._bits

    def strike(self, among: Iterable[RunningReplica]) -> BrokerHome | None:
        """The broker on whose disk a bit has rotted; None where that would be more than was promised."""
        running_still = [each for each in among if each.process.is_alive and each.log is not None]
        candidates = [each for each in running_still if self._is_whole(each)]
        if not candidates:
            return None
        running = self.random.choice(candidates)
        log = running.log
        assert log is not None
        with unobserved(running):
            end = log.high_watermark
            if self._may_be_alone:
                end = min(end, log.segments.active.base_offset)
            if end <= log.log_start_offset:
                return None
            offset = self.random.randrange(log.log_start_offset, end)
            segment = log.segments.containing(offset)
            place = segment.locate(offset)
            size = segment.place_after(place).position - place.position
            if self._may_be_alone and _is_read_at_opening(log, segment, place):
                return None
        byte = place.position + self.random.randrange(self.random.choice((HEADER_BYTES, size)))
        return self._flip(running, segment.path(LOG_SUFFIX), place.position, place.base_offset, byte)

    def _flip(self, running: RunningReplica, path: str, batch: int, offset: int, byte: int) -> BrokerHome:
        home = self.cluster.homes[running.spec.broker_id]
        bit = self.random.randrange(8)
        disk = home.machine.disk
        disk.flip_bit(path, 8 * byte + bit)
        role = "follows" if running.leads_epoch is None else "leads"
        self.cluster.world.trace(
            "{} {}: bit {} of byte {} of {} rots, at offset {}", running.spec, role, bit, byte, path, offset
        )
        partition = running.spec.topic_id, running.spec.partition
        found = _RottenBit(home, partition, path, batch, byte, _bytes_of(disk, path)[byte], offset)
        self._bits = [*self._present(), found]
        self._scrub_later(found)
        return home

    @property
    def _may_be_alone(self) -> bool:
        """Whether one copy may have records that no other one has; the operator may lower the minimum."""
        return self.plan.least_insync == 1

    def _is_whole(self, running: RunningReplica) -> bool:
        """Whether all replicas of its partition are in sync, and have all that is committed."""
        controller = self.cluster.serving()
        if controller is None or running.spec.topic != TOPIC or not controller.reign.changes.is_committed:
            return False
        partition = controller.reign.changes.state.partitions.get((running.spec.topic_id, running.spec.partition))
        if partition is None or len(partition.intended) < 2 or sorted(partition.isr) != sorted(partition.replicas):
            return False  # a second copy is not promised, or soon will not be: one that was read may rot afterwards
        logs = [
            each.log for each in self.cluster.replicas
            if (each.spec.topic_id, each.spec.partition) == partition.id and each.log is not None
            and each.spec.incarnation == controller.reign.changes.state.incarnation(*partition.id, each.spec.broker_id)
        ]  # fmt: skip
        high = max((log.high_watermark for log in logs), default=0)
        return len(logs) == len(partition.replicas) and all(log.log_end_offset >= high for log in logs)

    # --- finding it -------------------------------------------------------------------------------------------------

    def _scrub_later(self, bit: _RottenBit) -> None:
        self.cluster.world.after(self.random.uniform(*_SCRUBBED_AFTER), self._scrub, bit)

    def tell_all(self) -> None:
        """Let the replicas hear of what is rotten now."""
        for bit in self._present():
            self._tell_replica(bit)

    def _scrub(self, bit: _RottenBit) -> None:
        if bit.is_there and not self.cluster.is_over:
            self._tell_replica(bit)
            self._scrub_later(bit)

    def _tell_replica(self, bit: _RottenBit) -> None:
        for running in self.cluster.replicas:
            mine = running.spec.broker_id, (running.spec.topic_id, running.spec.partition)
            if mine == (bit.home.broker_id, bit.partition) and running.log is not None and running.process.is_alive:
                running.process.run(self._tell(running, bit))

    async def _tell(self, running: RunningReplica, bit: _RottenBit) -> None:
        try:
            await running.replica._care.suspect(bit.offset)
        except OffsetOutOfRange:  # nobody reads it any more
            bit.is_deleted = True
        except RaylogError as error:
            self.cluster.world.trace("{} is told of rot: {}", running.spec, error)


def _is_read_at_opening(log: PartitionLog, segment: Segment, place: Place) -> bool:
    """Tell whether the next process reads this place: in the growing segment, or at the end of another.

    A log that is damaged there is refused and set aside, whoever else there is (rule 14). With a minimum of one it may
    be the only one with the records since, and then its partition waits for a person (rule 7).
    """
    return segment is log.segments.active or place.position >= segment.boundary_before(segment.size).position


def _bytes_of(disk: FaultyDisk, path: str) -> bytes:
    """Past the gate that every operation of a process goes through."""
    image = disk._files.images[disk._files.file(path, "Looking into")]
    return image.read(len(image), 0)
