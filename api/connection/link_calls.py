"""Calls of a cluster's handle over a link of this process: opened, asked, let go of."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from raylog.actors.link.cluster_link import ClusterLink

_T = TypeVar("_T")
_GRACE_SECONDS: Final = 1.0  # in which a call that is out of time says so itself


def call_over_link(cluster: object, call: Callable[[ClusterLink], Coroutine[Any, Any, _T]], timeout: float) -> _T:
    """Run `call` on the loop of this process's clients; nothing stays open. `cluster`: a `Cluster`."""
    from raylog.api.connection.client_access import link_address, name_of
    from raylog.api.connection.client_runtime import client_runtime
    from raylog.api.connection.progress import Progress

    runtime = client_runtime()
    address = link_address(cluster, timeout)  # type: ignore[arg-type]  # named by its parts, which do not know it

    async def ask() -> _T:
        link = await runtime.acquire_link(address)
        try:
            return await call(link)
        finally:
            await runtime.release_link(link)

    with Progress(f"waiting for coordinators of {name_of(cluster)!r}") as progress:  # type: ignore[arg-type]
        return runtime.run(ask(), timeout + _GRACE_SECONDS, progress.tell)
