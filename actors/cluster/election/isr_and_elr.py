"""The replicas that hold all that was acknowledged: the ISR, and those that left it while it was too small, the ELR.

An acknowledgement under acks=all, and any move of the high watermark, needs a recorded ISR of `min.insync.replicas`
members, all of which hold the record (rules 3, 4, 7). So:

- A replica that leaves an ISR which is then below the minimum misses nothing, as long as it stays below: it is eligible
  (KIP-966).
- Once the ISR is large enough again, records are acknowledged that the leavers miss: none is eligible.
- A replica that came back with an unproven log may have lost its end, or all of it: it leaves both sets, and is never
  eligible. Where no other one leads it is remembered: as doubtful after a reboot, else as lost. So a partition that has
  no replica left is never taken for one that has nothing to lose.

What a decision has to know beside the partition itself is taken together once, as `PartitionFacts`. So rules work on
one partition and plain sets, and never look into the state of the whole cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from raylog.actors.cluster.partition import Doubtful, PartitionState
from raylog.actors.cluster.state import ClusterState, Liveness, ReplicaKey
from raylog.actors.protocol.metadata_records import ReplicaRegistered
from raylog.config import TopicConfig
from raylog.storage.directory.doubts import may_be_elected

_BLANK_AGAIN: Final = "it came back without its log"
LogEnd: TypeAlias = tuple[int, int]  # last epoch, log end offset


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """Brokers stand for their replicas of the partition."""

    alive: frozenset[int]  # registered, running, under a lease
    awaited: frozenset[int]  # the broker is under a lease, so its replica will register or has
    draining: frozenset[int]
    config: TopicConfig
    log_ends: Mapping[int, LogEnd]  # of those that are alive, as they told last: at their registration, or since
    have_told: frozenset[int]  # of those that are alive: they have told since this controller began
    unproven: frozenset[int]  # of those that are alive (rule 7)
    unelectable: frozenset[int]  # of those that are alive: only a person may let them lead (rule 7)
    sound: frozenset[int] = frozenset()  # of those that are alive: read whole, since they are to be left alone
    replaced: frozenset[int] = frozenset()  # alive, but as a process that holds no office yet

    def minimum(self, partition: PartitionState) -> int:
        """The `min.insync.replicas` of the partition. Replicas being added do not raise it yet."""
        return self.config.min_insync(len(partition.original))


def facts_of(
    state: ClusterState,
    live: Liveness,
    partition: PartitionState,
    *,
    came: ReplicaRegistered | None = None,
    gone: int | None = None,
    fenced: int | None = None,
    leaving: int | None = None,
) -> PartitionFacts:
    """Collect the facts about a partition from the state, from `live`, and from what is just being decided.

    `came` has registered, the process on `gone` has died, `fenced` is lost, `leaving` drains."""
    topic_id, number = partition.id
    registered: dict[int, ReplicaRegistered] = {}
    log_ends: dict[int, LogEnd] = {}
    awaited, draining = set(), set()
    for broker_id in partition.replicas:
        broker = state.brokers.get(broker_id)
        if broker is None or broker.fenced or broker_id not in live.brokers or broker_id == fenced:
            continue
        awaited.add(broker_id)
        if broker.draining or broker_id == leaving:
            draining.add(broker_id)
        key = ReplicaKey(topic_id, number, broker_id)
        known, runs = state.replicas.get(key), live.replicas.get(key)
        if came is not None and came.broker_id == broker_id:
            known, runs = came, came.incarnation
        if known is None or known.incarnation != runs or broker_id == gone:
            continue
        registered[broker_id] = known
        marks = live.marks_of(key, runs)
        if marks is not None:
            log_ends[broker_id] = marks.last_epoch, marks.log_end_offset
    return PartitionFacts(
        alive=frozenset(registered),
        awaited=frozenset(awaited),
        draining=frozenset(draining),
        config=state.config_of(partition),
        log_ends={broker_id: _end_at_start(each) for broker_id, each in registered.items()} | log_ends,
        have_told=frozenset(log_ends),
        unproven=frozenset(broker_id for broker_id, each in registered.items() if each.unproven),
        unelectable=frozenset(
            broker_id for broker_id, each in registered.items() if not may_be_elected(each.unproven)
        ),
        sound=frozenset(
            broker_id
            for broker_id, each in registered.items()
            if live.sound.get(ReplicaKey(topic_id, number, broker_id)) == each.incarnation
        ),
        replaced=_replaced(state, came),
    )


def _end_at_start(registered: ReplicaRegistered) -> LogEnd:
    return registered.last_epoch, registered.log_end_offset


def _replaced(state: ClusterState, came: ReplicaRegistered | None) -> frozenset[int]:
    if came is None or came.incarnation == state.incarnation(came.topic_id, came.partition, came.broker_id):
        return frozenset()
    return frozenset((came.broker_id,))


def with_isr(partition: PartitionState, isr: Iterable[int], minimum: int) -> PartitionState:
    """The partition with these in sync. If they are too few, the members that left are eligible."""
    members = set(isr)
    eligible = set() if len(members) >= minimum else set(partition.last_members) - members
    return replace(
        partition,
        isr=tuple(broker for broker in partition.replicas if broker in members),
        elr=tuple(broker for broker in partition.replicas if broker in eligible),
    )


def without_dead(partition: PartitionState, gone: int, facts: PartitionFacts) -> PartitionState:
    """Take a replica whose process is gone out of the ISR (rule 4), unless no living one would be left in it.

    Then all of it stays: without a leader nothing is acknowledged, so each of them goes on holding all that was, and
    whichever comes back first may lead.
    """
    if partition.never_led or gone not in partition.isr:
        return partition
    remaining = [broker for broker in partition.isr if broker != gone]
    if not facts.alive.intersection(remaining):
        return partition
    return with_isr(partition, remaining, facts.minimum(partition))


def without_damaged(partition: PartitionState, broker: int, facts: PartitionFacts, why: str) -> PartitionState:
    """Take out a replica whose log is damaged (rule 14), even the last one: no other can stand in for it."""
    if partition.never_led:
        return partition
    after = _in_neither_set(partition, broker, facts)
    return _with_lost(after, broker, why) if _is_missed(partition, broker, facts) else after


def without_unproven(partition: PartitionState, arrival: ReplicaRegistered, facts: PartitionFacts) -> PartitionState:
    """Take out a replica that came back with an unproven log (rule 7)."""
    if partition.never_led:
        return partition
    broker = arrival.broker_id
    after = _in_neither_set(partition, broker, facts)
    if broker in partition.lost_brokers or not _is_missed(partition, broker, facts):
        return after
    if not may_be_elected(arrival.unproven):
        return _with_lost(after, broker, _BLANK_AGAIN)
    entry = (broker, arrival.incarnation, arrival.last_epoch, arrival.log_end_offset)
    return replace(after, doubtful=(*_others(partition.doubtful, broker), entry))


def _in_neither_set(partition: PartitionState, broker: int, facts: PartitionFacts) -> PartitionState:
    after = with_isr(partition, [each for each in partition.isr if each != broker], facts.minimum(partition))
    return replace(after, elr=tuple(each for each in after.elr if each != broker))


def _is_missed(partition: PartitionState, broker: int, facts: PartitionFacts) -> bool:
    """Whether it was one of the last members, and no other replica leads, which would hold all that it held."""
    another_leads = partition.leader in facts.alive and partition.leader != broker
    return not another_leads and broker in (*partition.last_members, *partition.doubtful_brokers)


def _with_lost(partition: PartitionState, broker: int, why: str) -> PartitionState:
    lost = (*(each for each in partition.lost if each[0] != broker), (broker, why))
    return replace(partition, doubtful=_others(partition.doubtful, broker), lost=lost)


def _others(doubtful: tuple[Doubtful, ...], broker: int) -> tuple[Doubtful, ...]:
    return tuple(each for each in doubtful if each[0] != broker)
