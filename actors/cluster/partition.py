"""The state of one partition, as the controller has decided it.

    replicas    all brokers that hold it (AR), the preferred leader first; during a reassignment those that it
                had before, then those being added
    target      during a reassignment the replicas it will have, in their order; else empty
    adding      the replicas that a reassignment has added and a cancellation would take away again
    isr         in sync: each holds all that was ever acknowledged under acks=all
    elr         left the ISR while it was below the minimum, and so hold all that was acknowledged too (rule 7)
    doubtful    were in one of both, but came back with a log that may have lost its end: (broker, incarnation,
                last epoch, log end offset)
    lost        were in one of both, and what they held is gone, or was given up by a person: (broker, why)
    unclean_epoch   of the last leader that may have lacked what was acknowledged; −1: there was none
    may_have_acknowledged   a leader has had an ISR that is large enough for acks=all. Before that nothing was
                acknowledged under it, nor read: the high watermark has not moved (rules 2, 3)

What must stay true:
- Every change raises the partition epoch. An election, and the loss of the leader, raises the leader epoch; so an epoch
  has one leader or none, and the leader changes only with the epoch.
- The leader is in the ISR, the ISR and the ELR share no member, both are among the replicas.
- The ISR is empty only while its last members are doubtful or lost, and there is no leader. Dead members stay in it
  where no living one is left: they hold what was acknowledged, and one of them will lead.
- Leader epoch −1: it was never led, so there is nothing that a blank replica could have lost.
- `may_have_acknowledged` comes with the very record by which an ISR becomes large enough, or the minimum small enough,
  and stays. A leader hears of ISR and minimum together, from one version of the state, so it is never ahead of this.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from raylog.actors.protocol.control_messages import NO_LEADER, NO_UNCLEAN_EPOCH
from raylog.actors.protocol.metadata_records import NEVER_LED, PartitionChanged

HELD: Final = "a person is restoring a copy that was set aside"  # as the reason why a replica is lost

PartitionId: TypeAlias = tuple[bytes, int]  # topic id, partition
Doubtful: TypeAlias = tuple[int, int, int, int]  # broker, incarnation, last epoch, log end offset
Lost: TypeAlias = tuple[int, str]  # broker, why


@dataclass(frozen=True, slots=True)
class PartitionState:
    topic_id: bytes
    partition: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    adding: tuple[int, ...] = ()
    target: tuple[int, ...] = ()
    leader: int = NO_LEADER
    leader_epoch: int = NEVER_LED
    partition_epoch: int = 0
    elr: tuple[int, ...] = ()
    doubtful: tuple[Doubtful, ...] = ()
    lost: tuple[Lost, ...] = ()
    unclean_epoch: int = NO_UNCLEAN_EPOCH
    may_have_acknowledged: bool = False

    @property
    def id(self) -> PartitionId:
        return self.topic_id, self.partition

    @property
    def never_led(self) -> bool:
        return self.leader_epoch == NEVER_LED

    @property
    def is_reassigning(self) -> bool:
        return bool(self.target)

    @property
    def original(self) -> tuple[int, ...]:
        """The replicas without a reassignment that is not complete."""
        return tuple(broker for broker in self.replicas if broker not in self.adding)

    @property
    def intended(self) -> tuple[int, ...]:
        """The replicas once all that was asked for is done."""
        return self.target or self.replicas

    @property
    def removing(self) -> tuple[int, ...]:
        """The replicas that go when the reassignment is complete."""
        return tuple(broker for broker in self.replicas if broker not in self.intended)

    @property
    def last_members(self) -> tuple[int, ...]:
        """The replicas that surely hold all that was acknowledged."""
        return self.isr + self.elr

    @property
    def doubtful_brokers(self) -> tuple[int, ...]:
        return tuple(entry[0] for entry in self.doubtful)

    @property
    def lost_brokers(self) -> tuple[int, ...]:
        return tuple(entry[0] for entry in self.lost)

    @property
    def is_held(self) -> bool:
        """Whether a person keeps it without a leader for a moment."""
        return HELD in dict(self.lost).values()

    @property
    def is_unused(self) -> bool:
        """Whether it was led and no member is left, but nothing can be lost by that: nothing was acknowledged."""
        return not (self.never_led or self.last_members or self.may_have_acknowledged or self.is_held)

    @property
    def waits_for_a_person(self) -> bool:
        """Whether there is no leader, and will be none before a person decides (or the topic's own setting does)."""
        is_led = self.leader != NO_LEADER or self.never_led
        return not (is_led or self.last_members or self.doubtful or self.is_unused)

    def broken_invariants(self) -> Iterator[str]:
        """Say in words what contradicts the top of this file."""
        isr, elr, replicas = set(self.isr), set(self.elr), set(self.replicas)
        doubtful = set(self.doubtful_brokers)
        if len(replicas) != len(self.replicas):
            yield f"a broker is twice among the replicas {self.replicas}"
        if not isr | elr | doubtful <= replicas:
            yield f"ISR {self.isr}, ELR {self.elr} and doubtful {sorted(doubtful)} are not all among {self.replicas}"
        if isr & elr or (isr | elr) & doubtful:
            yield f"ISR {self.isr}, ELR {self.elr} and doubtful {sorted(doubtful)} share a member"
        if not set(self.adding) <= set(self.target) <= replicas:
            yield f"adding {self.adding}, target {self.target}, replicas {self.replicas} are not each in the next"
        if self.leader == NO_LEADER:
            if not (isr or self.doubtful or self.lost):
                yield "the ISR is empty, and nobody is doubtful or lost"
        elif self.leader not in isr or self.lost or self.never_led:
            yield f"{self.leader} leads in epoch {self.leader_epoch}; ISR {self.isr}, lost {self.lost}"

    def broken_since(self, before: PartitionState) -> Iterator[str]:
        """Say in words what contradicts the top of this file in the changes from an earlier state to this one."""
        if self != before and self.partition_epoch <= before.partition_epoch:
            yield f"the partition epoch was {before.partition_epoch} and is {self.partition_epoch} after a change"
        if self.leader_epoch < before.leader_epoch:
            yield f"the leader epoch went back from {before.leader_epoch} to {self.leader_epoch}"
        if self.leader_epoch == before.leader_epoch and self.leader != before.leader:
            yield f"in epoch {self.leader_epoch} the leader was {before.leader} and is {self.leader}"

    @classmethod
    def of_record(cls, record: PartitionChanged) -> PartitionState:
        return cls(
            topic_id=record.topic_id,
            partition=record.partition,
            replicas=record.replicas,
            isr=record.isr,
            adding=record.adding,
            target=record.target,
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            elr=record.elr,
            doubtful=record.doubtful,
            lost=record.lost,
            unclean_epoch=record.unclean_epoch,
            may_have_acknowledged=record.may_have_acknowledged,
        )

    def to_record(self, reason: str) -> PartitionChanged:
        return PartitionChanged(
            topic_id=self.topic_id,
            partition=self.partition,
            replicas=self.replicas,
            adding=self.adding,
            target=self.target,
            leader=self.leader,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            isr=self.isr,
            elr=self.elr,
            doubtful=self.doubtful,
            lost=self.lost,
            unclean_epoch=self.unclean_epoch,
            may_have_acknowledged=self.may_have_acknowledged,
            reason=reason,
        )

    def change_to(self, after: PartitionState, reason: str) -> list[PartitionChanged]:
        """The record that makes this state `after`, under the next partition epoch; none where they are the same."""
        if after == self:
            return []
        return [replace(after, partition_epoch=self.partition_epoch + 1).to_record(reason)]
