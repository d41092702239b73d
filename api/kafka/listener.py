"""The door for Kafka clients: a TCP listener, and a `KafkaConnection` for each client that comes.

What must stay true:
- All connections of a listener read into one buffer, so an idle client costs no memory of its own for that.
- A connection that has been idle for too long is closed, as Kafka does it. One that waits for an answer is not idle;
  one whose client stopped in the middle of a request, or takes no answers, is.
- What the gateway keeps for a connection goes with it.
- While somebody waits for memory, all connections are looked at: what they have moved is free, and who moves too little
  is closed (`connection_memory.py`).
- Clients never take the files that this process needs to dial leaders: the newest ones are turned away before that.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import Callable, Sequence
from typing import Final, Protocol, cast

from raylog.actors.kernel.rare_log import RareLog
from raylog.api.kafka.kafka_connection import KafkaConnection
from raylog.api.kafka.protocol.codecs import RequestHeader
from raylog.api.kafka.rules.memory_budget import Account, MemoryBudget
from raylog.storage.format.record_batch import Bytes

_SHARED_BYTES: Final = 256 * 1024
_IDLE_SECONDS: Final = 600.0  # Kafka's connections.max.idle.ms
_LOOKS: Final = 10  # for idle connections, in the time after which one is closed
_BACKLOG: Final = 1024
_OWN_FILES: Final = 4_096
_LOOK_SECONDS: Final = 0.1  # while somebody waits for memory
_of_clients: Final = RareLog(logging.getLogger(__name__))


class Served(Protocol):
    """The gateway's side of one connection. Its account is closed with it."""

    @property
    def account(self) -> Account: ...
    @property
    def is_admitted(self) -> bool: ...
    async def serve(self, header: RequestHeader, frame: Bytes) -> Sequence[Bytes] | None: ...
    def close(self) -> None: ...


class KafkaListener:
    """Accepts clients on one address. `connection` makes what serves the next one; all have accounts of `budget`."""

    def __init__(
        self,
        connection: Callable[[], Served],
        budget: MemoryBudget,
        *,
        idle_seconds: float = _IDLE_SECONDS,
        most_connections: int | None = None,
    ) -> None:
        """`most_connections`: else as many as leave files for this process's own streams."""
        self._loop = asyncio.get_running_loop()
        self._most_connections = most_connections or _most_connections()
        self._connection = connection
        self._budget = budget
        budget.when_short = self._memory_is_short
        self._idle_seconds = idle_seconds
        self._shared = memoryview(bytearray(_SHARED_BYTES))
        self._served: dict[KafkaConnection, Served] = {}
        self._server: asyncio.Server | None = None
        self._next_look: asyncio.TimerHandle | None = None
        self._next_count: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._served)

    async def open(self, host: str, port: int) -> int:
        """Listen there; 0: at a port that is free. Return the port. OSError: somebody else has it."""
        self._server = await self._loop.create_server(self._accept, host, port, backlog=_BACKLOG)
        self._look_later()
        (_, found, *_) = self._server.sockets[0].getsockname()
        return int(found)

    async def close(self) -> None:
        """Listen no more, and close all connections."""
        for timer in (self._next_look, self._next_count):
            if timer is not None:
                timer.cancel()
        if self._server is not None:
            self._server.close()
        for connection in list(self._served):
            connection.end()
        if self._server is not None:
            await self._server.wait_closed()

    def _accept(self) -> asyncio.BaseProtocol:
        if len(self._served) >= self._most_connections:
            _of_clients.warning(
                "A Kafka client is turned away: %d are connected, and this process may open no more files. Raise its "
                "limit of open files (ulimit -n), or let clients begin at other brokers.",
                len(self._served),
            )
            return _TurnedAway()
        served = self._connection()
        connection = KafkaConnection(
            self._loop, self._shared, served.serve, self._is_over, served.account,
            is_admitted=lambda: served.is_admitted,
        )  # fmt: skip
        self._served[connection] = served
        return connection

    def _is_over(self, connection: KafkaConnection) -> None:
        self._served.pop(connection).close()

    def _look_later(self) -> None:
        self._next_look = self._loop.call_later(self._idle_seconds / _LOOKS, self._close_idle)

    def _close_idle(self) -> None:
        for connection in [each for each in self._served if each.idle_seconds() > self._idle_seconds]:
            connection.end()
        self._look_later()

    # --- memory ---------------------------------------------------------------------------------------------------

    def _memory_is_short(self) -> None:
        if self._next_count is None:
            _of_clients.warning(
                "Kafka clients wait: requests and answers of %d connections hold all of the %d bytes that are for "
                "them. Who takes too little of its answers is closed; clients of several brokers share the load.",
                len(self._served), self._budget.most_bytes,
            )  # fmt: skip
            self._count_later()

    def _count_later(self) -> None:
        self._next_count = self._loop.call_later(_LOOK_SECONDS, self._count_anew)

    def _count_anew(self) -> None:
        self._next_count = None
        for connection in list(self._served):
            connection.look(somebody_waits=self._budget.is_waited_for)
        if self._budget.is_waited_for:
            self._count_later()


class _TurnedAway(asyncio.Protocol):
    """The protocol of a socket that is closed at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).abort()


def _most_connections() -> int:
    """Return how many clients leave files for streams to leaders and coordinators, and for all else."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(files - _OWN_FILES, files // 2)
