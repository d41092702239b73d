"""The facts that placement needs, taken from the state of the cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from raylog.actors.cluster.placement.placement import Load, Site
from raylog.actors.cluster.state import ClusterState, Liveness


def usable_sites(state: ClusterState, live: Liveness) -> list[Site]:
    """The places of the brokers that replicas may be put on."""
    return sites_of(state, (broker for broker in sorted(state.brokers) if state.is_usable(broker, live)))


def sites_of(state: ClusterState, brokers: Iterable[int]) -> list[Site]:
    return [Site(each, state.broker(each).rack, state.broker(each).node_id) for each in brokers]


def load_of(state: ClusterState) -> Load:
    """The load of the brokers once all reassignments are complete."""
    replicas: Counter[int] = Counter()
    leaders: Counter[int] = Counter()
    for partition in state.partitions.values():
        replicas.update(partition.intended)
        leaders[partition.intended[0]] += 1
    return Load(replicas, leaders)
