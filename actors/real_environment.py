"""The world as it is, for a core that runs in a process of its own (`environment.py`)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random
from typing import Final, TypeVar

from raylog.actors.cluster_secret import ClusterSecret
from raylog.actors.environment import Server
from raylog.actors.own_processes import kill_own
from raylog.actors.ray_tls import RayTls
from raylog.actors.socket_directory import is_of_this_host, socket_directory, socket_path
from raylog.actors.stream_interface import Endpoint, Handler, Stream
from raylog.actors.streams import StreamServer, connect
from raylog.errors import PeerUnreachable
from raylog.storage.disk import Disk, LocalDisk

_DISK_THREADS: Final = 4
_T = TypeVar("_T")


@dataclass(frozen=True)
class Place:
    """Where a process of a cluster runs, and what it needs to speak to the others. Handed out through Ray only."""

    cluster_id: str
    secret: ClusterSecret
    host: str  # the address of its Ray node, under which other nodes reach it
    cluster: str = ""  # the name under which it runs, for processes that listen
    run: str = ""  # in the names of the sockets of a process that others do not find by name


class RealEnvironment:
    """An `Environment`. One for each event loop."""

    def __init__(self, place: Place, tls: RayTls | None) -> None:
        self.disk: Disk = LocalDisk()
        self.random = Random()
        self._place = place
        self._tls = tls
        self._sockets = socket_directory(place.cluster_id, place.host)
        self._threads = ThreadPoolExecutor(_DISK_THREADS, thread_name_prefix="off-loop")

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def off_loop(self, work: Callable[[], _T]) -> Awaitable[_T]:
        return asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def dial(self, endpoint: Endpoint, role: str, handler: Handler) -> Stream:
        if endpoint.is_unix and not is_of_this_host(endpoint.path, self._sockets):
            raise PeerUnreachable(str(endpoint), "it is a socket of another host")
        tls = None if endpoint.is_unix or self._tls is None else self._tls.dialling()
        return await connect(endpoint, secret=self._place.secret.value, role=role, handler=handler, tls=tls)

    async def listen(
        self, name: str, role: str, handler: Handler, on_stream: Callable[[Stream], None] | None = None
    ) -> tuple[Server, tuple[Endpoint, ...]]:
        place = self._place
        near = Endpoint(path=socket_path(self._sockets, f"{name}-{place.run}" if place.run else name, place.cluster))
        far = Endpoint(host=self._place.host)
        tls = None if self._tls is None else self._tls.accepting()
        secret = self._place.secret.value
        local = await StreamServer.start(near, handler, secret=secret, role=role, on_stream=on_stream)
        try:
            remote = await StreamServer.start(far, handler, secret=secret, role=role, tls=tls, on_stream=on_stream)
        except OSError:
            await local.close()
            raise
        return _Servers([local, remote]), (local.endpoint, remote.endpoint)

    def kill(self, pid: int) -> None:
        kill_own(pid, self._place.cluster_id)


class _Servers:
    """All endpoints of one listener."""

    def __init__(self, servers: list[StreamServer]) -> None:
        self._servers = servers

    async def close(self, timeout: float = 5.0) -> None:
        await asyncio.gather(*(server.close(timeout) for server in self._servers))
