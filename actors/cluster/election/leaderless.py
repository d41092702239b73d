"""The partitions without a leader: why, and which of them will have one by themselves.

    expected   a broker is there that holds a copy which may lead: the partition has a leader in a moment
    stuck      all such copies are away or damaged; nothing changes before one returns, or a person decides (rule 7)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from raylog.actors.cluster.partition import PartitionState
from raylog.actors.cluster.state import ClusterState, Liveness, ReplicaKey
from raylog.actors.protocol.control_messages import NO_LEADER
from raylog.actors.protocol.names import is_internal


def is_offline(state: ClusterState, partition: PartitionState) -> bool:
    """Whether a partition misses its leader. Raylog's own do not before their first, which a coordinator waits for."""
    return partition.leader == NO_LEADER and not (partition.never_led and is_internal(state.name_of(partition)))


def why_nobody_leads(partition: PartitionState, topic: str) -> str:
    """The reason why a partition has no leader, for people; empty where it has one."""
    if partition.leader != NO_LEADER:
        return ""
    if partition.never_led:
        return "none of its replicas has started yet"
    if partition.last_members:
        return f"what was acknowledged is on {_brokers(partition.last_members)}, whose replica does not run: start it"
    if partition.is_unused:
        return "nothing was acknowledged yet, so any copy may lead; all replicas are waited for, for a while"
    if partition.doubtful:
        back = _brokers(partition.doubtful_brokers)
        return f"{back} may have lost the end of its log in a reboot; the other replicas are waited for, for a while"
    lost = "; ".join(f"broker {broker}: {why}" for broker, why in partition.lost)
    return (
        f"no copy is left that surely holds what was acknowledged ({lost or 'none is known'}); a person has to choose "
        f"one: raylog topic recover {topic} -p {partition.partition}"
    )


def _brokers(brokers: Iterable[int]) -> str:
    numbers = sorted(brokers)
    return f"broker {numbers[0]}" if len(numbers) == 1 else "brokers " + ", ".join(map(str, numbers))


class Prospects(NamedTuple):
    expected: list[str]
    stuck: list[str]  # with the reason


def prospects(state: ClusterState, live: Liveness) -> Prospects:
    """The prospects of all partitions without a leader. `live` should hold no broker that is merely believed alive.

    Those of raylog's own topics that were just created count as neither: whoever needs one waits for its coordinator.
    """
    found = Prospects([], [])
    for partition in state.partitions.values():
        if _is_led(state, live, partition) or (partition.never_led and is_internal(state.name_of(partition))):
            continue
        name = f"{state.name_of(partition)}-{partition.partition}"
        candidates = _candidates(state, partition)
        if live.brokers.isdisjoint(candidates):
            found.stuck.append(f"{name} ({why_nobody_leads(partition, state.name_of(partition))})")
        else:
            found.expected.append(name)
    return found


def _is_led(state: ClusterState, live: Liveness, partition: PartitionState) -> bool:
    leader = partition.leader
    if leader == NO_LEADER or leader not in live.brokers:
        return False
    return live.replicas.get(ReplicaKey(*partition.id, leader)) == state.incarnation(*partition.id, leader)


def _candidates(state: ClusterState, partition: PartitionState) -> tuple[int, ...]:
    """The brokers whose copies may lead (`leader_election.py`)."""
    if partition.never_led or partition.is_unused or state.config_of(partition).unclean_leader_election_enable:
        return partition.replicas
    return partition.last_members or partition.doubtful_brokers
