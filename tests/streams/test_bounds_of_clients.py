"""Bounds of a client's stream, over real sockets (rule 34): less of each than a stream between processes has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

from raylog.actors.kernel.stream_interface import Answer, Request, Response, Stream
from raylog.actors.machine.stream_connection import StreamConnection
from raylog.actors.machine.stream_server import StreamServer, connect
from raylog.actors.protocol.cluster_secrets import Key, Standing
from raylog.actors.protocol.endpoint import Endpoint, StreamLimits
from raylog.actors.protocol.messages import CLIENT_MESSAGE_BYTES, Done, Message, Ping, message
from raylog.config import KIB, MIB
from raylog.errors import FrameTooLarge, MessageTooLarge, RemoteFailed, StreamClosed

_INTERNAL = Key(Standing.INTERNAL, b"internal secret " * 2)
_CLIENT = Key(Standing.CLIENT, b"secret of client" * 2)
_LIMITS = StreamLimits(client_frame_bytes=MIB, client_held_bytes=2 * MIB)


@message(kind=243, for_clients=True)
@dataclass(frozen=True, slots=True)
class Words(Message):
    value: str


async def _serve(handler: Callable[[Request], Any], **options: Any) -> StreamServer:
    return await StreamServer.start(
        Endpoint(host="127.0.0.1"), handler, keys=lambda: (_INTERNAL, _CLIENT), role="server", limits=_LIMITS, **options
    )


async def _dial(server: StreamServer, key: Key = _CLIENT) -> StreamConnection:
    return await connect(server.endpoint, key=key, role="somebody")


def _done(_: Request) -> Answer:
    return Response(Done())


def _run(test: Any) -> None:
    asyncio.run(asyncio.wait_for(test, 20))


def test_a_client_is_refused_a_long_message_before_it_is_read_and_its_stream_goes_on() -> None:
    async def test() -> None:
        server = await _serve(_done)
        stream = await _dial(server)
        long = Words("x" * CLIENT_MESSAGE_BYTES)
        with pytest.raises(FrameTooLarge):  # one of ours does not even send it
            await stream.request(long)
        stream._outgoing.max_message_bytes = 2 * CLIENT_MESSAGE_BYTES  # one that is not
        with pytest.raises(RemoteFailed) as caught:
            await stream.request(long)
        assert isinstance(caught.value.error, MessageTooLarge)
        assert (await stream.request(Ping())).message == Done()
        internal = await _dial(server, _INTERNAL)
        assert (await internal.request(long)).message == Done()
        await stream.close()
        await internal.close()
        await server.close()

    _run(test())


def test_a_client_s_frame_over_the_bound_is_not_sent_and_others_over_the_stream_go_on() -> None:
    async def test() -> None:
        go_on = asyncio.Event()

        async def hold(_: Request) -> Response:
            await go_on.wait()
            return Response(Done())

        server = await _serve(hold)
        internal = await _dial(server, _INTERNAL)
        stream = await _dial(server)
        large, others = internal.request(Words(""), bytes(3 * MIB)), [stream.request(Words("")) for _ in range(3)]
        await asyncio.sleep(0.1)
        with pytest.raises(FrameTooLarge):
            await stream.request(Words(""), bytes(2 * MIB))
        go_on.set()
        assert [each.message for each in await asyncio.gather(large, *others)] == [Done()] * 4
        stream._outgoing.max_frame_bytes = 3 * MIB  # a client that is none of ours
        with pytest.raises(StreamClosed):
            await stream.request(Words(""), bytes(2 * MIB))
        await internal.close()
        await server.close()

    _run(test())


@pytest.mark.parametrize("is_at_once", [True, False])
def test_a_server_that_takes_larger_frames_tells_its_clients(is_at_once: bool) -> None:
    async def test() -> None:
        streams: list[Stream] = []

        def admitted(stream: Stream) -> None:
            streams.append(stream)
            if is_at_once:
                stream.take_frames_of(3 * MIB)

        server = await _serve(_done, on_stream=admitted)
        stream = await _dial(server)
        assert (await stream.request(Words(""), bytes(MIB - KIB))).message == Done()
        streams[0].take_frames_of(3 * MIB)
        streams[0].take_frames_of(2 * MIB)  # which takes nothing back
        await stream.request(Ping())  # what was said has arrived before its answer
        assert (await stream.request(Words(""), bytes(3 * MIB - KIB))).message == Done()
        with pytest.raises(FrameTooLarge):
            await stream.request(Words(""), bytes(3 * MIB))
        await stream.close()
        await server.close()

    _run(test())


def test_what_a_client_s_unanswered_requests_hold_is_bounded() -> None:
    async def test() -> None:
        held: list[int] = []
        go_on = asyncio.Event()

        async def hold(request: Request) -> Response:
            held.append(len(request.payload))
            await go_on.wait()
            return Response(Done())

        server = await _serve(hold)
        stream = await _dial(server)
        asked = [stream.request(Words(""), bytes(MIB - KIB)) for _ in range(12)]
        await asyncio.sleep(0.5)
        assert sum(held) <= 4 * MIB  # the bound, a frame beyond it, and one that had arrived
        go_on.set()
        await asyncio.gather(*asked)
        assert len(held) == 12
        await stream.close()
        await server.close()

    _run(test())


def test_a_client_s_many_requests_at_once_leave_others_their_turns() -> None:
    async def test() -> None:
        turns: list[int] = []
        begun = 0

        def count(_: Request) -> Answer:
            nonlocal begun
            begun += 1
            return Response(Done())

        async def watch() -> None:
            while True:
                turns.append(begun)
                await asyncio.sleep(0)

        server = await _serve(count)
        stream = await _dial(server)
        watching = asyncio.create_task(watch())
        await asyncio.gather(*(stream.request(Words("")) for _ in range(1_000)))
        watching.cancel()
        assert max(later - earlier for earlier, later in pairwise(turns)) <= 2 * 64
        assert begun == 1_000
        await stream.close()
        await server.close()

    _run(test())
