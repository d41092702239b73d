"""What goes onto the transport at once, what waits for the end of the turn, and what never goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import cast

import pytest

from raylog.actors.machine.stream_frames import BLOCKED_BYTES, CONGESTED_BYTES, LARGE_BYTES, OutgoingFrames
from raylog.actors.protocol.messages import HEADER_BYTES, MAX_MESSAGE_BYTES, REQUEST, RESPONSE, Done, read_header
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
        self.pause: Callable[[], None] = lambda: None
        self._taken = 0

    def writelines(self, parts: Iterable[Bytes]) -> None:
        self.writes.append(b"".join(parts))
        if self.get_write_buffer_size() > BLOCKED_BYTES:
            self.pause()

    def get_write_buffer_size(self) -> int:
        return sum(map(len, self.writes)) - self._taken

    def is_read(self) -> None:
        self._taken = sum(map(len, self.writes))


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


# --- large frames -----------------------------------------------------------------------------------------------------


class Blocked:
    """A transport that has a large frame to write, of partition 0, and a peer that reads when it is told to."""

    def __init__(self) -> None:
        self.congested: list[bool] = []
        self.loop, self.transport = FakeLoop(), FakeTransport()
        loop = cast(asyncio.AbstractEventLoop, self.loop)
        self.outgoing = OutgoingFrames(loop, 2**30, self.congested.append)
        self.outgoing.start(cast(asyncio.Transport, self.transport))
        self.transport.pause = self.outgoing.paused
        self.write(0, 0, LARGE_BYTES)
        self.loop.end_turn()
        assert self.sent == [0]

    def write(self, number: int, partition: int, size: int, flags: int = REQUEST) -> None:
        self.outgoing.write(self.outgoing.encode(Done(), bytes(size), flags, number + 1, bytes(16), partition)[0])

    def is_read(self) -> None:
        self.transport.is_read()
        self.outgoing.resumed()
        self.loop.end_turn()

    @property
    def sent(self) -> list[int]:
        """The numbers of the frames, in the order in which they went out."""
        written, numbers, position = b"".join(self.transport.writes), [], 0
        while position < len(written):
            header = read_header(written, position, 2**30)
            numbers.append(header.correlation_id - 1)
            position += header.size
        return numbers


def test_small_frames_overtake_large_ones_that_wait() -> None:
    stream = Blocked()
    stream.write(1, 1, LARGE_BYTES)
    stream.write(2, 2, LARGE_BYTES)
    stream.write(3, 3, 100)
    stream.loop.end_turn()
    assert stream.sent == [0, 3]
    stream.is_read()
    assert stream.sent == [0, 3, 1]  # one after the other, so that what is small has to wait for one only
    stream.is_read()
    assert stream.sent == [0, 3, 1, 2]


def test_requests_of_one_partition_keep_their_order() -> None:
    stream = Blocked()
    stream.write(1, 1, LARGE_BYTES)
    stream.write(2, 1, 100)
    stream.write(3, 1, LARGE_BYTES)
    stream.write(4, 2, 100)
    stream.write(5, 1, 100)
    stream.loop.end_turn()
    assert stream.sent == [0, 4]
    for _ in range(2):
        stream.is_read()
    assert stream.sent == [0, 4, 1, 2, 3]
    stream.write(6, 1, 100)
    stream.is_read()
    assert stream.sent == [0, 4, 1, 2, 3, 5, 6]


def test_what_is_written_behind_all_overtakes_nothing_and_is_overtaken() -> None:
    stream = Blocked()
    stream.write(1, 1, LARGE_BYTES)
    behind = stream.outgoing.encode(Done(), b"", REQUEST, 2 + 1)[0]
    stream.outgoing.write_behind(behind)
    stream.write(3, 3, 100)
    stream.write(4, 1, 100)
    stream.loop.end_turn()
    assert stream.sent == [0, 3]
    stream.is_read()
    stream.is_read()
    assert stream.sent == [0, 3, 1, 2, 4]
    stream.outgoing.write_behind(stream.outgoing.encode(Done(), b"", REQUEST, 5 + 1)[0])
    stream.loop.end_turn()
    assert stream.sent == [0, 3, 1, 2, 4, 5]


def test_a_large_frame_goes_behind_the_small_one_of_its_partition_that_waits_for_the_end_of_the_turn() -> None:
    stream = Blocked()
    stream.write(1, 2, 100)  # this one corks the stream
    stream.write(2, 1, 100)
    stream.write(3, 1, LARGE_BYTES)
    stream.transport.is_read()
    stream.outgoing.resumed()
    stream.outgoing._go_on()  # before the end of the turn
    assert stream.sent == [0, 1, 2, 3]


def test_an_answer_overtakes_large_requests_and_large_answers() -> None:
    stream = Blocked()
    stream.write(1, -1, LARGE_BYTES, RESPONSE)
    stream.write(2, -1, LARGE_BYTES)
    stream.write(3, -1, 100, RESPONSE)
    stream.loop.end_turn()
    assert stream.sent == [0, 3]
    stream.is_read()
    stream.is_read()
    assert stream.sent == [0, 3, 1, 2]


def test_what_waits_counts_as_unsent_and_too_much_of_it_is_told() -> None:
    stream = Blocked()
    number = 0
    while stream.outgoing.bytes_unsent <= CONGESTED_BYTES:
        assert stream.congested == []
        stream.write(1, number := number + 1, LARGE_BYTES)
    assert stream.congested == [True]
    while stream.outgoing.bytes_unsent:
        stream.is_read()
    assert stream.congested == [True, False]
    assert len(stream.sent) == number + 1


def test_everything_goes_out_before_the_stream_is_closed_and_nothing_after_its_end() -> None:
    stream, ended = Blocked(), Blocked()
    for each in stream, ended:
        each.write(1, 1, LARGE_BYTES)
        each.write(2, 1, 100)
    stream.outgoing.write_all()
    assert stream.sent == [0, 1, 2]
    ended.outgoing.end()
    ended.is_read()
    assert ended.sent == [0]
