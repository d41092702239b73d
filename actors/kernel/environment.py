"""The world around a core, as far as it may use it. Shells pass in a real one, the simulator a simulated one.

Beside this a core uses its event loop: `asyncio` tasks, futures, sleeps, and `loop.time()`, which never goes back.
Nothing here says which machine or process the core is in, and nothing a core does may depend on that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import Protocol, TypeVar

from raylog.actors.kernel.answer_room import AnswerRoom
from raylog.actors.kernel.stream_interface import Handler, Stream
from raylog.actors.protocol.cluster_secrets import KeyRing
from raylog.actors.protocol.endpoint import Endpoint
from raylog.storage.disk.disk import Disk

_T = TypeVar("_T")


class Server(Protocol):
    """Accepts streams until it is closed."""

    async def close(self, timeout: float = 5.0) -> None: ...


class Environment(Protocol):
    disk: Disk
    answers: AnswerRoom  # how many bytes of them this process holds
    keys: KeyRing  # the secrets that streams are opened and admitted with
    random: Random  # for jitter; never for decisions that two processes have to agree on

    def wall_ms(self) -> int:
        """Return the time of day, which may jump: for timestamps of records and ages of files, never for leases."""

    def off_loop(self, work: Callable[[], _T]) -> Awaitable[_T]:
        """Do slow work of the disk in another thread. Two pieces of work may run at once, in either order."""

    async def dial(self, endpoint: Endpoint, role: str, handler: Handler) -> Stream:
        """Open a stream. PeerUnreachable or PeerNotAdmitted within the admission time-out."""

    async def listen(
        self, name: str, role: str, handler: Handler, on_stream: Callable[[Stream], None] | None = None
    ) -> tuple[Server, tuple[Endpoint, ...]]:
        """Accept streams under all endpoints that others may dial, the nearest first (unix, then TCP)."""

    def as_client(self) -> Environment:
        """Return the same world for work on behalf of clients: its streams prove the clients' secret (rule 33)."""

    def kill(self, pid: int) -> None:
        """SIGKILL a process of this machine that is raylog's own, if it still lives."""
FindController = Callable[[], Awaitable[Endpoint]]
