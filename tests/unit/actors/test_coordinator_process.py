"""What becomes of requests that waited while a coordinator's process stood still."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from raylog.actors.coordinator_process import CoordinatorProcess
from raylog.actors.messages import Ping
from raylog.actors.stream_interface import Request, Response
from raylog.errors import StreamNotOpen


class _Stream:
    peer = "member of before"

    def __init__(self) -> None:
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class _Core:
    def __init__(self) -> None:
        self.handled: list[Request] = []

    def handle(self, request: Request) -> Response:
        self.handled.append(request)
        return Response(Ping())


class _Log:
    def __init__(self, ends: _Stream) -> None:
        self.ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._ends = ends

    async def confirm(self) -> None:
        """While this takes, the end of a stream is read."""
        self._ends.closed.set_result(None)


def test_what_a_dead_process_has_asked_for_is_not_done() -> None:
    async def ask() -> None:
        dead, living = _Stream(), _Stream()
        process = CoordinatorProcess.__new__(CoordinatorProcess)
        core = _Core()
        process._is_serving, process._sure_until, process._loop = True, 0.0, asyncio.get_running_loop()
        process._core, process._partition_log = cast(Any, core), cast(Any, _Log(dead))
        requests = [Request(Ping(), bytearray(), b"", 0, cast(Any, stream), 1, 1) for stream in (dead, living)]
        answers = [cast(Any, process._handle(request)) for request in requests]
        with pytest.raises(StreamNotOpen):
            await answers[0]
        dead.closed = asyncio.get_running_loop().create_future()
        await answers[1]
        assert core.handled == [requests[1]]

    asyncio.run(ask())
