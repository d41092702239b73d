"""What a transaction coordinator makes of its log's delays and ends, and of a link that gives it nothing."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from raylog.actors.protocol.coordinator_records import Entry, stored
from raylog.actors.protocol.messages import Message, unpack
from raylog.actors.protocol.transaction_messages import (
    AddPartition,
    DescribeTransaction,
    EndTransaction,
    InitProducer,
    ListTransactions,
    TransactionRecord,
)
from raylog.actors.transactions.coordinator import TransactionCoordinator
from raylog.actors.transactions.rules.transaction import Phase
from raylog.errors import (
    ClusterUnreachable,
    CoordinatorStopped,
    MessageUnknown,
    ProducerFenced,
    TransactionTooLarge,
    UnknownTransactionalId,
)
from tests.simulator.world.world import World
from tests.unit.actors.transaction_stand_ins import HandLink, HandLog, OneProcess

WEEK = 7 * 24 * 3600.0
TOPIC = b"t" * 16


class Coordinator:
    def __init__(self, world: World, replayed: Sequence[Entry] = ()) -> None:
        self.one = OneProcess(world)
        self.log = self.one.make(HandLog)
        self.log.replayed = list(replayed)
        self.link = HandLink()
        spec = SimpleNamespace(term=0, partition=2)
        self.core = self.one.make(
            lambda: TransactionCoordinator(self.one.env, cast(Any, spec), cast(Any, self.log), cast(Any, self.link))
        )
        self.one.do(self.core.start())

    def begin(self, message: Message) -> Any:
        return self.one.begin(self._answer(message))

    def ask(self, message: Message) -> Any:
        return self.one.do(self._answer(message))

    def _answer(self, message: Message) -> Coroutine[Any, Any, Any]:
        async def answer() -> Any:
            answer = await self.core.handle(cast(Any, SimpleNamespace(message=message)))
            return None if answer is None else answer.message

        return answer()

    def records(self) -> list[TransactionRecord | None]:
        found = []
        for _, value in self.log.entries:
            record = None if value is None else unpack(value[0], value[1], value[2:])
            assert record is None or isinstance(record, TransactionRecord)
            found.append(record)
        return found


@pytest.fixture
def coordinator() -> Iterator[Coordinator]:
    with World(3) as world:
        yield Coordinator(world)


def init(name: str = "mover", timeout_ms: int = 1000) -> InitProducer:
    return InitProducer(name, timeout_ms, -1, -1)


def add(producer_id: int, epoch: int = 0, name: str = "mover") -> AddPartition:
    return AddPartition(name, producer_id, epoch, "t", TOPIC, 0)


@pytest.mark.parametrize(
    "stray",
    [
        (b"user-1", b'{"clicks": 7}'),
        (b"user-1", None),
        (b"test", b'{"clicks": 7}'),
        (b"test", b""),
        (b"from", b"tea"),
        (b"t\xff", None),
        (b"f\xff", None),
        (b"test", stored(ListTransactions())),
    ],
)
def test_what_no_coordinator_wrote_is_left_out(coordinator: Coordinator, stray: Entry) -> None:
    held = coordinator.ask(init())
    with World(4) as world:
        second = Coordinator(world, [stray, *coordinator.log.entries, stray])
        assert second.log.strays == [0, 2]
        assert [each[:2] for each in second.ask(ListTransactions()).transactions] == [("mover", held.producer_id)]


def test_it_does_not_serve_without_what_a_later_version_wrote() -> None:
    with World(4) as world, pytest.raises(MessageUnknown):
        Coordinator(world, [(b"tmover", b"\x82\x02\x91\x07")])


def test_nobody_is_refused_because_of_what_may_never_be_committed(coordinator: Coordinator) -> None:
    held = coordinator.ask(init())
    coordinator.log.commits_at_once = False
    taken_over = coordinator.begin(init())
    fenced = coordinator.begin(add(held.producer_id))
    seen = coordinator.begin(DescribeTransaction("mover"))
    listed = coordinator.begin(ListTransactions())
    coordinator.one.world.run_for(1.0)
    assert not any(each.done() for each in (taken_over, fenced, seen, listed))
    coordinator.one.make(coordinator.log.lose)
    coordinator.one.until(lambda: all(each.done() for each in (taken_over, fenced, seen, listed)))
    assert all(isinstance(each.exception(), CoordinatorStopped) for each in (taken_over, fenced, seen, listed))


def test_a_refusal_comes_once_what_it_rests_on_is_committed(coordinator: Coordinator) -> None:
    held = coordinator.ask(init())
    coordinator.log.commits_at_once = False
    coordinator.begin(init())
    fenced = coordinator.begin(add(held.producer_id))
    coordinator.one.world.run_for(0.5)
    coordinator.one.make(coordinator.log.commit)
    coordinator.one.until(fenced.done)
    assert isinstance(fenced.exception(), ProducerFenced)


def test_without_anybody_to_give_producer_ids_transactions_begin_and_end(coordinator: Coordinator) -> None:
    held = coordinator.ask(init())
    coordinator.link.no_ids = ClusterUnreachable("b", 10, "silence")
    coordinator.link.view, coordinator.link.deleted = None, {TOPIC}
    coordinator.ask(add(held.producer_id))
    ended = coordinator.begin(EndTransaction("mover", held.producer_id, held.epoch, True))
    coordinator.one.until(lambda: coordinator.records()[-1].phase == Phase.COMPLETE_COMMIT)  # type: ignore[union-attr]
    coordinator.one.until(ended.done)
    assert ended.result().epoch == 1
    coordinator.ask(add(held.producer_id, 1))
    coordinator.one.until(lambda: coordinator.records()[-1].phase == Phase.COMPLETE_ABORT)  # type: ignore[union-attr]
    assert coordinator.log.gave_up is None


def test_an_id_that_is_used_again_while_others_are_forgotten_is_not_forgotten(coordinator: Coordinator) -> None:
    coordinator.ask(init("a"))
    used = coordinator.ask(init("b"))
    coordinator.one.world.run_for(WEEK - 1800.0)
    coordinator.log.commits_at_once = False
    coordinator.one.until(lambda: len(coordinator.log.entries) == 4, 7200.0)
    again = coordinator.begin(add(used.producer_id, name="b"))
    coordinator.one.world.run_for(0.1)
    coordinator.one.make(coordinator.log.commit)
    coordinator.one.until(again.done)
    assert isinstance(again.exception(), UnknownTransactionalId), "it was forgotten before, not behind its back"
    assert [key for key, value in coordinator.log.entries if value is None] == [b"ta", b"tb"]


def test_its_metrics_say_how_many_ids_are_in_each_state(coordinator: Coordinator) -> None:
    held = coordinator.ask(init())
    coordinator.ask(init("other"))
    coordinator.ask(add(held.producer_id))
    told = {each.tags: each.value for each in coordinator.core.readings()}
    assert told == {("2", phase.name.lower()): phase in (Phase.EMPTY, Phase.ONGOING) for phase in Phase}


def test_what_does_not_fit_into_the_log_is_refused_before_it_is_decided(coordinator: Coordinator) -> None:
    """Else the record ends this coordinator, and the same request the next."""
    held = coordinator.ask(init())
    coordinator.ask(add(held.producer_id))
    record = coordinator.core.known("mover")
    assert record is not None
    many = tuple(("t" * 249, number.to_bytes(16, "big"), 5) for number in range(3_280))
    coordinator.core.apply(replace(record, partitions=many))

    def fill() -> None:
        for number in range(100):
            coordinator.ask(AddPartition("mover", held.producer_id, 0, "u" * 249, number.to_bytes(16, "big"), 5))

    with pytest.raises(TransactionTooLarge) as raised:
        fill()
    assert raised.value.abortable
    sizes = [len(value or b"") for _, value in coordinator.log.entries]
    assert 880_000 < max(sizes) <= 900_000
    assert coordinator.ask(init("another")).epoch == 0
    assert coordinator.log.gave_up is None
