"""What a transaction coordinator says of itself when something in it is broken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from raylog.actors.protocol.transaction_messages import AddPartition, InitProducer
from raylog.actors.transactions.coordinator import TransactionCoordinator
from raylog.actors.transactions.rules.transaction import Phase, broken_invariants
from tests.simulator.world.world import World
from tests.unit.actors.transactions.test_transaction_core import Coordinator


@pytest.fixture
def core() -> Iterator[TransactionCoordinator]:
    with World(3) as world:
        coordinator = Coordinator(world)
        producer = coordinator.ask(InitProducer("mover", 1000, -1, -1))
        coordinator.ask(AddPartition("mover", producer.producer_id, producer.epoch, "t", b"t" * 16, 0))
        yield coordinator.core


def test_a_sound_coordinator_has_nothing_to_say(core: TransactionCoordinator) -> None:
    assert core._known["mover"].phase == Phase.ONGOING
    assert list(core.broken_invariants()) == []


def change(core: TransactionCoordinator, **changes: Any) -> None:
    core._known["mover"] = replace(core._known["mover"], **changes)


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (lambda core: change(core, phase=int(Phase.EMPTY)), "it is EMPTY, and holds"),
        (lambda core: change(core, phase=int(Phase.PREPARE_ABORT)), "its markers carry producer -1"),
        (lambda core: change(core, phase=int(Phase.PREPARE_ABORT)), "PREPARE_ABORT, is not being ended"),
        (lambda core: change(core, epoch=32_767), "its epoch is 32767"),
        (lambda core: change(core, transactional_id="other"), "other, kept as mover"),
        (lambda core: core._ending.update(mover=None), "ONGOING, is being ended"),
        (lambda core: core._ending.update(stranger=None), "are not all known"),
        (lambda core: core._fresh.append(core._known["mover"].producer_id), "nobody should have yet"),
    ],
)
def test_a_broken_coordinator_says_what_is_broken(
    core: TransactionCoordinator, break_it: Callable[[Any], None], said: str
) -> None:
    break_it(core)
    found = "; ".join(core.broken_invariants())
    core._ending.clear()
    assert said in found


def test_a_record_alone_says_what_is_broken(core: TransactionCoordinator) -> None:
    record = core._known["mover"]
    assert list(broken_invariants(record)) == []
    assert list(broken_invariants(replace(record, phase=int(Phase.COMPLETE_COMMIT))))
