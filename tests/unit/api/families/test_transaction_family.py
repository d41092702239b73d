"""A family's driver and its members as programs call them, before a cluster in memory."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any, cast

import pytest

from raylog.actors.kernel.stream_interface import Response
from raylog.actors.link.rules.topic_cache import PartitionLeader
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.replication_messages import AppendTransactional
from raylog.actors.protocol.transaction_family_messages import (
    EndFamily,
    FamilyEnded,
    FamilyInitialised,
    FamilyJoined,
    InitFamily,
    JoinFamily,
    KeepFamily,
)
from raylog.api.families import transaction_family
from raylog.api.families.family_member import FamilyMember
from raylog.api.families.family_requests import FamilyRequests
from raylog.api.families.transaction_family import TransactionFamily
from raylog.errors import (
    CoordinatorNotReady,
    FamilyFenced,
    InvalidTransactionState,
    NotEnoughReplicas,
    ProducerClosed,
    ProducerFenced,
    RaylogError,
    TransactionAborted,
    TransactionPending,
)
from tests.simulator.world.world import World
from tests.unit.actors.transaction_stand_ins import OneProcess
from tests.unit.api.producer_cluster import TOPIC, FakeLink, fake_cluster

NAME = "counts"


class _Coordinator:
    """Answers in place of the link; `errors` are raised first, each once."""

    def __init__(self, link: FakeLink) -> None:
        self.link = link
        self.asked: list[Message] = []
        self.errors: list[RaylogError] = []
        self.last_batch = 3
        self.takes = True
        self.under: list[str] = []  # the transactional ids of what was appended
        self._append = link.ask
        self._members = 0
        link.ask = self.ask  # type: ignore[method-assign]
        link.find_coordinator = self.find  # type: ignore[attr-defined]

    async def find(self, _topic: str, _hashed: int, _timeout: float) -> PartitionLeader:
        return self.link.view.partitions[0]

    async def ask(
        self, leader: PartitionLeader, message: Message, payload: bytes = b"", *, expect: type[Any], timeout: float
    ) -> Response:
        if isinstance(message, AppendTransactional):
            self.under.append(message.transactional_id)
            return await self._append(leader, message, payload, expect=expect, timeout=timeout)  # type: ignore[arg-type]
        self.asked.append(message)
        if self.errors:
            raise self.errors.pop(0)
        return Response(self._answer(message))

    def _answer(self, message: Message) -> Message:
        if isinstance(message, InitFamily):
            return FamilyInitialised(9, self.last_batch)
        if isinstance(message, JoinFamily):
            self._members += 1
            return FamilyJoined(f"{NAME}\x1f{self._members}", 100 + self._members, 4)
        if isinstance(message, EndFamily):
            if self.takes:
                self.last_batch = max(self.last_batch, message.batch)
            return FamilyEnded(self.last_batch)
        assert isinstance(message, KeepFamily)
        return message

    def of(self, kind: type[Message]) -> list[Message]:
        return [each for each in self.asked if isinstance(each, kind)]


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Coordinator]:
    with fake_cluster(monkeypatch, 2) as link:
        monkeypatch.setattr(transaction_family, "link_address", lambda _cluster, _timeout: None)
        yield _Coordinator(link)


def test_a_member_writes_under_its_own_identity_and_its_driver_ends_it(coordinator: _Coordinator) -> None:
    with TransactionFamily(NAME) as family:
        assert family.last_batch == 3
        ticket = pickle.loads(pickle.dumps(family.ticket))
        with FamilyMember(ticket) as first, FamilyMember(ticket) as second:
            first.send_many(TOPIC, [b"a", b"b"], partition=0)
            second.send(TOPIC, b"c", b"key", partition=1)
            works = [pickle.loads(pickle.dumps(each.finish(5))) for each in (first, second)]
            with pytest.raises(InvalidTransactionState):
                first.send(TOPIC, b"late")
        family.commit(4, works)
        assert family.last_batch == 4
    headers = [batch.header for batches in coordinator.link.batches for batch in batches]
    assert sorted((each.producer_id, each.producer_epoch, each.base_sequence) for each in headers) == [
        (101, 4, 0),
        (102, 4, 0),
    ]
    assert coordinator.under == [f"{NAME}\x1f1", f"{NAME}\x1f2"]
    assert coordinator.of(EndFamily) == [EndFamily(NAME, 9, 4, ((1, 101, 4), (2, 102, 4)))]


def test_what_is_not_finished_asks_nobody_for_its_end(coordinator: _Coordinator) -> None:
    with TransactionFamily(NAME) as family:
        with FamilyMember(family.ticket) as member:
            member.send(TOPIC, b"a")
        with FamilyMember(family.ticket) as member, pytest.raises(InvalidTransactionState):
            member.commit_transaction()
        family.abort()
    assert [type(each) for each in coordinator.asked] == [InitFamily, JoinFamily, JoinFamily, EndFamily]
    with pytest.raises(ProducerClosed):
        family.abort()


def test_a_member_whose_record_fails_has_nothing_to_tell(coordinator: _Coordinator) -> None:
    with TransactionFamily(NAME) as family, FamilyMember(family.ticket) as member:
        coordinator.link.errors.append(ProducerFenced(101, 4, 5))
        member.send(TOPIC, b"a")
        with pytest.raises(TransactionAborted):
            member.finish(5)


def test_what_passes_is_tried_again_and_what_does_not_is_told(coordinator: _Coordinator) -> None:
    coordinator.errors.append(CoordinatorNotReady("__transaction_state", 0))
    with TransactionFamily(NAME) as family:
        holders = {each.holder for each in coordinator.of(InitFamily)}  # type: ignore[attr-defined]
        assert len(holders) == 1
        coordinator.errors.append(CoordinatorNotReady("__transaction_state", 0))
        coordinator.link.errors.append(NotEnoughReplicas(TOPIC, 0, 1, 2))
        with FamilyMember(family.ticket) as member:
            member.send(TOPIC, b"a")
            work = member.finish(5)
        coordinator.errors.append(CoordinatorNotReady("__transaction_state", 0))
        with pytest.raises(TransactionPending):
            family.commit(4, [work], timeout=0.01)
        family.commit(4, [work])
        coordinator.takes = False
        with pytest.raises(TransactionAborted):
            family.commit(5, [work])
        coordinator.errors.append(FamilyFenced(NAME, 9, 10))
        with pytest.raises(FamilyFenced):
            family.commit(5, [work])
        coordinator.errors.append(FamilyFenced(NAME, 9, 10))
        with pytest.raises(FamilyFenced):
            FamilyMember(family.ticket)


def test_its_coordinator_hears_of_a_driver_until_that_is_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_cluster(monkeypatch) as link, World(1) as world:
        coordinator = _Coordinator(link)
        one = OneProcess(world)
        requests = one.make(lambda: FamilyRequests(cast(Any, link), NAME, 1000, -1))
        one.do(requests.init(5.0))
        world.run_for(1.1)
        assert len(coordinator.of(KeepFamily)) == 5
        coordinator.errors += [CoordinatorNotReady("__transaction_state", 0)] * 2
        world.run_for(1.0)
        assert len(coordinator.of(KeepFamily)) >= 10
        coordinator.errors.append(FamilyFenced(NAME, 9, 10))
        world.run_for(0.3)
        asked = len(coordinator.asked)
        world.run_for(5.0)
        assert len(coordinator.asked) == asked
        one.do(requests.close())
