"""The way from whatever names a cluster to its brokers' streams, and how near each broker is to this process.

    a name, or nothing    raylog.connect: through Ray
    a Cluster             its controller is asked, through Ray
    a ClusterAccess       needs no Ray, so it serves processes that Ray has not started

Where this process has no Ray, it is on the node of a broker if the address of that node is one of this host's own.
"""

from __future__ import annotations

import errno
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from raylog.actors.kernel.environment import Environment
from raylog.actors.link.rules.topic_cache import nearest_first
from raylog.actors.machine.actor_address import Address
from raylog.actors.machine.cluster_access import ClusterAccess
from raylog.actors.machine.real_environment import Place
from raylog.actors.protocol.actor_names import DEFAULT_CLUSTER
from raylog.actors.protocol.endpoint import Endpoint


class ClusterHandle(Protocol):
    """The part of a `Cluster` that a client needs."""

    @property
    def name(self) -> str: ...
    def access(self, timeout: float = ...) -> ClusterAccess: ...


@dataclass(frozen=True)
class LinkAddress:
    """The parts that a link to a cluster is made of."""

    place: Place
    node_id: str  # of the Ray node that this process is on; empty: none of the cluster's
    bootstrap: tuple[Endpoint, ...]  # the brokers', nearest first
    ask_again: Callable[[], ClusterAccess] | None  # blocks; None: there is nobody to ask

    @property
    def cluster_id(self) -> str:
        return self.place.cluster_id

    def finder(self, env: Environment) -> Callable[[], Awaitable[Sequence[Endpoint]]] | None:
        """Return the function by which a link finds out where brokers are now."""
        ask_again = self.ask_again
        if ask_again is None:
            return None

        async def find() -> Sequence[Endpoint]:
            access = await env.off_loop(ask_again)
            env.keys.adopt(access.secrets)  # they may have been rotated since
            return _bootstrap(access, self.node_id)

        return find


def name_of(cluster: ClusterHandle | ClusterAccess | str | None) -> str:
    """Return what an option `cluster` means, for people."""
    if isinstance(cluster, ClusterAccess):
        return cluster.cluster_id
    if cluster is None or isinstance(cluster, str):
        return cluster or DEFAULT_CLUSTER
    return cluster.name


def link_address(cluster: ClusterHandle | ClusterAccess | str | None, timeout: float) -> LinkAddress:
    """Blocks where Ray has to be asked. What `raylog.connect` and `Cluster.access` raise."""
    if isinstance(cluster, ClusterAccess):
        return _address(cluster, None)
    if cluster is None or isinstance(cluster, str):
        from raylog.api.connection.named_cluster import NamedCluster, find_cluster

        cluster = find_cluster(NamedCluster, cluster or DEFAULT_CLUSTER, timeout)
    return _address(cluster.access(timeout), cluster.access)


def _address(access: ClusterAccess, ask_again: Callable[[], ClusterAccess] | None) -> LinkAddress:
    node_id, host = _by_ray() or _by_own_addresses(access)
    place = Place(access.cluster_id, access.secrets, host)
    return LinkAddress(place, node_id, _bootstrap(access, node_id), ask_again)


def _bootstrap(access: ClusterAccess, node_id: str) -> tuple[Endpoint, ...]:
    addresses = sorted(access.brokers.values(), key=lambda address: address.node_id != node_id)
    return tuple(each for address in addresses for each in nearest_first(address.endpoints, address.node_id, node_id))


def _by_ray() -> tuple[str, str] | None:
    """Return this process's node and its address, where it is connected to Ray. Both are known without asking Ray."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return None
    return ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address()


def _by_own_addresses(access: ClusterAccess) -> tuple[str, str]:
    for address in access.brokers.values():
        host = _tcp_host(address)
        if host and _is_own(host):
            return address.node_id, host
    return "", "elsewhere"


def _tcp_host(address: Address) -> str:
    return next((each.host for each in map(Endpoint.parse, address.endpoints) if not each.is_unix), "")


def _is_own(host: str) -> bool:
    """Whether this host has that address: then a socket can be bound to it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((host, 0))
        except OSError as error:
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EINVAL) and not isinstance(error, socket.gaierror):
                raise
            return False
    return True
