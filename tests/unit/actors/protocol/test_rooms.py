"""What a client may ask (rule 33): the table beside the message kinds, and the place where it is looked up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from raylog.actors.kernel.stream_interface import Answer, Request, Response, Stream
from raylog.actors.kernel.stream_requests import RequestsHeld
from raylog.actors.protocol import (  # noqa: F401 (each registers its kinds)
    control_messages,
    coordinator_messages,
    housekeeping_messages,
    metadata_records,
    replication_messages,
    secret_messages,
    transaction_family_messages,
    transaction_messages,
)
from raylog.actors.protocol.endpoint import StreamLimits
from raylog.actors.protocol.messages import Done, Message, Ping, all_messages, is_for_clients
from raylog.actors.protocol.replication_messages import Append, Pull, WriteMarker
from raylog.errors import InternalOnly
from raylog.groups.records import classic_messages, messages, records  # noqa: F401

_FOR_CLIENTS = {
    "Ping",
    # partitions
    "Append", "AppendTransactional", "Fetch", "FindEpochEnd", "ListOffset", "ListOpenTransactions", "SuspectBatch",
    "ListOffsets", "WatchRecords",
    # brokers
    "AllocateProducerIds", "EnsureCoordinators", "GetMetadata",
    # coordinators of transactions
    "AbortTransaction", "AddGroup", "DescribeTransaction", "EndTransaction", "InitProducer", "ListTransactions",
    "EndFamily", "InitFamily", "JoinFamily", "KeepFamily",
    # coordinators of groups
    "AlterOffsets", "CommitOffsets", "DeleteGroup", "DeleteOffsets", "DescribeGroup", "FetchOffsets", "GroupHeartbeat",
    "ListGroups", "ListStaged", "RemoveMembers", "StageOffsets",
    # the same, of gateways for Kafka clients
    "ClassicHeartbeat", "DescribeClassic", "JoinClassic", "LeaveClassic", "ListBothKinds", "SyncClassic",
}  # fmt: skip


def test_these_kinds_and_no_others_are_open_to_clients() -> None:
    """A new kind is closed. Whoever opens one adds it here, and asks what the worst client could do with it."""
    raylogs = {each for each in all_messages() if each.__module__.startswith("raylog.")}
    assert len(raylogs) > 100
    assert {each.__name__ for each in raylogs if is_for_clients(each)} == _FOR_CLIENTS


class Side:
    """The answering half of a stream."""

    def __init__(self, *, is_internal: bool) -> None:
        self.answers: list[tuple[int, Answer, BaseException | None]] = []
        self.handled: list[Message] = []
        self.held = RequestsHeld(self._handle, StreamLimits(), self._answer, lambda _: None)
        self.held.is_internal = is_internal
        self.held.peer = "client at here"

    def _handle(self, request: Request) -> Answer:
        self.handled.append(request.message)
        return Response(Done())

    def _answer(self, correlation_id: int, answer: Answer, failure: BaseException | None) -> None:
        self.answers.append((correlation_id, answer, failure))

    def take(self, message: Message, correlation_id: int = 1) -> None:
        stream = cast(Stream, None)
        self.held.take(Request(message, bytearray(), b"", 0, stream, correlation_id, 100))


_PULL = Pull(2**31 - 1, 1, 1, 1, 0, -1, 0, 1)


def test_what_only_the_cluster_may_ask_gets_no_further_on_a_clients_stream() -> None:
    side = Side(is_internal=False)
    for message in (_PULL, WriteMarker(1, 1, 1, True, 1)):
        side.take(message)
    assert not side.handled
    assert [type(failure) for _, _, failure in side.answers] == [InternalOnly, InternalOnly]
    assert "Pull is not for clients" in str(side.answers[0][2])
    assert side.held.bytes_held == 0
    side.take(Append(0, 1, 1))
    side.take(Ping())
    assert side.handled == [Append(0, 1, 1)]
    assert [failure for _, _, failure in side.answers[2:]] == [None, None]


def test_the_same_is_handled_on_an_internal_stream() -> None:
    side = Side(is_internal=True)
    side.take(_PULL)
    assert side.handled == [_PULL]


def test_what_is_said_and_not_asked_is_not_even_answered() -> None:
    side = Side(is_internal=False)
    side.take(_PULL, correlation_id=0)
    assert not side.handled
    assert not side.answers


def test_a_stream_that_has_proved_nothing_yet_is_no_internal_one() -> None:
    assert not RequestsHeld(cast(Callable[[Request], Any], None), StreamLimits(), print, print).is_internal


def test_the_refusal_is_final() -> None:
    error = InternalOnly("Pull", "client at here")
    assert not error.retriable
    with pytest.raises(InternalOnly, match="Nothing was done"):
        raise error
