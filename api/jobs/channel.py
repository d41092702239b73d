"""A process's way to the brokers: one link per cluster, kept for as long as the process lives.

Drivers use it, and so do Spark's Python workers, which have no Ray: they are told the brokers' endpoints, and the
secret that clients hold.

What must stay true: one link at a time to a cluster. Newer addresses than those it was made with make a new one, since
brokers that were started again may all have others.
"""

from __future__ import annotations

import threading
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.machine.cluster_access import ClusterAccess
from raylog.api.connection.client_access import link_address
from raylog.api.connection.client_runtime import ClientRuntime, client_runtime

_CONNECT_SECONDS: Final = 30.0
_T = TypeVar("_T")


@dataclass(frozen=True)
class Channel:
    """The loop to work on (`run`), and the link to ask by (`link`)."""

    runtime: ClientRuntime
    link: ClusterLink
    brokers: tuple[Any, ...]

    def run(self, work: Coroutine[Any, Any, _T], timeout: float | None = None) -> _T:
        return self.runtime.run(work, timeout)


_channels: dict[str, Channel] = {}
_making = threading.Lock()


def channel_to(access: ClusterAccess) -> Channel:
    """Return the channel of this process, made if there is none that runs."""
    brokers = tuple(sorted((number, address.endpoints) for number, address in access.brokers.items()))
    with _making:
        known = _channels.get(access.cluster_id)
        if known is not None and known.runtime.is_running and not known.link.is_over and known.brokers == brokers:
            known.link.env.keys.adopt(access.secrets)
            return known
        runtime = client_runtime()
        if known is not None and known.runtime is runtime and runtime.is_running:
            runtime.run(runtime.release_link(known.link), _CONNECT_SECONDS)
        address = link_address(access, _CONNECT_SECONDS)
        link = runtime.run(runtime.acquire_link(address), _CONNECT_SECONDS)
        made = _channels[access.cluster_id] = Channel(runtime, link, brokers)
        return made
