"""Requests of administrators and their answers cross a stream unchanged, and nothing else comes of what arrives."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.actors.cluster.admin_requests import (
    AdminRequest,
    AlterTopicSettings,
    CreateTopic,
    DeleteTopic,
    DescribeCluster,
    DescribeCopies,
    DescribeReplicas,
    DescribeTopic,
    ElectLeaders,
    ListSetAsideLogs,
    ListTopics,
    Reassign,
)
from raylog.actors.cluster.admin_wire import REQUESTS, answer_of, answer_type, plain_answer, plain_request, request_of
from raylog.actors.cluster.election.leader_election import PREFERRED
from raylog.actors.controller.admin_calls import HANDLERS, carry_out
from raylog.actors.protocol.admin_messages import Administer, Administered
from raylog.actors.protocol.messages import pack, unpack
from raylog.errors import ElectionNotNeeded, FrameInvalid, PolicyViolation, RaylogError, UnknownTopic
from tests.simulator.world.world import World
from tests.unit.actors.control_cluster import CALM, ControlCluster

_SCALARS: Final[dict[Any, st.SearchStrategy[Any]]] = {
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(allow_nan=False),
    bool: st.booleans(),
    str: st.text(st.characters(codec="utf-8"), max_size=10),
    bytes: st.binary(max_size=16),
    type(None): st.none(),
}


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a declared type."""
    if kind in _SCALARS:
        return _SCALARS[kind]
    if kind is RaylogError:
        return st.builds(ElectionNotNeeded, _SCALARS[str], _SCALARS[int], _SCALARS[int]) | st.builds(
            UnknownTopic, _SCALARS[str]
        )
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return st.one_of([values(each) for each in arguments])
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return st.builds(typing.cast(Any, kind), *(values(hints[each.name]) for each in dataclasses.fields(kind)))
    if isinstance(kind, type) and issubclass(kind, tuple):
        return st.builds(kind, *map(values, typing.get_type_hints(kind).values()))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return st.dictionaries(*map(values, arguments), max_size=3)
    if len(arguments) == 1 or arguments[-1] is Ellipsis:
        return st.lists(values(arguments[0]), max_size=3).map(tuple)
    return st.tuples(*map(values, arguments))


def over_the_stream(request: AdminRequest[Any]) -> AdminRequest[Any]:
    kind, version, data = pack(Administer(request.call, plain_request(request), 5, 7))
    arrived = unpack(kind, version, data)
    assert isinstance(arrived, Administer)
    return request_of(arrived.call, arrived.arguments)


def answered(request: AdminRequest[Any], answer: object) -> Any:
    arrived = unpack(*pack(Administered(plain_answer(request, answer), 7)))
    assert isinstance(arrived, Administered)
    return answer_of(request, arrived.answer)


def test_each_request_that_is_carried_out_can_be_asked_over_a_stream() -> None:
    assert set(REQUESTS.values()) == HANDLERS.keys()


@pytest.mark.parametrize("kind", REQUESTS.values(), ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_each_crosses_a_stream_with_its_answer(kind: type[AdminRequest[Any]], data: st.DataObject) -> None:
    request = data.draw(values(kind))
    assert over_the_stream(request) == request
    told = data.draw(st.none() if answer_type(kind) is None else values(answer_type(kind)))
    found = answered(request, told)
    if isinstance(told, dict):
        assert {key: repr(each) for key, each in found.items()} == {key: repr(each) for key, each in told.items()}
    else:
        assert found == told


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("stop", ()),
        ("delete_topic", ()),
        ("delete_topic", ("t", b"", 1)),
        ("delete_topic", (5, b"")),
        ("list_topics", (1,)),
        ("create_topic", ("t", "1", None, None, (), b"", False)),
        ("create_topic", ("t", 1, None, ((1, "2"),), (), b"", False)),
        ("create_topic", ("t", 1, None, None, (("retention.ms",),), b"", False)),
        ("create_topic", ("t", 1, None, None, (("retention.ms", None),), b"", False)),
        ("create_topic", ("t", 1, None, 7, (), b"", False)),
        ("reassign", (((("t", 0, 1), (1,)),), None)),
    ],
)
def test_what_is_no_request_is_refused(call: str, arguments: tuple[object, ...]) -> None:
    with pytest.raises(FrameInvalid):
        request_of(call, arguments)


def test_what_is_no_answer_is_refused() -> None:
    wrong: list[tuple[AdminRequest[Any], object]] = [
        (DescribeTopic("t"), ("t",)), (DeleteTopic("t"), 1), (ListTopics(True), "t"),
    ]  # fmt: skip
    for request, answer in wrong:
        with pytest.raises(FrameInvalid):
            answer_of(request, answer)


def test_an_error_is_itself_again() -> None:
    found = answered(ElectLeaders(PREFERRED, None), {("t", 0): PolicyViolation("t", "compact")})
    assert isinstance(found["t", 0], PolicyViolation)


@pytest.fixture
def cluster() -> Iterator[ControlCluster]:
    with World(7, settings=CALM) as world:
        cluster = ControlCluster(world)
        cluster.form()
        yield cluster


def test_the_controllers_own_answers_cross_unchanged(cluster: ControlCluster) -> None:
    def ask(request: AdminRequest[Any]) -> None:
        assert over_the_stream(request) == request
        answer = cluster.ask(carry_out(cluster.admin, request, 30.0))
        assert answered(request, answer) == answer

    ask(CreateTopic("t", None, None, ((1, 2, 3),), {"retention.ms": 5}, b"i" * 16))
    ask(AlterTopicSettings("t", {"retention.ms": None}))
    ask(Reassign({("t", 0): (1, 2)}, 1000))
    for request in (DescribeTopic("t"), DescribeReplicas("t"), DescribeCluster(), DescribeCopies("t", 0)):
        ask(request)
    ask(ListSetAsideLogs())
    ask(DeleteTopic("t", b"i" * 16))
