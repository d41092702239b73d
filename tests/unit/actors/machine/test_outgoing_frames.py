"""What goes onto the transport at once, what waits for the end of the turn, and what never goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import cast

import pytest

from raylog.actors.machine.stream_frames import OutgoingFrames
from raylog.actors.protocol.messages import HEADER_BYTES, MAX_MESSAGE_BYTES, REQUEST, Done
from raylog.config import KIB
from raylog.errors import FrameTooLarge
from raylog.storage.format.record_batch import Bytes

_MAX_FRAME = 1024 * KIB


class FakeLoop:
    """What is called when the turn ends."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def call_soon(self, call: Callable[[], None]) -> None:
        self.calls.append(call)

    def end_turn(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()


class FakeTransport:
    """Each call of `writelines`, and a peer that reads nothing."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def writelines(self, parts: Iterable[Bytes]) -> None:
        self.writes.append(b"".join(parts))

    def get_write_buffer_size(self) -> int:
        return sum(map(len, self.writes))


def frames() -> tuple[OutgoingFrames, FakeTransport, FakeLoop]:
    loop, transport = FakeLoop(), FakeTransport()
    outgoing = OutgoingFrames(cast(asyncio.AbstractEventLoop, loop), _MAX_FRAME)
    outgoing.start(cast(asyncio.Transport, transport))
    return outgoing, transport, loop


def test_the_first_frame_of_a_turn_goes_out_at_once_and_the_others_together() -> None:
    outgoing, transport, loop = frames()
    for each in (b"1", b"2", b"3"):
        outgoing.write([each])
    assert transport.writes == [b"1"]
    assert outgoing.bytes_unsent == 3
    loop.end_turn()
    assert transport.writes == [b"1", b"23"]
    outgoing.write([b"4"])
    assert transport.writes == [b"1", b"23", b"4"]


def test_what_is_enough_does_not_wait_for_the_end_of_the_turn() -> None:
    outgoing, transport, _ = frames()
    outgoing.write([b"first"])
    outgoing.write([bytes(100 * KIB)])
    outgoing.write([bytes(28 * KIB)])
    assert [len(each) for each in transport.writes] == [5, 128 * KIB]


def test_a_large_payload_is_not_copied_and_a_small_one_is_joined() -> None:
    outgoing, _, _ = frames()
    small, large = bytes(4 * KIB), bytes(4 * KIB + 1)
    (joined,), size = outgoing.encode(Done(), small, REQUEST, 1)
    assert len(joined) == size > HEADER_BYTES + len(small)
    parts, size = outgoing.encode(Done(), large, REQUEST, 1)
    assert parts[-1] is large
    assert sum(map(len, parts)) == size


def test_a_frame_that_is_too_large_is_refused_before_it_is_written() -> None:
    outgoing, transport, _ = frames()
    with pytest.raises(FrameTooLarge):
        outgoing.encode(Done(), bytes(_MAX_FRAME), REQUEST, 1)
    assert outgoing.max_message_bytes == MAX_MESSAGE_BYTES
    outgoing.max_message_bytes = 0
    with pytest.raises(FrameTooLarge):
        outgoing.encode(Done(), b"", REQUEST, 1)
    assert transport.writes == []


def test_nothing_goes_out_before_the_start_or_after_the_end() -> None:
    loop, transport = FakeLoop(), FakeTransport()
    outgoing = OutgoingFrames(cast(asyncio.AbstractEventLoop, loop), _MAX_FRAME)
    outgoing.write([b"early"])
    assert outgoing.bytes_unsent == 0
    outgoing.start(cast(asyncio.Transport, transport))
    outgoing.write([b"1"])
    outgoing.write([b"waits"])
    outgoing.end()
    outgoing.write([b"late"])
    loop.end_turn()
    assert transport.writes == [b"1"]
