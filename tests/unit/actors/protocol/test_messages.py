"""Messages come back as they went; what is no message of its kind is refused."""

from __future__ import annotations

from dataclasses import dataclass

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.actors.protocol.endpoint import Endpoint, StreamLimits
from raylog.actors.protocol.messages import Done, Failure, Hello, Message, Ping, message, pack, unpack
from raylog.actors.protocol.remote_errors import failure_of, remote_failed
from raylog.errors import (
    FrameInvalid,
    InvalidConfig,
    MessageUnknown,
    OffsetOutOfRange,
    RaylogError,
    StaleLeaderEpoch,
    UnknownConfig,
)


@message(kind=250)
@dataclass(frozen=True, slots=True)
class _Sample(Message):
    number: int
    name: str | None
    offsets: tuple[int, ...]
    pair: tuple[str, bool]
    share: float
    anything: object


_plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=8,
)
_samples = st.builds(
    _Sample,
    st.integers(-(2**63), 2**64 - 1),
    st.none() | st.text(),
    st.lists(st.integers(0, 2**40)).map(tuple),
    st.tuples(st.text(), st.booleans()),
    st.floats(allow_nan=False),
    _plain,
)


@given(_samples)
def test_a_message_comes_back_as_it_went(sample: _Sample) -> None:
    kind, version, data = pack(sample)
    assert (kind, version) == (250, 1)
    assert unpack(kind, version, memoryview(data)) == sample


@given(st.sampled_from((1, 2, 3, 4, 5, 6, 250)), st.binary(max_size=60) | _plain.map(msgpack.packb))
def test_any_bytes_are_a_message_or_refused(kind: int, data: bytes) -> None:
    try:
        found = unpack(kind, 1, data)
    except FrameInvalid:
        return
    assert unpack(kind, 1, pack(found)[2]) == found


@pytest.mark.parametrize(
    "values",
    [
        (),
        (1, None, (), ("a", True), 0.5),
        (True, None, (), ("a", True), 0.5, None),
        (1, b"x", (), ("a", True), 0.5, None),
        (1, None, ("x",), ("a", True), 0.5, None),
        (1, None, (), ("a",), 0.5, None),
        (1, None, (), ("a", 1), 0.5, None),
        (1, None, (), ("a", True), 1, None),
        (1, None, (), ("a", True), 0.5, {"a": 1}),
    ],
    ids=str,
)
def test_a_field_of_the_wrong_type_is_refused(values: tuple[object, ...]) -> None:
    with pytest.raises(FrameInvalid):
        unpack(250, 1, msgpack.packb(values))


def test_messages_without_fields_and_unknown_ones() -> None:
    assert unpack(*pack(Ping())) == Ping()
    assert unpack(*pack(Done())) == Done()
    with pytest.raises(MessageUnknown):
        unpack(255, 1, b"\x90")
    with pytest.raises(MessageUnknown):
        unpack(4, 2, b"\x90")


def test_a_number_is_given_once_and_to_frozen_types_only() -> None:
    with pytest.raises(ValueError, match="taken"):
        message(kind=1)(Hello)
    with pytest.raises(TypeError, match="frozen"):
        message(kind=252)(Message)


@pytest.mark.parametrize(
    "error",
    [OffsetOutOfRange(7, 1, 5), StaleLeaderEpoch(1, 2), UnknownConfig("a", None), InvalidConfig("a", 1, "b")],
    ids=lambda error: type(error).__name__,
)
def test_an_error_travels_and_is_itself_again(error: RaylogError) -> None:
    failure = failure_of(error)
    arrived = remote_failed("broker 1", _over_the_wire(failure))
    assert type(arrived.error) is type(error)
    assert arrived.error is not None
    assert arrived.error.args == error.args
    assert "broker 1" in str(arrived)


@pytest.mark.parametrize(
    "error",
    [
        KeyError("x"),
        InvalidConfig("a", object(), "b"),
        InvalidConfig("a", "x" * 20_000, "b"),
        InvalidConfig("\ud800", 2**70, "b"),
        RaylogError("x" * 5_000),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_that_cannot_travel_is_still_told(error: Exception) -> None:
    arrived = remote_failed("broker 1", _over_the_wire(failure_of(error)))
    assert arrived.error is None
    assert arrived.name == type(error).__name__


_names = st.sampled_from(("OffsetOutOfRange", "RaylogError", "TypeVar", "RemoteFailed", "DiskFull", ""))


@given(_names, st.text(), _plain)
def test_whatever_a_failure_says_it_is_only_ever_an_error_of_ours(name: str, text: str, argument: object) -> None:
    arguments = argument if isinstance(argument, tuple) else (argument,)
    arrived = remote_failed("peer", Failure(name, text, arguments))
    assert str(arrived)
    assert arrived.error is None or type(arrived.error).__name__ == name


def _over_the_wire(failure: Failure) -> Failure:
    arrived = unpack(*pack(failure))
    assert isinstance(arrived, Failure)
    return arrived


@pytest.mark.parametrize("text", ["unix:/tmp/a.sock", "tcp:host:80", "tcp:[::1]:9", "tcp:127.0.0.1:0"])
def test_an_endpoint_reads_back(text: str) -> None:
    assert str(Endpoint.parse(text)) == text


_NO_ENDPOINTS = ["", "unix:", "tcp:host", "tcp:host:x", "tcp:host:70000", "http:a:1", "unix:" + "x" * 200]


@pytest.mark.parametrize("text", _NO_ENDPOINTS)
def test_what_is_no_endpoint_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig):
        Endpoint.parse(text)


def test_limits_that_cannot_be_are_refused() -> None:
    with pytest.raises(InvalidConfig):
        StreamLimits(max_handlers=0)
    with pytest.raises(InvalidConfig):
        StreamLimits(max_frame_bytes=2**31)
