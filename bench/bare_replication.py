"""The raw limit of three replicas: four processes, the same sockets, files and event loop, and nothing of raylog.

A client sends frames of 8 bytes of header and a payload; the leader writes it to its file and sends it on to two
followers; each writes it and says so; the client hears when all three have. No check, no offset, no time-out.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, cast

import uvloop

from raylog.actors.machine.kept_memory import keep_memory, raw_memory
from raylog.config import KIB, MIB

_HEADER: Final = struct.Struct(">II")  # bytes that follow, number
_WAIT_SECONDS: Final = 10.0
_Taker = Callable[["BareConnection", int, "bytes | bytearray"], None]


class BareConnection(asyncio.BufferedProtocol):
    """Frames in, frames out."""

    def __init__(self, take: _Taker) -> None:
        self._take = take
        self._buffer = memoryview(bytearray(128 * KIB))
        self._end = 0
        self._body = bytearray()
        self._filled = 0
        self._number = 0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MIB)

    def send(self, number: int, data: bytes | bytearray = b"") -> None:
        assert self._transport is not None
        header = _HEADER.pack(len(data), number)
        self._transport.writelines([header, data] if data else [header])

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return memoryview(self._body)[self._filled :] if self._body else self._buffer[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._body:
            self._filled += nbytes
            if self._filled == len(self._body):
                body, self._body = self._body, bytearray()
                self._take(self, self._number, body)
            return
        self._end += nbytes
        start = 0
        while self._end - start >= _HEADER.size:
            length, number = _HEADER.unpack_from(self._buffer, start)
            end = start + _HEADER.size + length
            if end > self._end:
                break
            self._take(self, number, bytes(self._buffer[start + _HEADER.size : end]))
            start = end
        self._keep(start)

    def _keep(self, start: int) -> None:
        """Keep the beginning of a frame for the next read; a large frame gets memory of its own."""
        rest = self._end - start
        if rest >= _HEADER.size:
            length, self._number = _HEADER.unpack_from(self._buffer, start)
            if length > len(self._buffer) // 2:
                self._body = raw_memory(length)
                self._filled = rest - _HEADER.size
                self._body[: self._filled] = self._buffer[start + _HEADER.size : self._end]
                self._end = 0
                return
        self._buffer[:rest] = self._buffer[start : self._end]
        self._end = rest


class _File:
    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT)
        self._end = 0

    def append(self, data: bytes | bytearray) -> None:
        self._end += os.pwrite(self._fd, data, self._end)


def _follow(path: str) -> None:
    async def serve() -> None:
        file = _File(f"{path}.log")

        def take(connection: BareConnection, number: int, data: bytes | bytearray) -> None:
            file.append(data)
            connection.send(number)

        await asyncio.get_running_loop().create_unix_server(lambda: BareConnection(take), path)
        await asyncio.Event().wait()

    keep_memory()
    uvloop.run(serve())


def _lead(path: str, followers: list[str]) -> None:
    async def serve() -> None:
        file = _File(f"{path}.log")
        waiting: dict[int, tuple[list[int], BareConnection, int]] = {}
        last = 0

        def answered(_: BareConnection, number: int, __: bytes | bytearray) -> None:
            missing, client, asked = waiting[number]
            missing[0] -= 1
            if not missing[0]:
                del waiting[number]
                client.send(asked)

        def take(client: BareConnection, number: int, data: bytes | bytearray) -> None:
            nonlocal last
            last += 1
            waiting[last] = [len(followers)], client, number
            file.append(data)
            for each in connections:
                each.send(last, data)

        loop = asyncio.get_running_loop()
        connections = [
            (await loop.create_unix_connection(lambda: BareConnection(answered), path))[1] for path in followers
        ]
        await loop.create_unix_server(lambda: BareConnection(take), path)
        await asyncio.Event().wait()

    keep_memory()
    uvloop.run(serve())


@asynccontextmanager
async def bare_replication(folder: str) -> AsyncIterator[Callable[[bytes | bytearray], asyncio.Future[None]]]:
    """A function that has three processes write a payload, and whose future is done when they have."""
    paths = [f"{folder}/bare-{number}" for number in range(3)]
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_follow, args=(path,), daemon=True) for path in paths[1:]]
    processes.append(context.Process(target=_lead, args=(paths[0], paths[1:]), daemon=True))
    waiting: dict[int, asyncio.Future[None]] = {}
    loop = asyncio.get_running_loop()
    last = 0
    try:
        for path, process in zip([*paths[1:], paths[0]], processes, strict=True):
            process.start()
            await _until_there(path)
        _, client = await loop.create_unix_connection(
            lambda: BareConnection(lambda _, number, __: waiting.pop(number).set_result(None)), paths[0]
        )

        def write(data: bytes | bytearray) -> asyncio.Future[None]:
            nonlocal last
            last += 1
            future = waiting[last] = loop.create_future()
            client.send(last, data)
            return future

        yield write
    finally:
        for process in processes:
            process.kill()
            process.join()
        for path in paths:
            os.unlink(f"{path}.log")


async def _until_there(path: str) -> None:
    deadline = time.monotonic() + _WAIT_SECONDS
    while not os.path.exists(path):
        if time.monotonic() > deadline:
            raise TimeoutError(path)
        await asyncio.sleep(0.01)
