"""Rules 1, 7, 8, 14, 15 and 18 switched off where a log keeps them. See `mutations.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from raylog.actors.cluster.election import leader_election, standing_down
from raylog.actors.cluster.election.isr_and_elr import facts_of, without_damaged
from raylog.actors.cluster.election.leader_election import settle
from raylog.actors.cluster.partition import PartitionState
from raylog.actors.protocol.control_messages import StandDown
from raylog.actors.replica.damage_care import DamageCare
from raylog.actors.replica.follower import FollowerRole
from raylog.actors.replica.hosted_replica import HostedReplica
from raylog.storage.directory.partition_directory import LogCheckpoint, PartitionDirectory
from raylog.storage.disk import checkpoints
from raylog.storage.disk.checkpoints import TEMPORARY_SUFFIX
from raylog.storage.disk.disk import Disk
from raylog.storage.format import record_batch
from raylog.storage.log import recovery
from raylog.storage.log.marks import LogMarks
from raylog.storage.log.partition_log import PartitionLog
from raylog.storage.log.recovery import LogRecovery, OpenedAfter
from raylog.storage.segment import producer_replay
from raylog.storage.segment.leader_epochs import EpochStart, LeaderEpochs
from raylog.storage.segment.producer_state import ProducerStates
from raylog.storage.segment.segment import Place, Segment
from tests.simulator.mutations.mutations import Patches, mutation, theme

# --- rule 1 ---------------------------------------------------------------------------------------------------------


@mutation(1, "no CRC is compared", where=theme("lost copies"))
def crc_unchecked(patches: Patches) -> None:
    patches.function(record_batch.check_crc, lambda header, batch: None)


@mutation(1, "batches carry no leader's epoch")
def epoch_not_stamped(patches: Patches) -> None:
    stamp = record_batch.stamp
    patches.function(stamp, lambda batch, base_offset, leader_epoch: stamp(batch, base_offset, 0))


@mutation(1, "a leader that is told of a wrong CRC does not look into its own copy", where=theme("rot"))
def suspicion_ignored(patches: Patches) -> None:
    async def inspect(self: DamageCare, spot: Any) -> bool:
        return False

    patches.attribute(DamageCare, "_inspect", inspect)


@mutation(
    1,
    "the copy that is kept alone is not read whole first",
    where=lambda plan: plan.theme == "rot" and plan.has_operator and plan.least_insync == 1,
)
def kept_copy_unread(patches: Patches) -> None:
    patches.function(leader_election.awaits_check, lambda partition: ())


@mutation(
    1,
    "a follower that gets a wrong CRC tells nobody",
    masked="by readers and by the scrubber, which meet the same batch",
)
def follower_tells_nobody(patches: Patches) -> None:
    async def tell(self: FollowerRole, batches: Any) -> None:
        return None

    patches.attribute(FollowerRole, "_tell_suspicion", tell)


# --- rule 7 ---------------------------------------------------------------------------------------------------------


@mutation(7, "a log that was open when its machine rebooted is not doubted", where=theme("lost copies"))
def reboot_not_doubted(patches: Patches) -> None:
    patches.attribute(LogRecovery, "_reason_to_doubt", lambda self, opened_after: "")


@mutation(7, "a blank log is not doubted", where=theme("lost copies"))
def blank_not_doubted(patches: Patches) -> None:
    def read(self: PartitionDirectory) -> LogCheckpoint:
        marks: LogCheckpoint = before(self)
        return replace(marks, unproven="") if marks.unproven == OpenedAfter.CREATION.value else marks

    before = patches.attribute(PartitionDirectory, "read_checkpoint", read)


@mutation(7, "a follower takes batches into a log that still says that it was just created")
def batches_before_registration(patches: Patches) -> None:
    patches.attribute(LogMarks, "registers_later", property(lambda self: False, lambda self, later: None))


# --- rule 8 ---------------------------------------------------------------------------------------------------------


@mutation(8, "a leader's epoch is not written down before it appends")
def epoch_not_written(patches: Patches) -> None:
    def assign(self: LeaderEpochs, epoch: int, start_offset: int) -> None:
        if epoch > self.latest:
            kept = [entry for entry in self._history if entry.start_offset < start_offset]
            self._history = [*kept, EpochStart(epoch, start_offset)]
            self.is_stale = False  # else the next append would write it down

    patches.attribute(LeaderEpochs, "assign", assign)
    patches.attribute(LeaderEpochs, "carry_out", lambda *_: False)


@mutation(
    8,
    "an epoch that wrote nothing stays in the history",
    masked="nobody asks for an epoch of which no log has a batch; who led in it cuts it before it follows",
)
def empty_epochs_kept(patches: Patches) -> None:
    def with_epoch(self: LeaderEpochs, epoch: int, start_offset: int) -> list[EpochStart]:
        return [*self._history, EpochStart(epoch, start_offset)]

    patches.attribute(LeaderEpochs, "_with", with_epoch)


# --- rule 14 --------------------------------------------------------------------------------------------------------


@mutation(14, "a damaged copy is thrown away, whoever else has its records", where=theme("rot"))
def damaged_goes_unrelieved(patches: Patches) -> None:
    async def stand_down(self: HostedReplica, is_damaged: bool, reason: str) -> None:
        if not is_damaged:
            await before(self, is_damaged, reason)

    before = patches.attribute(HostedReplica, "_stand_down", stand_down)


@mutation(14, "the last one alive in the ISR is relieved too", where=theme("rot"))
def last_one_relieved(patches: Patches) -> None:
    def leave(state: Any, live: Any, before: PartitionState, asked: StandDown, cause: str) -> list[Any]:
        facts = facts_of(state, live, before, gone=asked.broker)
        after = without_damaged(before, asked.broker, facts, asked.reason)
        return [*settle(before, after, facts, cause)]

    patches.attribute(standing_down, "_leave", leave)


@mutation(14, "a damaged copy goes on leading", where=theme("rot"))
def damaged_leads_on(patches: Patches) -> None:
    patches.attribute(DamageCare, "_take", lambda self, found: None)


@mutation(14, "recovery leaves the tail in the file")
def tail_left(patches: Patches) -> None:
    def cut_or_leave(self: LogRecovery, segment: Segment, result: Any, opened_after: OpenedAfter) -> None:
        own = Patches()
        own.attribute(Segment, "truncate", _end_there)
        try:
            before(self, segment, result, opened_after)
        finally:
            own.undo()

    before = patches.attribute(LogRecovery, "_cut_or_refuse", cut_or_leave)


def _end_there(segment: Segment, place: Place) -> None:
    segment.next_offset = place.base_offset
    segment.is_sealed = False


@mutation(14, "recovery cuts everything that was not known to be synced")
def unsynced_cut(patches: Patches) -> None:
    def opened(cls: type[PartitionLog], /, *args: Any, now_ms: int, **options: Any) -> PartitionLog:
        log: PartitionLog = recover.__func__(cls, *args, now_ms=now_ms, **options)
        if log.opened_after is OpenedAfter.PROCESS_CRASH:
            log.truncate_to(log.recovery_point, now_ms)
        return log

    recover = patches.attribute(PartitionLog, "open", classmethod(opened))


@mutation(14, "damage is cut as if it were a tail", where=theme("lost copies"))
def damage_cut(patches: Patches) -> None:
    patches.attribute(LogRecovery, "_is_tail", lambda self, *args: True)
    patches.attribute(LogRecovery, "_check_end", lambda self, opened_after: None)


@mutation(
    14,
    "that a log is damaged is not remembered",
    masked="by the next opening, which finds the damage again",
)
def quarantine_forgotten(patches: Patches) -> None:
    patches.attribute(PartitionDirectory, "quarantine", lambda self, damage: None)


@mutation(14, "what a crash has left is not looked at")
def crash_not_scanned(patches: Patches) -> None:
    patches.attribute(LogRecovery, "_cut_or_refuse", lambda self, *args: None)
    patches.attribute(LogRecovery, "_check_end", lambda self, opened_after: None)
    patches.function(record_batch.check_crc, lambda header, batch: None)


# --- rule 15 --------------------------------------------------------------------------------------------------------


@mutation(15, "a checkpoint is not synced before it is renamed")
def checkpoint_not_synced(patches: Patches) -> None:
    def write(disk: Disk, path: str, version: int, body: dict[str, Any]) -> None:
        temporary = path + TEMPORARY_SUFFIX
        disk.write_file(temporary, checkpoints._encode(version, body))
        disk.rename(temporary, path)
        disk.sync_directory(path.rpartition("/")[0])

    patches.function(checkpoints.write_checkpoint, write)


@mutation(15, "a checkpoint is written over the old one")
def checkpoint_not_renamed(patches: Patches) -> None:
    def write(disk: Disk, path: str, version: int, body: dict[str, Any]) -> None:
        disk.write_file(path, checkpoints._encode(version, body), sync=True)
        disk.sync_directory(path.rpartition("/")[0])

    patches.function(checkpoints.write_checkpoint, write)


@mutation(15, "the directory of a checkpoint is not synced", where=theme("power"))
def checkpoint_directory_not_synced(patches: Patches) -> None:
    def write(disk: Disk, path: str, version: int, body: dict[str, Any]) -> None:
        temporary = path + TEMPORARY_SUFFIX
        disk.write_file(temporary, checkpoints._encode(version, body), sync=True)
        disk.rename(temporary, path)

    patches.function(checkpoints.write_checkpoint, write)


# --- rule 18 --------------------------------------------------------------------------------------------------------


@mutation(18, "followers do not learn of producers")
def followers_ignore_producers(patches: Patches) -> None:
    append = PartitionLog.append_as_follower

    def append_only(self: PartitionLog, data: Any, now_ms: int) -> int:
        known, self.producers = self.producers, ProducerStates()
        try:
            return append(self, data, now_ms)
        finally:
            self.producers = known

    patches.attribute(PartitionLog, "append_as_follower", append_only)


@mutation(18, "recovery does not make the producers' state again")
def producers_not_rebuilt(patches: Patches) -> None:
    patches.attribute(recovery, "take_in", lambda states, header, batch, now_ms: None)
    patches.attribute(producer_replay, "take_in", lambda states, header, batch, now_ms: None)
    patches.attribute(ProducerStates, "load", classmethod(lambda cls, disk, path, offset: cls()))
