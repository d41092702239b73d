"""What a decision about one partition has to know beside the partition itself.

It is taken together here once, so that the rules (`eligible_leavers.py`, `leader_election.py`, `partition_decision.py`)
work on one partition and plain sets, and never look into the state of the whole cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from raylog.actors.cluster.partition import PartitionState
from raylog.actors.cluster.state import ClusterState, Liveness, ReplicaKey
from raylog.actors.protocol.metadata_records import ReplicaRegistered
from raylog.config import TopicConfig
from raylog.storage.directory.doubts import may_be_elected

LogEnd: TypeAlias = tuple[int, int]  # last epoch, log end offset


@dataclass(frozen=True, slots=True)
class Situation:
    """Brokers stand for their replicas of the partition."""

    alive: frozenset[int]  # registered, running, under a lease
    awaited: frozenset[int]  # the broker is under a lease, so its replica will register or has
    draining: frozenset[int]
    config: TopicConfig
    log_ends: Mapping[int, LogEnd]  # of those that are alive, when they registered
    unproven: frozenset[int]  # of those that are alive (rule 7)
    unelectable: frozenset[int]  # of those that are alive: only a person may let them lead (rule 7)
    replaced: frozenset[int] = frozenset()  # alive, but as a process that holds no office yet

    def minimum(self, partition: PartitionState) -> int:
        """What `min.insync.replicas` is for it. Replicas being added do not raise it yet."""
        return self.config.min_insync(len(partition.original))


def situation_of(
    state: ClusterState,
    live: Liveness,
    partition: PartitionState,
    *,
    came: ReplicaRegistered | None = None,
    gone: int | None = None,
    fenced: int | None = None,
    leaving: int | None = None,
) -> Situation:
    """As of the state and `live`, and what is just being decided: `came` has registered, the process on `gone` has
    died, `fenced` is lost, `leaving` drains."""
    topic_id, number = partition.id
    registered: dict[int, ReplicaRegistered] = {}
    awaited, draining = set(), set()
    for broker_id in partition.replicas:
        broker = state.brokers.get(broker_id)
        if broker is None or broker.fenced or broker_id not in live.brokers or broker_id == fenced:
            continue
        awaited.add(broker_id)
        if broker.draining or broker_id == leaving:
            draining.add(broker_id)
        if came is not None and came.broker_id == broker_id:
            registered[broker_id] = came
            continue
        key = ReplicaKey(topic_id, number, broker_id)
        known, runs = state.replicas.get(key), live.replicas.get(key)
        if known is not None and known.incarnation == runs and broker_id != gone:
            registered[broker_id] = known
    return Situation(
        alive=frozenset(registered),
        awaited=frozenset(awaited),
        draining=frozenset(draining),
        config=state.config_of(partition),
        log_ends={broker_id: (each.last_epoch, each.log_end_offset) for broker_id, each in registered.items()},
        unproven=frozenset(broker_id for broker_id, each in registered.items() if each.unproven),
        unelectable=frozenset(
            broker_id for broker_id, each in registered.items() if not may_be_elected(each.unproven)
        ),
        replaced=_replaced(state, came),
    )


def _replaced(state: ClusterState, came: ReplicaRegistered | None) -> frozenset[int]:
    if came is None or came.incarnation == state.incarnation(came.topic_id, came.partition, came.broker_id):
        return frozenset()
    return frozenset((came.broker_id,))
