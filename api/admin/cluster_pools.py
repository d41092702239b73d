"""The part of a cluster's handle that finds pools of consumers (`raylog.ConsumerPool`)."""

from __future__ import annotations

from raylog.api.admin.cluster_shutdown import actor_names
from raylog.api.admin.pool_handle import POOL_SECONDS, PoolHandle, pool_groups


class ClusterPools:
    """`Cluster` is one of these."""

    name: str

    def pools(self) -> tuple[PoolHandle, ...]:
        """Return the pools that run on this cluster, by the names of their groups.

        >>> [(pool.group_id, pool.describe().running) for pool in cluster.pools()]
        """
        return tuple(PoolHandle(self.name, group) for group in pool_groups(actor_names(self.name)))

    def pool(self, group_id: str, timeout: float = POOL_SECONDS) -> PoolHandle:
        """Return the pool of this group. UnknownPool, PoolNotReady.

        >>> cluster.pool("billing").describe().lag
        """
        found = PoolHandle(self.name, group_id)
        found.wait_until_ready(timeout)
        return found
