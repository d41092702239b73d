"""Opening streams: the server that accepts them, and `connect`. `stream_interface.py` says what a stream is.

Unix sockets for peers on the same node, in a directory that only its owner can enter; TCP for the rest, with TLS where
a context is given. Either way both sides first prove that they hold a secret of the cluster (`admission.py`, rule 30).
That secret decides what the stream may be used for (rule 33).

One stream for each pair of processes is enough, since both sides ask over it. After a stream has ended its caller
connects again, and finds out first what became of its requests (rule 27).
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Collection, Sequence
from ssl import SSLContext
from typing import Final, TypeAlias

from raylog.actors.kernel.answer_room import AnswerRoom
from raylog.actors.kernel.stream_interface import Handler
from raylog.actors.kernel.stream_requests import refuse_all
from raylog.actors.machine.admission import NONCE_BYTES, Acceptor, Dialer, check_role
from raylog.actors.machine.socket_directory import listening_socket, private_directory
from raylog.actors.machine.stream_connection import StreamConnection
from raylog.actors.machine.stream_door import Door
from raylog.actors.protocol.cluster_secrets import Key
from raylog.actors.protocol.endpoint import Endpoint, StreamLimits
from raylog.errors import InvalidConfig, PeerNotAdmitted, PeerUnreachable, StreamError, StreamNotOpen

_DEFAULT_LIMITS: Final = StreamLimits()
KeysOf: TypeAlias = Callable[[], Sequence[Key]]


class StreamServer:
    """Accepts streams at one endpoint. Made by `start`."""

    def __init__(
        self,
        handler: Handler,
        keys: KeysOf,
        role: str,
        limits: StreamLimits,
        on_stream: Callable[[StreamConnection], None] | None,
        room: AnswerRoom | None,
    ) -> None:
        self._handler = handler
        self._keys = keys
        self._role = check_role(role)
        self._limits = limits
        self._on_stream = on_stream
        self._room = room
        self._endpoints: set[str] = set()
        self._connections: set[StreamConnection] = set()
        self._door: Door[StreamConnection] = Door()
        self._server: asyncio.Server | None = None
        self._socket_file: tuple[str, int] | None = None
        self.endpoint = Endpoint(host="unset")

    @classmethod
    async def start(
        cls,
        listen: Endpoint,
        handler: Handler,
        *,
        keys: KeysOf,
        role: str,
        advertised: Collection[Endpoint] = (),
        tls: SSLContext | None = None,
        limits: StreamLimits = _DEFAULT_LIMITS,
        on_stream: Callable[[StreamConnection], None] | None = None,
        room: AnswerRoom | None = None,
    ) -> StreamServer:
        """Listen. With port 0 the system chooses a port, and `endpoint` names it.

        `keys` is called for each connection, since keys change (`cluster_secrets.py`). `advertised` are further
        endpoints under which others connect to this one. `on_stream` is called with each admitted stream, so that this
        side can ask over it too. `room` counts the answers of all streams.
        """
        server = cls(handler, keys, role, limits, on_stream, room)
        await server._listen(listen, tls)
        server._endpoints = {str(server.endpoint), *map(str, advertised)}
        return server

    @property
    def streams(self) -> list[StreamConnection]:
        """Return the streams that have been admitted and have not ended."""
        return [each for each in self._connections if each not in self._door]

    def drop_outdated(self) -> None:
        """End streams whose key is not valid any more."""
        valid = self._keys()
        for stream in self.streams:
            if stream.key not in valid:
                stream.abort(StreamNotOpen(stream.peer, "the secret that it was opened with is not valid any more"))

    async def close(self, timeout: float = 5.0) -> None:
        """Accept no more streams, wait so long for handlers, and end all streams."""
        if self._server is None:
            return
        self._server.close()
        for stranger in self._door.waiting():
            stranger.abort(PeerNotAdmitted("a stranger", "the server was closed"))
        await asyncio.gather(*(connection.close(timeout) for connection in list(self._connections)))
        await self._server.wait_closed()
        self._server = None
        self._remove_socket_file()

    async def _listen(self, listen: Endpoint, tls: SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        if listen.is_unix:
            if tls is not None:
                raise InvalidConfig("tls", str(listen), "a TCP endpoint")
            private_directory(os.path.dirname(listen.path))
            self._server = await loop.create_unix_server(self._accept, sock=listening_socket(listen.path))
            self._socket_file = (listen.path, os.stat(listen.path).st_ino)
            self.endpoint = listen
        else:
            handshake = None if tls is None else self._limits.admission_seconds
            self._server = await loop.create_server(
                self._accept, listen.host, listen.port, ssl=tls, ssl_handshake_timeout=handshake
            )
            port = self._server.sockets[0].getsockname()[1]
            self.endpoint = Endpoint(host=listen.host, port=port)

    def _accept(self) -> StreamConnection:
        nonce = secrets.token_bytes(NONCE_BYTES)
        admission = Acceptor(self._keys(), self._role, self._endpoints, nonce, "a stranger")
        connection = StreamConnection(
            admission,
            self._handler,
            self._limits,
            f"a peer of {self.endpoint}",
            self._admitted,
            self._has_address,
            self._room,
        )
        self._connections.add(connection)
        connection.closed.add_done_callback(lambda _: self._forget(connection))
        self._make_room(self._door.came(connection))
        return connection

    def _has_address(self, connection: StreamConnection, address: str) -> None:
        self._make_room(self._door.has_address(connection, address))

    def _make_room(self, oldest: StreamConnection | None) -> None:
        if oldest is not None:
            self._door.left(oldest)
            asyncio.get_running_loop().call_soon(oldest.turn_away)

    def _admitted(self, connection: StreamConnection) -> None:
        self._door.left(connection)
        if self._on_stream is not None:
            self._on_stream(connection)

    def _forget(self, connection: StreamConnection) -> None:
        self._connections.discard(connection)
        if self._room is not None:
            self._room.ended(connection)
        self._door.left(connection)

    def _remove_socket_file(self) -> None:
        """Remove our socket file, but not that of a successor under the same name."""
        if self._socket_file is None:
            return
        path, inode = self._socket_file
        try:
            if os.lstat(path).st_ino == inode:
                os.unlink(path)
        except FileNotFoundError:
            pass


async def connect(
    endpoint: Endpoint,
    *,
    key: Key,
    role: str,
    handler: Handler = refuse_all,
    tls: SSLContext | None = None,
    limits: StreamLimits = _DEFAULT_LIMITS,
) -> StreamConnection:
    """Return a stream whose sides have proved themselves to each other. `handler` takes the other side's requests."""
    admission = Dialer(key, role, str(endpoint), secrets.token_bytes(NONCE_BYTES))
    stream = StreamConnection(admission, handler, limits, str(endpoint))
    try:
        await asyncio.wait_for(_dial(endpoint, stream, tls, limits), limits.admission_seconds)
        await stream.admitted
    except (OSError, asyncio.TimeoutError) as error:
        stream.abort(PeerUnreachable(str(endpoint), "it was given up"))
        raise PeerUnreachable(str(endpoint), str(error) or "no connection in time") from error
    except (PeerNotAdmitted, PeerUnreachable):
        raise
    except StreamError as error:
        reason = "it ended the stream: secret or address are wrong, or it went down"
        raise PeerNotAdmitted(str(endpoint), reason) from error
    except asyncio.CancelledError:
        stream.abort(PeerUnreachable(str(endpoint), "it was given up"))
        raise
    return stream


async def _dial(endpoint: Endpoint, stream: StreamConnection, tls: SSLContext | None, limits: StreamLimits) -> None:
    loop = asyncio.get_running_loop()
    if endpoint.is_unix:
        await loop.create_unix_connection(lambda: stream, endpoint.path)
    else:
        handshake = None if tls is None else limits.admission_seconds
        await loop.create_connection(
            lambda: stream, endpoint.host, endpoint.port, ssl=tls, ssl_handshake_timeout=handshake
        )
