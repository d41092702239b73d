"""Requests cut out of a stream: the same whatever pieces it comes in, and nothing set aside for nonsense."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.api.kafka.request_frames import RequestFrames
from raylog.errors import MalformedRequest


def framed(*requests: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(request)) + request for request in requests)


def feed(frames: RequestFrames, data: bytes) -> list[bytearray]:
    """What a socket does: fills the memory it is given, no more than has come."""
    found = []
    while data:
        memory = frames.get_buffer()
        piece = data[: len(memory)]
        memory[: len(piece)] = piece
        found += frames.received(len(piece))
        data = data[len(piece) :]
    return found


@given(st.lists(st.binary(min_size=1, max_size=80), max_size=6), st.lists(st.integers(1, 60)), st.integers(4, 64))
def test_requests_are_the_same_in_whatever_pieces_they_come(
    requests: list[bytes], pieces: list[int], shared: int
) -> None:
    memory = memoryview(bytearray(shared))
    frames, other = RequestFrames(memory), RequestFrames(memory)
    data, found = framed(*requests), []
    for piece in pieces:
        found += feed(frames, data[:piece])
        data = data[piece:]
        assert feed(other, framed(b"of another connection"))  # it writes into the memory that they share
    found += feed(frames, data)
    assert found == requests
    assert frames.bytes_held == 0


def test_a_large_request_is_read_into_memory_of_its_own() -> None:
    frames = RequestFrames(memoryview(bytearray(64)))
    request = bytes(range(256)) * 40
    data = framed(b"small", request)
    assert feed(frames, data[:60]) == [b"small"]
    assert frames.bytes_held == len(request)
    assert len(frames.get_buffer()) == len(request) - (60 - 9 - 4)
    (found,) = feed(frames, data[60:])
    assert found == request
    found[0] = 7  # it is the taker's own


@pytest.mark.parametrize("length", [0, -1, -(2**31), 1_001, 2**31 - 1])
def test_a_length_that_cannot_be_is_refused_before_there_is_memory_for_it(length: int) -> None:
    frames = RequestFrames(memoryview(bytearray(64)), most_bytes=1_000)
    tracemalloc.start()
    try:
        with pytest.raises(MalformedRequest, match="1000 are allowed"):
            feed(frames, struct.pack(">i", length) + b"begin")
        assert tracemalloc.get_traced_memory()[1] < 50_000
    finally:
        tracemalloc.stop()


def test_what_is_allowed_may_change_between_two_requests() -> None:
    frames = RequestFrames(memoryview(bytearray(64)), most_bytes=8)
    assert feed(frames, framed(b"12345678")) == [b"12345678"]
    frames.most_bytes = 9
    assert feed(frames, framed(b"123456789")) == [b"123456789"]
