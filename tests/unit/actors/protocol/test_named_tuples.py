"""Named tuples travel as plain ones: the bytes are those of their fields in order, and such bytes come back named."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import msgpack
import pytest

from raylog.actors.protocol.control_messages import (
    Assign,
    BrokerHeartbeat,
    BrokerMetadata,
    CoordinatorMetadata,
    Metadata,
    PartitionMetadata,
    RegisterBroker,
    ReplicaAddress,
    ReplicaLoss,
    ReplicaMarks,
    ReplicaReport,
    SetAside,
    SetAsideListed,
    TopicMetadata,
)
from raylog.actors.protocol.messages import Message, message, pack, unpack
from raylog.errors import FrameInvalid

_ID = b"i" * 16
_REPORT = (_ID, 3, 7, 2, 90, "blank", ("unix:/r/1", "tcp:h:1"), 1234, 5)
_MARKS = (_ID, 3, 7, "leader", 1, 80, 90, 4096, True, "own", 2)
_LOSS = (_ID, 3, 7, "killed", True)
_ADDRESS = (2, 7, ("unix:/r/1",))
_ASIDE = ("t-0.aside", "t", 0, _ID, 99, "unclean", 2, 1, 90, 4096, "")
_PARTITIONS = ((0, 1, 5, (1, 2), (1,), ("unix:/r/1",), "node-1"), (1, -1, 6, (1, 2), (), (), ""))
_TOPIC = ("t", _ID, _PARTITIONS, "kafka", 1048588)
_BROKER = (1, "node-1", "rack", ("tcp:h:1",))
_COORDINATOR = ("__consumer_offsets", 4, 9, ("tcp:h:1",), "node-1")


def _named_topic() -> TopicMetadata:
    name, topic_id, partitions, batch_format, most = _TOPIC
    named = tuple(PartitionMetadata(*each) for each in partitions)
    return TopicMetadata(name, topic_id, named, batch_format, most)


MESSAGES: list[tuple[Message, tuple[object, ...]]] = [
    (
        BrokerHeartbeat(1, 2, 3, 4, (ReplicaReport(*_REPORT),), (ReplicaLoss(*_LOSS),), (ReplicaMarks(*_MARKS),)),
        (1, 2, 3, 4, (_REPORT,), (_LOSS,), (_MARKS,), False, (), 0, False),
    ),
    (
        RegisterBroker("c", 1, "run", "n", "h", "r", (), "/d", "id", "boot", (ReplicaReport(*_REPORT),)),
        ("c", 1, "run", "n", "h", "r", (), "/d", "id", "boot", (_REPORT,), 0),
    ),
    (
        Assign("t", _ID, 0, 1, 2, 3, 4, ((2, 7),), (ReplicaAddress(*_ADDRESS),), 1, (("a", "b"),), 5),
        ("t", _ID, 0, 1, 2, 3, 4, ((2, 7),), (_ADDRESS,), 1, (("a", "b"),), 5, -1, -1),
    ),
    (SetAsideListed((SetAside(*_ASIDE),)), ((_ASIDE,),)),
    (
        Metadata(3, "c", (_named_topic(),), (BrokerMetadata(*_BROKER),), (CoordinatorMetadata(*_COORDINATOR),)),
        (3, "c", (_TOPIC,), (_BROKER,), (_COORDINATOR,), -1, ()),
    ),
]


@pytest.mark.parametrize(("named", "plain"), MESSAGES, ids=lambda each: type(each).__name__)
def test_the_bytes_are_those_of_plain_tuples_and_come_back_named(named: Message, plain: tuple[object, ...]) -> None:
    old_bytes = msgpack.packb(plain, use_bin_type=True)
    kind, version, data = pack(named)
    assert data == old_bytes
    told = unpack(kind, version, old_bytes)
    assert told == named
    for field in fields(named):  # type: ignore[arg-type]  # messages are dataclasses
        value = getattr(told, field.name)
        assert list(_types(value)) == list(_types(getattr(named, field.name)))


def _types(value: object) -> Iterator[type]:
    yield type(value)
    if isinstance(value, tuple):
        for each in value:
            yield from _types(each)


class _Place(NamedTuple):
    name: str
    number: int


class _Way(NamedTuple):
    begin: _Place
    rest: tuple[_Place, ...]


@message(kind=244)
@dataclass(frozen=True, slots=True)
class _Journey(Message):
    way: _Way
    home: _Place | None
    pair: tuple[int, _Place]


def test_named_tuples_in_each_other_come_back() -> None:
    here, there = _Place("here", 1), _Place("there", 2)
    sent = _Journey(_Way(here, (there, here)), there, (5, here))
    told = unpack(*pack(sent))
    assert isinstance(told, _Journey)
    assert told == sent
    assert (told.way.rest[0].name, told.home, told.pair[1].number) == ("there", there, 1)
    assert unpack(*pack(_Journey(sent.way, None, sent.pair))) == _Journey(sent.way, None, sent.pair)


@pytest.mark.parametrize(
    "bad", [(("here",), ()), (("here", 1, 2), ()), ((1, "here"), ()), (("here", 1), (("there", None),)), "way", None]
)
def test_a_tuple_of_other_fields_is_refused(bad: object) -> None:
    with pytest.raises(FrameInvalid, match="Field 0 of message kind 244"):
        unpack(244, 1, msgpack.packb((bad, None, (5, ("here", 1)))))


def test_a_choice_between_named_tuples_is_no_field() -> None:
    @dataclass(frozen=True, slots=True)
    class Unclear(Message):
        what: Any

    Unclear.__annotations__["what"] = _Place | _Way
    with pytest.raises(TypeError, match="cannot have a field"):
        message(kind=249)(Unclear)
