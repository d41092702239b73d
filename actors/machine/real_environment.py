"""The real `Environment` of a core that runs in a process of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from random import Random
from typing import Final, TypeVar

from raylog.actors.kernel.answer_room import AnswerRoom
from raylog.actors.kernel.environment import Environment, Server
from raylog.actors.kernel.stream_interface import Handler, Stream
from raylog.actors.machine.own_processes import kill_own
from raylog.actors.machine.socket_directory import is_of_this_host, socket_directory, socket_path
from raylog.actors.machine.stream_server import StreamServer, connect
from raylog.actors.machine.tls import RayTls
from raylog.actors.protocol.cluster_secrets import ClusterSecrets, KeyRing
from raylog.actors.protocol.endpoint import Endpoint
from raylog.errors import PeerNotAdmitted, PeerUnreachable
from raylog.storage.disk.disk import Disk
from raylog.storage.disk.local_disk import LocalDisk

_DISK_THREADS: Final = 12  # syncs that wait at the same time share a commit of the file system's journal
_DROP_WITHIN_SECONDS: Final = 5.0
_T = TypeVar("_T")


@dataclass(frozen=True)
class Place:
    """The place of a process in its cluster, and its means to reach the others. Passed on through Ray only."""

    cluster_id: str
    secrets: ClusterSecrets  # as of when it was told; a later set counts more, wherever it is met
    host: str  # the address of its Ray node, under which other nodes reach it
    cluster: str = ""  # the name under which it runs, for processes that listen
    run: str = ""  # in the names of the sockets of a process that others do not find by name


class RealEnvironment:
    """The `Environment` of one event loop."""

    def __init__(self, place: Place, tls: RayTls | None) -> None:
        self.disk: Disk = LocalDisk()
        self.random = Random()
        self.keys = KeyRing(place.secrets, self._keys_changed)
        self.answers = AnswerRoom()
        self._servers: set[StreamServer] = set()
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
        refused: PeerNotAdmitted | None = None
        for key in self.keys.secrets.own_keys:  # the other side may not have heard of the newest yet
            try:
                return await connect(endpoint, key=key, role=role, handler=handler, tls=tls)
            except PeerNotAdmitted as error:
                refused = error
        assert refused is not None
        raise refused

    async def listen(
        self, name: str, role: str, handler: Handler, on_stream: Callable[[Stream], None] | None = None
    ) -> tuple[Server, tuple[Endpoint, ...]]:
        place = self._place
        near = Endpoint(path=socket_path(self._sockets, f"{name}-{place.run}" if place.run else name, place.cluster))
        far = Endpoint(host=self._place.host)
        tls = None if self._tls is None else self._tls.accepting()
        keys = self.keys.keys
        local = await StreamServer.start(near, handler, keys=keys, role=role, on_stream=on_stream, room=self.answers)
        try:
            remote = await StreamServer.start(
                far, handler, keys=keys, role=role, tls=tls, on_stream=on_stream, room=self.answers
            )
        except OSError:
            await local.close()
            raise
        self._servers |= {local, remote}
        return _Servers([local, remote], self._servers), (local.endpoint, remote.endpoint)

    def _keys_changed(self) -> None:
        """End the streams of a secret that is not valid any more, one after the other, since they are dialled again."""
        loop = asyncio.get_running_loop()
        for server in self._servers:
            loop.call_later(_DROP_WITHIN_SECONDS * self.random.random(), server.drop_outdated)

    def as_client(self) -> Environment:
        """See `Environment.as_client`. Secrets that this one adopts count there too."""
        view = copy(self)
        view.keys = self.keys.for_clients()
        return view

    def kill(self, pid: int) -> None:
        kill_own(pid, self._place.cluster_id)


class _Servers:
    """The servers at all endpoints of one listener."""

    def __init__(self, servers: list[StreamServer], open_ones: set[StreamServer]) -> None:
        self._servers = servers
        self._open_ones = open_ones

    async def close(self, timeout: float = 5.0) -> None:
        self._open_ones.difference_update(self._servers)
        await asyncio.gather(*(server.close(timeout) for server in self._servers))
