"""Which requests a coordinator's process does not take: of the dead, and those that are another one's."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from raylog.actors.coordinators.process import CoordinatorProcess
from raylog.actors.kernel.stream_interface import Request, Response
from raylog.actors.protocol.coordinator_spec import CoordinatorSpec
from raylog.actors.protocol.messages import Ping
from raylog.actors.protocol.names import OFFSETS_TOPIC
from raylog.errors import StreamNotOpen, UnknownPartition


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


def _process(core: _Core, ends: _Stream) -> CoordinatorProcess:
    """That of partition 0, which serves."""
    process = CoordinatorProcess.__new__(CoordinatorProcess)
    process._is_serving, process._sure_until, process._loop = True, 0.0, asyncio.get_running_loop()
    process._core, process._partition_log = cast(Any, core), cast(Any, _Log(ends))
    process._spec = CoordinatorSpec("cluster", OFFSETS_TOPIC, bytes(16), 0, 1, "node", 7, 0, -1, 1, ())
    return process


def test_what_a_dead_process_has_asked_for_is_not_done() -> None:
    async def ask() -> None:
        dead, living = _Stream(), _Stream()
        core = _Core()
        process = _process(core, dead)
        requests = [Request(Ping(), bytearray(), b"", 0, cast(Any, stream), 1, 1) for stream in (dead, living)]
        answers = [cast(Any, process._handle(request)) for request in requests]
        with pytest.raises(StreamNotOpen):
            await answers[0]
        dead.closed = asyncio.get_running_loop().create_future()
        await answers[1]
        assert core.handled == [requests[1]]

    asyncio.run(ask())


def test_what_another_one_is_asked_is_refused_before_all_else() -> None:
    """Its port was another one's, whose clients have not heard of it yet; to this one their group would be new."""

    async def ask() -> None:
        core, stream = _Core(), _Stream()
        process = _process(core, stream)
        for serves in (True, False):
            process._is_serving = serves
            with pytest.raises(UnknownPartition):
                process._handle(Request(Ping(), bytearray(), b"", 1, cast(Any, stream), 1, 1))
        assert not core.handled

    asyncio.run(ask())
