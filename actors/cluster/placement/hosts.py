"""Whether a replica gets a process of its own, or shares one with others of its broker.

    replica.host    a replica gets
    own             a host of its own
    shared          a place in one of the shared hosts
    auto            a host of its own while its broker has fewer than `own.replicas.max` of these; else a place

Internal topics always share: they are many, and small. A place is decided when a replica is opened, and kept until it
is opened again. Of the shared hosts it is the one that carries least: counted in replicas, and where that is much the
same, in bytes that its logs grow by.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from raylog.actors.cluster.cluster_settings import OWN_REPLICAS_MAX, SHARED_HOSTS, number_of
from raylog.actors.cluster.state import ClusterState
from raylog.actors.protocol.host_messages import OWN, SHARED
from raylog.config import HOST_OWN, HOST_SHARED

HALF_LIFE_SECONDS: Final = 30.0  # of what was written: a host that is quiet again counts as such within minutes
_MUCH_THE_SAME: Final = 1.1


class WrittenBytes:
    """Bytes that the logs of a host have grown by, of which the older ones count ever less."""

    def __init__(self) -> None:
        self._bytes = 0.0
        self._at = 0.0

    def add(self, count: int, now: float) -> None:
        self._bytes, self._at = self.at(now) + count, now

    def at(self, now: float) -> float:
        """Return how many count now."""
        return float(self._bytes * 0.5 ** ((now - self._at) / HALF_LIFE_SECONDS))


class HostLoad(NamedTuple):
    """The load of a shared host."""

    replicas: int
    written: float


def least_loaded(loads: Sequence[HostLoad]) -> int:
    """Return the place of the host that is to take the next replica. There is at least one."""
    fewest = min(load.replicas for load in loads)
    about = max(fewest * _MUCH_THE_SAME, fewest + 1)
    return min(
        (at for at, load in enumerate(loads) if load.replicas < about or load.replicas == fewest),
        key=lambda at: (loads[at].written, loads[at].replicas, at),
    )


class HostLimits(NamedTuple):
    """The limits of one broker."""

    own: int  # replicas with a host of their own by themselves
    shared: int  # hosts that many replicas share


def host_limits(state: ClusterState, broker_id: int, cores: int) -> HostLimits:
    """Return what the cluster's settings say. `cores`: those of the broker's node, which brokers share."""
    shared = number_of(state, SHARED_HOSTS)
    if not shared:
        known = state.brokers.get(broker_id)
        beside = 1 if known is None else sum(each.node_id == known.node_id for each in state.brokers.values())
        shared = max(1, cores // max(1, beside))
    return HostLimits(number_of(state, OWN_REPLICAS_MAX), shared)


def room_for(policy: str, *, is_internal: bool, own_now: int, limits: HostLimits) -> str:
    """Return OWN or SHARED. `own_now`: how many replicas of the broker have a host of their own."""
    if is_internal or policy == HOST_SHARED:
        return SHARED
    return OWN if policy == HOST_OWN or own_now < limits.own else SHARED


def wanted_hosts(spare: int, shared: int, waiting: list[str], limits: HostLimits) -> int:
    """Return how many more processes a broker should have. `waiting`: the rooms of replicas that no host could take.

    One always stands ready, and all of the shared ones are there as soon as one of them is used.
    """
    shared_wanted = limits.shared - shared if shared or SHARED in waiting else 0
    return max(0, waiting.count(OWN) + max(0, shared_wanted) + 1 - spare)
