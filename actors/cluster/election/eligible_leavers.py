"""Who holds all that was acknowledged: the ISR, and who left it while it was too small (rules 3, 4, 7).

An acknowledgement under acks=all, and any move of the high watermark, needs a recorded ISR of `min.insync.replicas`
members, all of which hold the record. So:

- Who leaves an ISR that is then below the minimum misses nothing, as long as it stays below: it is eligible (KIP-966).
- Once the ISR is large enough again, records are acknowledged that the leavers miss: nobody is eligible.
- Who came back with an unproven log may have lost its end, or all of it: it leaves both sets, and is never eligible.
  Where nobody else leads it is remembered: as doubtful after a reboot, else as lost. So a partition that has nobody
  left is never taken for one that has nothing to lose.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from raylog.actors.cluster.election.situation import Situation
from raylog.actors.cluster.partition import Doubtful, PartitionState
from raylog.actors.protocol.metadata_records import ReplicaRegistered
from raylog.storage.directory.doubts import may_be_elected

_BLANK_AGAIN: Final = "it came back without its log"


def with_isr(partition: PartitionState, isr: Iterable[int], minimum: int) -> PartitionState:
    """With these in sync; the leavers are eligible if they are too few."""
    members = set(isr)
    eligible = set() if len(members) >= minimum else set(partition.last_members) - members
    return replace(
        partition,
        isr=tuple(broker for broker in partition.replicas if broker in members),
        elr=tuple(broker for broker in partition.replicas if broker in eligible),
    )


def without_dead(partition: PartitionState, gone: int, situation: Situation) -> PartitionState:
    """The ISR without one whose process is gone (rule 4), unless nobody alive were left in it.

    Then all of it stays: without a leader nothing is acknowledged, so each of them goes on holding all that was, and
    whichever comes back first may lead.
    """
    if partition.never_led or gone not in partition.isr:
        return partition
    remaining = [broker for broker in partition.isr if broker != gone]
    if not situation.alive.intersection(remaining):
        return partition
    return with_isr(partition, remaining, situation.minimum(partition))


def without_damaged(partition: PartitionState, broker: int, situation: Situation, why: str) -> PartitionState:
    """Without one whose log is damaged (rule 14). Even where it was the last one: no other can stand in for it."""
    if partition.never_led:
        return partition
    after = _in_neither_set(partition, broker, situation)
    return _with_lost(after, broker, why) if _is_missed(partition, broker, situation) else after


def without_unproven(partition: PartitionState, arrival: ReplicaRegistered, situation: Situation) -> PartitionState:
    """Without one that came back with an unproven log (rule 7)."""
    if partition.never_led:
        return partition
    broker = arrival.broker_id
    after = _in_neither_set(partition, broker, situation)
    if broker in partition.lost_brokers or not _is_missed(partition, broker, situation):
        return after
    if not may_be_elected(arrival.unproven):
        return _with_lost(after, broker, _BLANK_AGAIN)
    entry = (broker, arrival.incarnation, arrival.last_epoch, arrival.log_end_offset)
    return replace(after, doubtful=(*_others(partition.doubtful, broker), entry))


def _in_neither_set(partition: PartitionState, broker: int, situation: Situation) -> PartitionState:
    after = with_isr(partition, [each for each in partition.isr if each != broker], situation.minimum(partition))
    return replace(after, elr=tuple(each for each in after.elr if each != broker))


def _is_missed(partition: PartitionState, broker: int, situation: Situation) -> bool:
    """Whether it was one of the last members, and nobody else leads, who would hold all that it held."""
    another_leads = partition.leader in situation.alive and partition.leader != broker
    return not another_leads and broker in (*partition.last_members, *partition.doubtful_brokers)


def _with_lost(partition: PartitionState, broker: int, why: str) -> PartitionState:
    lost = (*(each for each in partition.lost if each[0] != broker), (broker, why))
    return replace(partition, doubtful=_others(partition.doubtful, broker), lost=lost)


def _others(doubtful: tuple[Doubtful, ...], broker: int) -> tuple[Doubtful, ...]:
    return tuple(each for each in doubtful if each[0] != broker)
