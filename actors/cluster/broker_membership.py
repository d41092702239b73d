"""Brokers come and go.

    registered   runs under an epoch of its own; its replicas count
    fenced       its lease is lost, or it said goodbye: out of every ISR, leads nothing; it has to register again
    removed      will not come back; possible once it holds nothing

A broker epoch is the offset of its registration, so it only rises, and a message under an older one comes from before
something was decided about that broker.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from raylog.actors.cluster.election.isr_and_elr import facts_of, without_dead
from raylog.actors.cluster.election.leader_election import settle
from raylog.actors.cluster.state import BrokerState, ClusterState, Liveness, ReplicaKey
from raylog.actors.protocol.control_messages import MarkDirectory, RegisterBroker, ReplicaLoss
from raylog.actors.protocol.gateway_messages import ReportGateway
from raylog.actors.protocol.incarnations import NO_INCARNATION
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.metadata_records import (
    OWN_OFFSET,
    BrokerFenced,
    BrokerIdsUsed,
    BrokerRegistration,
    BrokerRemoved,
    DirectoryMarked,
    GatewayServes,
)
from raylog.errors import (
    BrokerInUse,
    BrokerWasRemoved,
    DirectoryOutdated,
    DuplicateBroker,
    StaleBrokerEpoch,
    WrongCluster,
)

NO_EPOCH: Final = -1


def register_broker(state: ClusterState, live: Liveness, request: RegisterBroker) -> list[Message]:
    """The broker's registration; none where this very run is registered and not fenced: it keeps its epoch.

    WrongCluster, BrokerWasRemoved, DuplicateBroker, DirectoryOutdated. Afterwards the caller hands each of
    `request.replicas` to `replica_registered`, and each of `replicas_not_running` to `replica_lost`.
    """
    if request.cluster_id != state.cluster_id:
        raise WrongCluster(request.directory, f"cluster {request.cluster_id}", f"cluster {state.cluster_id}")
    if request.broker_id in state.removed_brokers:
        raise BrokerWasRemoved(request.directory, request.broker_id)
    known = state.brokers.get(request.broker_id)
    if known is not None and _is_another(known, request) and request.broker_id in live.brokers:
        raise DuplicateBroker(known.id, f"on {known.host}, with directory {known.directory}")
    if known is not None and known.directory_id == request.directory_id and request.mark < known.mark:
        raise DirectoryOutdated(request.directory, known.id, request.mark, known.mark)
    registration = BrokerRegistration(
        broker_id=request.broker_id,
        broker_epoch=OWN_OFFSET,
        run=request.broker_run,
        node_id=request.node_id,
        host=request.host,
        rack=request.rack,
        endpoints=request.endpoints,
        directory=request.directory,
        directory_id=request.directory_id,
        boot_id=request.boot_id,
    )
    if known is not None and not known.fenced and _says_the_same(known, request):
        return []
    return [registration]


def mark_directory(state: ClusterState, request: MarkDirectory) -> list[Message]:
    """Let the metadata log know of a directory's mark; none where it knows of this one, or the directory is another."""
    known = state.brokers.get(request.broker_id)
    if known is None or known.directory_id != request.directory_id or request.mark <= known.mark:
        return []
    return [DirectoryMarked(request.broker_id, request.directory_id, request.mark)]


def report_gateway(state: ClusterState, request: ReportGateway) -> list[Message]:
    """Let all know where a broker's gateway serves; none where they do."""
    known = state.brokers.get(request.broker_id)
    if known is None or known.gateway == request.address:
        return []
    return [GatewayServes(request.broker_id, request.address)]


def allocate_broker_ids(state: ClusterState, count: int, above: int) -> tuple[int, list[Message]]:
    """The first of `count` numbers that no broker ever had, all above `above`; to be used once that is committed."""
    first = max(state.next_broker_id, above + 1)
    return first, [BrokerIdsUsed(first + count)]


def replicas_not_running(state: ClusterState, request: RegisterBroker) -> list[ReplicaLoss]:
    """The registered replicas of this broker that it does not name, or only as a process before the registered one."""
    running = {(report.topic_id, report.partition): report.incarnation for report in request.replicas}
    lost: list[ReplicaLoss] = []
    for partition in state.partitions_on(request.broker_id):
        registered = state.replicas.get(ReplicaKey(*partition.id, request.broker_id))
        if registered is not None and running.get(partition.id, NO_INCARNATION) < registered.incarnation:
            lost.append(ReplicaLoss(*partition.id, registered.incarnation, "its broker has none", False))
    return lost


def check_broker_epoch(state: ClusterState, broker_id: int, epoch: int) -> BrokerState:
    """StaleBrokerEpoch where it is not the present one, or the broker is fenced: it has to register again."""
    broker = state.brokers.get(broker_id)
    if broker is None:
        raise StaleBrokerEpoch(broker_id, epoch, NO_EPOCH)
    if broker.epoch != epoch or broker.fenced:
        raise StaleBrokerEpoch(broker_id, epoch, broker.epoch)
    return broker


def fence_broker(state: ClusterState, live: Liveness, broker_id: int, reason: str) -> list[Message]:
    """Take a broker out of every ISR, and elect leaders for what it led (rule 4), in one batch, unless it is fenced.

    UnknownBroker.

    `live` should know of all leases that are over, so that none of those brokers is elected.
    """
    if state.broker(broker_id).fenced:
        return []
    cause = f"broker {broker_id} fenced"
    records: list[Message] = [BrokerFenced(broker_id, reason)]
    for partition in state.partitions_on(broker_id):
        facts = facts_of(state, live, partition, fenced=broker_id)
        records += settle(partition, without_dead(partition, broker_id, facts), facts, cause)
    return records


def check_removable(state: ClusterState, live: Liveness, voters: Collection[int], broker_id: int) -> None:
    """Refuse what may not be removed; call it before the broker is stopped.

    UnknownBroker; BrokerInUse where it holds replicas, may get some, or votes."""
    broker = state.broker(broker_id)
    replicas = state.replica_count(broker_id)
    if replicas:
        raise BrokerInUse(broker_id, f"it holds {replicas} replicas")
    if broker_id in live.brokers and not broker.draining:
        raise BrokerInUse(broker_id, "it is not drained, so it may get replicas at any moment")
    if broker_id in voters:
        reason = "it votes on the metadata log until another broker has taken its place"
        raise BrokerInUse(broker_id, f"{reason}; where there is no other one, start one first")


def remove_broker(state: ClusterState, live: Liveness, voters: Collection[int], broker_id: int) -> list[Message]:
    """Forget a broker that holds nothing, votes on nothing, and does not run. UnknownBroker, BrokerInUse."""
    check_removable(state, live, voters, broker_id)
    if broker_id in live.brokers and not state.broker(broker_id).fenced:
        raise BrokerInUse(broker_id, "it is running; stop it once it is drained")
    return [BrokerRemoved(broker_id)]


def _is_another(known: BrokerState, request: RegisterBroker) -> bool:
    """Another process at another place. A second one at the same place holds the lock on its directory by now."""
    place = known.host, known.directory, known.directory_id
    return known.run != request.broker_run and place != (request.host, request.directory, request.directory_id)


def _says_the_same(known: BrokerState, request: RegisterBroker) -> bool:
    place = known.node_id, known.host, known.rack, known.endpoints, known.directory, known.directory_id
    return (known.run, *place, known.boot_id) == (
        request.broker_run,
        request.node_id,
        request.host,
        request.rack,
        request.endpoints,
        request.directory,
        request.directory_id,
        request.boot_id,
    )
