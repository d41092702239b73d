"""What a transaction coordinator makes of families: what is appended together, what waits, who is heard."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from raylog.actors.protocol.messages import unpack
from raylog.actors.protocol.transaction_family_messages import EndFamily, InitFamily, JoinFamily, KeepFamily
from raylog.actors.protocol.transaction_messages import AddPartition, EndTransaction, InitProducer, TransactionRecord
from raylog.actors.transactions.rules.transaction import FAMILY_PREFIX, Phase
from raylog.errors import (
    CoordinatorStopped,
    FamilyFenced,
    FamilyTooLarge,
    InvalidTransactionalId,
    InvalidTransactionState,
)
from tests.simulator.world.world import World
from tests.unit.actors.transactions.test_transaction_core import Coordinator

NAME = "counts"
TOPIC = b"t" * 16


@pytest.fixture
def coordinator() -> Iterator[Coordinator]:
    with World(5) as world:
        yield Coordinator(world)


def init(holder: bytes = b"a", keep_ms: int = -1) -> InitFamily:
    return InitFamily(NAME, holder, 1000, keep_ms)


def add(joined: Any) -> AddPartition:
    return AddPartition(joined.transactional_id, joined.producer_id, joined.epoch, "t", TOPIC, 0)


def winner(joined: Any) -> tuple[int, int, int]:
    return int(joined.transactional_id.split("\x1f")[1]), joined.producer_id, joined.epoch


def phases(coordinator: Coordinator) -> dict[str, int]:
    """By what was appended last."""
    found = {}
    for key, value in coordinator.log.entries:
        if value is not None and not key.startswith(FAMILY_PREFIX):
            record = unpack(value[0], value[1], value[2:])
            assert isinstance(record, TransactionRecord)
            found[record.transactional_id] = record.phase
    return found


def test_the_outcome_and_the_batch_are_one_append(coordinator: Coordinator) -> None:
    epoch = coordinator.ask(init()).epoch
    first, second = (coordinator.ask(JoinFamily(NAME, epoch)) for _ in range(2))
    appended: list[list[bytes]] = []
    append = coordinator.log.append

    def noted(entries: Any, **options: bool) -> Any:
        appended.append([key for key, _ in entries])
        return append(entries, **options)

    coordinator.log.append = noted  # type: ignore[method-assign]
    answer = coordinator.ask(EndFamily(NAME, epoch, 0, (winner(first),)))
    assert answer.last_batch == 0
    assert appended[0] == [b"f" + NAME.encode(), b"t" + first.transactional_id.encode()]
    assert appended[1] == [b"t" + second.transactional_id.encode()]
    assert sorted(phases(coordinator).values()) == [Phase.COMPLETE_COMMIT, Phase.COMPLETE_ABORT]


def test_nothing_gets_out_of_a_decision_that_is_lost(coordinator: Coordinator) -> None:
    epoch = coordinator.ask(init()).epoch
    joined = coordinator.ask(JoinFamily(NAME, epoch))
    coordinator.ask(add(joined))
    coordinator.log.commits_at_once = False
    ending = coordinator.begin(EndFamily(NAME, epoch, 0, (winner(joined),)))
    late = coordinator.begin(InitFamily(NAME, b"b", 1000, -1))
    coordinator.one.world.run_for(0.5)
    assert not coordinator.link.asked, "a marker"
    coordinator.one.make(coordinator.log.lose)
    coordinator.one.until(lambda: ending.done() and late.done())
    assert isinstance(ending.exception(), CoordinatorStopped)
    assert isinstance(late.exception(), CoordinatorStopped)


def test_an_older_driver_and_its_tasks_are_refused(coordinator: Coordinator) -> None:
    before = coordinator.ask(init(b"a")).epoch
    joined = coordinator.ask(JoinFamily(NAME, before))
    after = coordinator.ask(init(b"b")).epoch
    for message in (
        JoinFamily(NAME, before),
        KeepFamily(NAME, before),
        EndFamily(NAME, before, 0, (winner(joined),)),
        JoinFamily("nobody's", 0),
    ):
        with pytest.raises(FamilyFenced):
            coordinator.ask(message)
    with pytest.raises(InvalidTransactionState):
        coordinator.ask(EndTransaction(joined.transactional_id, joined.producer_id, joined.epoch, True))
    with pytest.raises(InvalidTransactionState):
        coordinator.ask(InitProducer(joined.transactional_id, 1000, -1, -1))
    with pytest.raises(InvalidTransactionalId):
        coordinator.ask(InitFamily("a\x1fb", b"a", 1000, -1))
    assert coordinator.ask(EndFamily(NAME, after, 0, ())).last_batch == 0


def test_members_stay_open_while_their_driver_is_heard(coordinator: Coordinator) -> None:
    epoch = coordinator.ask(init()).epoch
    joined = coordinator.ask(JoinFamily(NAME, epoch))
    for _ in range(6):
        coordinator.one.world.run_for(0.6)
        coordinator.ask(KeepFamily(NAME, epoch))
    assert phases(coordinator)[joined.transactional_id] == Phase.ONGOING
    coordinator.one.world.run_for(1.1)
    assert phases(coordinator)[joined.transactional_id] == Phase.COMPLETE_ABORT
    assert coordinator.ask(EndFamily(NAME, epoch, 0, (winner(joined),))).last_batch == -1


def test_a_new_coordinator_goes_on_with_what_is_written(coordinator: Coordinator) -> None:
    epoch = coordinator.ask(init()).epoch
    coordinator.ask(EndFamily(NAME, epoch, 7, (winner(coordinator.ask(JoinFamily(NAME, epoch))),)))
    left = coordinator.ask(JoinFamily(NAME, epoch))
    entries = coordinator.log.entries
    with World(6) as world:
        second = Coordinator(world)
        for key, value in entries:
            second.core._restore(key, value)
        assert second.ask(EndFamily(NAME, epoch, 8, (winner(left),))).last_batch == 8
        assert second.ask(init(b"c")).last_batch == 8


def test_a_decision_that_does_not_fit_is_refused_and_can_be_aborted(coordinator: Coordinator) -> None:
    epoch = coordinator.ask(init()).epoch
    members = [coordinator.ask(JoinFamily(NAME, epoch)) for _ in range(4)]
    partitions = tuple(("t" * 240, TOPIC, number) for number in range(1000))
    for joined in members:
        known = coordinator.core.known(joined.transactional_id)
        assert known is not None
        coordinator.core.apply(replace(known, partitions=partitions))
    with pytest.raises(FamilyTooLarge):
        coordinator.ask(EndFamily(NAME, epoch, 0, tuple(map(winner, members))))
    assert set(phases(coordinator).values()) == {Phase.ONGOING}
    coordinator.link.deleted = {TOPIC}
    aborting = coordinator.begin(EndFamily(NAME, epoch, -1, ()))
    coordinator.one.until(aborting.done, 60.0)
    assert set(phases(coordinator).values()) == {Phase.COMPLETE_ABORT}


def test_a_family_that_is_forgotten_takes_its_members_with_it(coordinator: Coordinator) -> None:
    epoch = coordinator.ask(init(keep_ms=60_000)).epoch
    coordinator.ask(EndFamily(NAME, epoch, 0, (winner(coordinator.ask(JoinFamily(NAME, epoch))),)))
    coordinator.one.until(lambda: coordinator.log.entries[-1][1] is None, 7300.0)
    assert [key for key, value in coordinator.log.entries if value is None] == [b"fcounts", b"tcounts\x1f0"]
    assert coordinator.ask(init(b"b")).last_batch == -1


def test_after_any_append_the_batch_is_there_with_all_its_winners_or_not_at_all(coordinator: Coordinator) -> None:
    """A coordinator may end between any two appends; the next one has what was appended up to there."""
    appends: list[list[tuple[bytes, bytes | None]]] = []
    append = coordinator.log.append

    def noted(entries: Any, **options: bool) -> Any:
        appends.append(list(entries))
        return append(entries, **options)

    coordinator.log.append = noted  # type: ignore[method-assign]
    winners: dict[int, list[tuple[int, int, int]]] = {}
    for batch in range(2):
        epoch = coordinator.ask(init(b"%d" % batch)).epoch
        joined = [coordinator.ask(JoinFamily(NAME, epoch)) for _ in range(4)]
        winners[batch] = [winner(each) for each in joined[:3]]
        coordinator.ask(EndFamily(NAME, epoch, batch, tuple(winners[batch])))
    for count in range(len(appends) + 1):
        with World(count) as world:
            later = Coordinator(world)
            for key, value in (entry for entries in appends[:count] for entry in entries):
                later.core._restore(key, value)
            last_batch = later.ask(init(b"later")).last_batch
            committed = {identity for each in appends[:count] for identity in _committed(each)}
            for batch, members in winners.items():
                there = [(producer_id, epoch) in committed for _, producer_id, epoch in members]
                assert all(there) if batch <= last_batch else not any(there)
            assert len(committed) == 3 * (last_batch + 1), "a loser"
            assert all(
                Phase(phase) in (Phase.COMPLETE_COMMIT, Phase.COMPLETE_ABORT) for phase in phases(later).values()
            )


def _committed(entries: list[tuple[bytes, bytes | None]]) -> Iterator[tuple[int, int]]:
    for key, value in entries:
        if value is not None and not key.startswith(FAMILY_PREFIX):
            record = unpack(value[0], value[1], value[2:])
            assert isinstance(record, TransactionRecord)
            if record.phase == Phase.PREPARE_COMMIT:
                yield record.ended_id, record.ended_epoch
