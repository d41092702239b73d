"""Who holds all that was acknowledged: the ISR, and who left it while it was too small (rules 3, 4, 7).

An acknowledgement under acks=all, and any move of the high watermark, needs a recorded ISR of `min.insync.replicas`
members, all of which hold the record. So:

- Who leaves an ISR that is then below the minimum misses nothing, as long as it stays below: it is eligible (KIP-966).
- Once the ISR is large enough again, records are acknowledged that the leavers miss: nobody is eligible.
- Who came back with an unproven log may have lost its end: it leaves both sets, and is never eligible.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from raylog.actors.metadata_records import ReplicaRegistered
from raylog.actors.partition_state import PartitionState
from raylog.actors.situation import Situation


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


def without_damaged(partition: PartitionState, broker: int, situation: Situation) -> PartitionState:
    """The same for one whose log is damaged (rule 14): what it holds is not eligible either."""
    after = without_dead(partition, broker, situation)
    return replace(after, elr=tuple(each for each in after.elr if each != broker))


def without_unproven(partition: PartitionState, arrival: ReplicaRegistered, situation: Situation) -> PartitionState:
    """Without one that came back with an unproven log (rule 7). Where nobody else leads it is noted as doubtful."""
    if partition.never_led:
        return partition
    broker = arrival.broker_id
    was_member = broker in partition.last_members or broker in partition.doubtful_brokers
    remaining = [each for each in partition.isr if each != broker]
    after = with_isr(partition, remaining, situation.minimum(partition))
    after = replace(after, elr=tuple(each for each in after.elr if each != broker))
    if not was_member or (partition.leader in situation.alive and partition.leader != broker):
        return after
    entry = (broker, arrival.incarnation, arrival.last_epoch, arrival.log_end_offset)
    others = tuple(each for each in partition.doubtful if each[0] != broker)
    return replace(after, doubtful=(*others, entry))
