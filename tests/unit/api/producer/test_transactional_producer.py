"""Transactions as programs call them, before a cluster in memory that knows one transactional id."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from raylog.actors.kernel.stream_interface import Response
from raylog.actors.link.rules.topic_cache import PartitionLeader
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.replication_messages import AppendTransactional
from raylog.actors.protocol.transaction_messages import (
    EndTransaction,
    InitProducer,
    ProducerInitialised,
    TransactionEnded,
)
from raylog.api.connection.client_runtime import ClientRuntime, client_runtime
from raylog.api.producer.async_producer import AsyncProducer
from raylog.api.producer.buffer.record_future import RecordFuture
from raylog.api.producer.producer import Producer
from raylog.api.producer.rules.producer_batch import Writer
from raylog.api.producer.rules.producer_transaction import Phase, ProducerTransaction
from raylog.errors import (
    CoordinatorNotReady,
    InvalidConfig,
    InvalidTransactionalId,
    InvalidTransactionState,
    NotEnoughReplicas,
    ProducerError,
    ProducerFenced,
    RaylogError,
    RequestTimedOut,
    TransactionAborted,
    TransactionPending,
    TransactionTimedOut,
)
from raylog.storage.format.record_batch import read_header
from tests.unit.api.producer_cluster import TOPIC, FakeLink, fake_cluster

ID = "transfers"


class _Coordinator:
    """Answers in place of the link; `errors` are raised first, each once."""

    def __init__(self, link: FakeLink) -> None:
        self.link = link
        self.asked: list[Message] = []
        self.appends: list[tuple[int, int, AppendTransactional]] = []  # partition, first sequence
        self.errors: list[RaylogError] = []
        self._epoch = -1
        self._append = link.ask
        link.ask = self.ask  # type: ignore[method-assign]
        link.find_coordinator = self.find  # type: ignore[attr-defined]

    async def find(self, _topic: str, _hashed: int, _timeout: float) -> PartitionLeader:
        return self.link.view.partitions[0]

    async def ask(
        self, leader: PartitionLeader, message: Message, payload: bytes = b"", *, expect: type[Any], timeout: float
    ) -> Response:
        if isinstance(message, AppendTransactional):
            assert message.transactional_id == ID
            await asyncio.sleep(0)  # as it takes at least
            self.appends.append((leader.partition, read_header(payload).base_sequence, message))
            return await self._append(leader, message, payload, expect=expect, timeout=timeout)  # type: ignore[arg-type]
        self.asked.append(message)
        if self.errors:
            raise self.errors.pop(0)
        self._epoch += 1
        if isinstance(message, InitProducer):
            return Response(ProducerInitialised(7, self._epoch))
        assert isinstance(message, EndTransaction)
        return Response(TransactionEnded(7, self._epoch))

    def ends(self) -> list[tuple[int, bool]]:
        return [(each.epoch, each.commits) for each in self.asked if isinstance(each, EndTransaction)]


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Coordinator]:
    with fake_cluster(monkeypatch, 2) as link:
        yield _Coordinator(link)


@pytest.fixture
def producer(coordinator: _Coordinator) -> Iterator[Producer]:
    with Producer(transactional_id=ID, max_block_ms=5000) as made:
        made.init_transactions()
        yield made


def test_each_transaction_has_an_epoch_and_begins_its_sequences_anew(
    coordinator: _Coordinator, producer: Producer
) -> None:
    for number in range(2):
        with producer.transaction():
            for _ in range(3):
                producer.send(TOPIC, b"%d" % number, b"key", partition=0)
            producer.send_many(TOPIC, [b"many"] * 4, partition=1)
    assert coordinator.ends() == [(0, True), (1, True)]
    for batches in coordinator.link.batches:
        headers = [batch.header for batch in batches]
        assert all(header.is_transactional and header.producer_id == 7 for header in headers)
        for epoch in (0, 1):
            firsts = [header.base_sequence for header in headers if header.producer_epoch == epoch]
            assert firsts[0] == 0
            assert firsts == sorted(firsts)


def test_leaders_hear_where_else_a_transaction_begins(coordinator: _Coordinator) -> None:
    topic_id = coordinator.link.view.topic_id
    with Producer(transactional_id=ID, max_block_ms=5000, linger_ms=60_000) as producer:
        producer.init_transactions()
        with producer.transaction():
            for partition in (0, 1):
                producer.send(TOPIC, b"at once", partition=partition)
        together = {partition: message.together for partition, _, message in coordinator.appends}
        assert together == {0: ((TOPIC, topic_id, 1),), 1: ((TOPIC, topic_id, 0),)}
        with producer.transaction():
            for partition in (1, 0, 0):
                producer.send(TOPIC, b"one after the other", partition=partition)
                producer.flush(5)
        assert [(sequence, message.together) for _, sequence, message in coordinator.appends[2:]] == [
            (0, ()), (0, ()), (1, ())
        ]  # fmt: skip


def test_a_block_that_raises_is_aborted_and_what_it_held_fails(coordinator: _Coordinator, producer: Producer) -> None:
    coordinator.link.hold()
    held: list[RecordFuture] = []

    def fail() -> None:
        with producer.transaction():
            held.append(producer.send(TOPIC, b"value", partition=0))
            held.append(producer.send(TOPIC, b"other", partition=1))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert all(isinstance(each.exception(5), TransactionAborted) for each in held)
    asyncio.run_coroutine_threadsafe(coordinator.link.release(), client_runtime().loop).result(5)
    with producer.transaction():
        sent = producer.send(TOPIC, b"next", partition=0)
    assert sent.result(0)
    last = coordinator.link.batches[0][-1].header
    ends = coordinator.ends()
    assert (last.base_sequence, last.producer_epoch) == (0, ends[-1][0])
    assert ends[-1][1]


def test_where_nothing_was_sent_nobody_is_asked(coordinator: _Coordinator, producer: Producer) -> None:
    with producer.transaction():
        pass
    producer.begin_transaction()
    producer.abort_transaction()
    assert coordinator.ends() == []


def test_out_of_order_calls_are_refused_and_change_nothing(coordinator: _Coordinator, producer: Producer) -> None:
    calls: list[Callable[[], object]] = [
        producer.init_transactions,
        producer.commit_transaction,
        producer.abort_transaction,
        lambda: producer.send(TOPIC, b"v"),
        lambda: producer.send_many(TOPIC, [b"v"]),
    ]
    for call in calls:
        with pytest.raises(InvalidTransactionState) as raised:
            call()
        assert raised.value.fatal
    with producer.transaction():
        producer.send(TOPIC, b"value", b"key")
        producer.send(TOPIC, b"value", b"key")
        with pytest.raises(InvalidTransactionState):
            producer.begin_transaction()
    with pytest.raises(InvalidTransactionState):
        producer.send(TOPIC, b"value", b"key")  # of which the fast path knew where it goes
    with pytest.raises(InvalidTransactionState):
        producer.commit_transaction()
    assert coordinator.ends() == [(0, True)]


def test_a_producer_without_transactions_has_none(coordinator: _Coordinator) -> None:
    with Producer() as plain, pytest.raises(InvalidTransactionState):
        plain.init_transactions()
    with pytest.raises(InvalidConfig):
        Producer(transactional_id=ID, acks=1)
    with pytest.raises(InvalidConfig):
        Producer(transactional_id=ID, enable_idempotence=False)
    for name in ("", "é" * 600, "a\x1fb", "two\nlines"):
        with pytest.raises(InvalidTransactionalId) as raised:
            Producer(transactional_id=name)
        assert raised.value.fatal
    for timeout_ms in (0, 15 * 60 * 1000 + 1):
        with pytest.raises(InvalidConfig):
            Producer(transactional_id=ID, transaction_timeout_ms=timeout_ms)


def test_a_record_that_fails_makes_its_transaction_abortable(coordinator: _Coordinator, producer: Producer) -> None:
    coordinator.link.errors.append(ProducerFenced(7, 0, 1))  # it may have timed out: its coordinator knows
    producer.begin_transaction()
    with pytest.raises(ProducerFenced):
        producer.send(TOPIC, b"value", partition=0).result(5)
    with pytest.raises(TransactionAborted):
        producer.send(TOPIC, b"more")
    with pytest.raises(TransactionAborted) as raised:
        producer.commit_transaction()
    assert raised.value.abortable
    producer.abort_transaction()
    with producer.transaction():
        producer.send(TOPIC, b"value")
    assert coordinator.ends() == [(0, False), (1, True)]


def test_what_passes_is_tried_again(coordinator: _Coordinator, producer: Producer) -> None:
    coordinator.errors.append(CoordinatorNotReady("__transaction_state", 0))
    coordinator.link.errors.append(NotEnoughReplicas(TOPIC, 0, 1, 2))
    with producer.transaction():
        sent = producer.send(TOPIC, b"value", partition=0)
    assert sent.result(0).offset == 0
    assert coordinator.ends() == [(0, True), (0, True)]


def test_a_commit_without_an_answer_can_only_be_asked_again(coordinator: _Coordinator, producer: Producer) -> None:
    producer.begin_transaction()
    producer.send(TOPIC, b"value")
    producer.flush(5)
    coordinator.errors += [CoordinatorNotReady("__transaction_state", 0)]
    with pytest.raises(TransactionPending) as raised:
        producer.commit_transaction(0.01)
    assert raised.value.retriable
    with pytest.raises(InvalidTransactionState):
        producer.abort_transaction()
    producer.commit_transaction()
    assert {commits for _, commits in coordinator.ends()} == {True}


def test_a_transaction_that_its_coordinator_has_aborted(coordinator: _Coordinator, producer: Producer) -> None:
    coordinator.errors.append(TransactionTimedOut(ID, 60_000))
    with pytest.raises(TransactionTimedOut) as raised, producer.transaction():
        producer.send(TOPIC, b"value")
    assert raised.value.abortable
    assert coordinator.ends() == [(0, True), (0, False)]
    with producer.transaction():
        producer.send(TOPIC, b"value")


def test_a_fenced_producer_is_at_its_end(coordinator: _Coordinator, producer: Producer) -> None:
    coordinator.errors.append(ProducerFenced(7, 0, 1))
    with pytest.raises(ProducerFenced) as raised, producer.transaction():
        producer.send(TOPIC, b"value")
    assert raised.value.fatal
    for call in (producer.begin_transaction, producer.abort_transaction, lambda: producer.send(TOPIC, b"value")):
        with pytest.raises(ProducerFenced):
            call()


def test_closing_aborts_what_is_open(coordinator: _Coordinator) -> None:
    with Producer(transactional_id=ID) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(TOPIC, b"value").result(5)
    assert coordinator.ends() == [(0, False)]


def test_coroutines_have_the_same(coordinator: _Coordinator) -> None:
    async def main() -> None:
        async with AsyncProducer(transactional_id=ID) as producer:
            await producer.init_transactions()
            async with producer.transaction():
                await producer.send(TOPIC, b"value")
            with pytest.raises(KeyError):
                await fail(producer)

    async def fail(producer: AsyncProducer) -> None:
        async with producer.transaction():
            await producer.send_and_wait(TOPIC, b"value")
            raise KeyError

    asyncio.run(main())
    assert coordinator.ends() == [(0, True), (1, False)]


@pytest.mark.parametrize("phase", Phase)
def test_in_every_phase_a_refusal_says_what_helps(phase: Phase) -> None:
    transaction = ProducerTransaction(ID)
    transaction.writer = Writer(7, 0, True)
    transaction.phase = phase
    error = transaction.refusal()
    assert isinstance(error, ProducerError)
    assert error.abortable or error.fatal


def test_a_process_that_came_to_nothing_leaves_the_transaction_pending(
    coordinator: _Coordinator, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client loop had no turn. Programs catch TransactionPending, and make the same call again."""

    def no_turn(_runtime: ClientRuntime, work: Coroutine[Any, Any, Any], _timeout: float | None = None) -> None:
        work.close()
        raise RequestTimedOut("This process's client loop", 5000)

    producer.begin_transaction()
    producer.send(TOPIC, b"value")
    with monkeypatch.context() as patch:
        patch.setattr(ClientRuntime, "run", no_turn)
        with pytest.raises(TransactionPending, match=r"commit_transaction of 'transfers'.*client loop"):
            producer.commit_transaction()
    producer.commit_transaction()
    assert coordinator.ends() == [(0, True)]
