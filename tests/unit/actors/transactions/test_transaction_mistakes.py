"""What programs do wrong with transactions: each is refused with an error that says what helps, and changes nothing.

Here at the coordinator; before it, at the producer, in
`test_producer_transactions.py`, and offsets of a stale member in `tests/streams/test_transaction_offsets.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.names import MAX_ID_BYTES
from raylog.actors.protocol.transaction_messages import (
    MAX_TIMEOUT_MS,
    AbortTransaction,
    AddGroup,
    AddPartition,
    DescribeTransaction,
    EndTransaction,
    InitProducer,
)
from raylog.errors import (
    InvalidTransactionalId,
    InvalidTransactionState,
    InvalidTransactionTimeout,
    ProducerError,
    ProducerFenced,
    UnknownTransactionalId,
)
from tests.simulator.world.world import World
from tests.unit.actors.transactions.test_transaction_core import TOPIC, Coordinator, add, init


@pytest.fixture
def coordinator() -> Iterator[Coordinator]:
    with World(4) as world:
        yield Coordinator(world)


Ask = Callable[[int], Message]  # by the producer id that "mover" has, at epoch 1, after one that it committed at 0

MISTAKES: dict[str, tuple[Ask, type[ProducerError]]] = {
    "an empty id": (lambda _: init(""), InvalidTransactionalId),
    "an oversized id": (lambda _: init("é" * (MAX_ID_BYTES // 2 + 1)), InvalidTransactionalId),
    "an id with what separates members": (lambda _: init("a\x1fb"), InvalidTransactionalId),
    "an id with a control character": (lambda _: init("a\n"), InvalidTransactionalId),
    "an end of what cannot be": (lambda pid: EndTransaction("a\x1fb", pid, 0, True), UnknownTransactionalId),
    "a time-out over the maximum": (lambda _: init("other", MAX_TIMEOUT_MS + 1), InvalidTransactionTimeout),
    "no time-out": (lambda _: init("other", 0), InvalidTransactionTimeout),
    "the other outcome": (lambda pid: EndTransaction("mover", pid, 0, False), InvalidTransactionState),
    "a fenced producer's init": (lambda pid: InitProducer("mover", 1000, pid, 7), ProducerFenced),
    "a fenced producer's partition": (lambda pid: add(pid, 0), ProducerFenced),
    "a fenced producer's group": (lambda pid: AddGroup("mover", pid, 0, "g"), ProducerFenced),
    "a fenced producer's end": (lambda pid: EndTransaction("mover", pid, 7, True), ProducerFenced),
    "an id that nobody has": (lambda pid: AddPartition("who", pid, 0, "t", TOPIC, 0), UnknownTransactionalId),
    "an end of what nobody has": (lambda pid: EndTransaction("who", pid, 0, True), UnknownTransactionalId),
    "a look at what nobody has": (lambda _: DescribeTransaction("who"), UnknownTransactionalId),
    "an operator's abort of what nobody has": (lambda pid: AbortTransaction("who", pid, 0), UnknownTransactionalId),
    "an operator's abort of what is over": (lambda pid: AbortTransaction("mover", pid, 0), InvalidTransactionState),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_it_is_refused_for_good_and_changes_nothing(coordinator: Coordinator, name: str) -> None:
    ask, expected = MISTAKES[name]
    held = coordinator.ask(init())
    coordinator.ask(AddGroup("mover", held.producer_id, 0, "g"))
    coordinator.ask(EndTransaction("mover", held.producer_id, 0, True))
    coordinator.one.world.run_for(0.1)
    before = list(coordinator.log.entries)
    with pytest.raises(expected) as raised:
        coordinator.ask(ask(held.producer_id))
    assert raised.value.fatal
    assert not raised.value.retriable
    assert not raised.value.abortable
    assert coordinator.log.entries == before
    assert coordinator.ask(EndTransaction("mover", held.producer_id, 0, True)).epoch == 1, "the same end is answered"
