"""Frames come out whole, whatever pieces they arrive in; what is no frame is refused before it is waited for."""

from __future__ import annotations

from contextlib import suppress
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.actors.machine.stream_frames import FrameReader
from raylog.actors.protocol.messages import (
    ERROR,
    HEADER,
    HEADER_BYTES,
    MAX_MESSAGE_BYTES,
    NO_PARTITION,
    NO_TOPIC,
    ONE_WAY,
    REQUEST,
    RESPONSE,
    Frame,
    FrameHeader,
    check_outgoing,
    encode_header,
    read_header,
)
from raylog.errors import FrameInvalid, FrameTooLarge, UnsupportedFrameVersion

_LIMIT = 64 * 1024
_BUFFER = 8 * 1024

_flags = st.sampled_from((REQUEST, RESPONSE, RESPONSE | ERROR, ONE_WAY))
_bodies = st.binary(max_size=40) | st.integers(0, 20_000).map(lambda size: bytes(range(256)) * (size // 256 + 1))


@st.composite
def frames(draw: st.DrawFn) -> tuple[bytes, FrameHeader, bytes, bytes]:
    flags = draw(_flags)
    correlation_id = 0 if flags == ONE_WAY else draw(st.integers(1, 2**64 - 1))
    message, payload = draw(_bodies), draw(_bodies)
    header = encode_header(
        draw(st.integers(0, 255)),
        draw(st.integers(0, 255)),
        flags,
        correlation_id,
        len(message),
        len(payload),
        topic_id=draw(st.binary(min_size=16, max_size=16)),
        partition=draw(st.integers(NO_PARTITION, 2**31 - 1)),
    )
    return header + message + payload, read_header(header, 0, _LIMIT), message, payload


def feed(reader: FrameReader, data: bytes, sizes: list[int]) -> list[tuple[FrameHeader, bytes, bytes]]:
    """Read `data` in pieces of these sizes, over and over."""
    taken = []
    position = turn = 0
    while position < len(data):
        room = reader.get_buffer()
        assert room
        count = min(sizes[turn % len(sizes)], len(room), len(data) - position)
        room[:count] = data[position : position + count]
        position, turn = position + count, turn + 1
        reader.received(count)
        while (frame := reader.next_frame()) is not None:
            taken.append((frame.header, bytes(frame.message), bytes(frame.payload)))
    return taken


@given(st.lists(frames(), max_size=8), st.lists(st.integers(1, 30_000), min_size=1, max_size=5))
def test_frames_come_out_as_they_went_in(sent: list[tuple[bytes, FrameHeader, bytes, bytes]], sizes: list[int]) -> None:
    reader = FrameReader(_LIMIT, _BUFFER)
    assert feed(reader, b"".join(each[0] for each in sent), sizes) == [each[1:] for each in sent]
    assert not reader.is_midway


@given(st.lists(frames(), min_size=1, max_size=2))
def test_frames_come_out_as_they_went_in_byte_by_byte(sent: list[tuple[bytes, FrameHeader, bytes, bytes]]) -> None:
    data = b"".join(each[0] for each in sent)[:30_000]
    ends = accumulate(len(each[0]) for each in sent)
    whole = [each[1:] for each, end in zip(sent, ends, strict=True) if end <= len(data)]
    assert feed(FrameReader(_LIMIT, _BUFFER), data, [1]) == whole


@given(st.binary(max_size=400), st.lists(st.integers(1, 100), min_size=1, max_size=5))
def test_any_bytes_are_frames_or_refused(data: bytes, sizes: list[int]) -> None:
    with suppress(FrameInvalid):
        feed(FrameReader(_LIMIT, _BUFFER), data, sizes)


def _one(data: bytes, reader: FrameReader) -> Frame:
    position = 0
    while (frame := reader.next_frame()) is None:
        room = reader.get_buffer()
        count = min(len(room), len(data) - position)
        room[:count] = data[position : position + count]
        reader.received(count)
        position += count
    return frame


@pytest.mark.parametrize("size", [100, 50_000])
def test_a_payload_is_the_takers_own_and_writable(size: int) -> None:
    reader = FrameReader(_LIMIT, _BUFFER)
    data = encode_header(9, 1, ONE_WAY, 0, 0, size) + bytes(size)
    first = _one(data, reader).payload
    first[:4] = b"mine"
    second = _one(data, reader).payload
    assert bytes(first[:4]) == b"mine"
    assert bytes(second) == bytes(size)


def test_an_oversized_frame_is_refused_from_its_header_alone() -> None:
    with pytest.raises(FrameTooLarge):
        feed(FrameReader(_LIMIT, _BUFFER), encode_header(9, 1, ONE_WAY, 0, 0, _LIMIT), [HEADER_BYTES])


def header_of(**changes: int) -> bytes:
    """A good header, changed."""
    good = read_header(encode_header(9, 1, REQUEST, 5, 10, 10), 0, 2**31)
    return HEADER.pack(*{**good._asdict(), **changes}.values())


@pytest.mark.parametrize(
    "changes",
    [
        {"length": 0},
        {"length": HEADER_BYTES - 5},
        {"message_length": 21},
        {"message_length": 2**32 - 1},
        {"flags": 2},
        {"flags": 3, "correlation_id": 0},
        {"flags": 5},
        {"flags": 128},
        {"correlation_id": 0},
        {"flags": ONE_WAY},
        {"partition": -2},
        {"length": 2**31 - 5, "message_length": MAX_MESSAGE_BYTES + 1},
    ],
    ids=str,
)
def test_a_header_that_cannot_be_is_refused(changes: dict[str, int]) -> None:
    with pytest.raises(FrameInvalid):
        read_header(header_of(**changes), 0, 2**31)


def test_an_unknown_version_is_named() -> None:
    with pytest.raises(UnsupportedFrameVersion, match="version 7"):
        read_header(header_of(version=7), 0, _LIMIT)


def test_what_the_other_side_would_refuse_is_not_sent() -> None:
    assert check_outgoing(10, 10, _LIMIT) == HEADER_BYTES + 20
    with pytest.raises(FrameTooLarge):
        check_outgoing(10, _LIMIT, _LIMIT)
    with pytest.raises(FrameTooLarge):
        check_outgoing(MAX_MESSAGE_BYTES + 1, 0, 2**31 - 1)


def test_larger_frames_are_taken_after_widening_and_nothing_is_lost() -> None:
    reader = FrameReader(512, 512)
    small = encode_header(3, 1, ONE_WAY, 0, 4, 0) + b"abcd"
    large = encode_header(9, 1, REQUEST, 1, 4, 9_000) + b"efgh" + bytes(9_000)
    room = reader.get_buffer()
    data = small + large[:20]
    room[: len(data)] = data
    reader.received(len(data))
    assert reader.next_frame() is not None
    reader.widen(_LIMIT, _BUFFER)
    assert reader.next_frame() is None
    taken = feed(reader, large[20:], [700])
    assert [(message, len(payload)) for _, message, payload in taken] == [(b"efgh", 9_000)]
    assert taken[0][0].topic_id == NO_TOPIC
