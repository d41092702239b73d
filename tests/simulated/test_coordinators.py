"""Coordinators of a simulated cluster under faults: what one has acknowledged, the next one knows (rule 25).

And while one answers from memory no later one serves, also where a controller is cut off together with coordinators.
`make simulate-coordinators SEEDS=500` runs many.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

import pytest

from tests.simulator.coordinator_scenario import run_coordinators_seed
from tests.simulator.mutations.coordinator_mutations import COORDINATOR_MUTATIONS, SEEDS, catches

_SMALL_SET: Final = range(8)
# What each found, when it did. See `test_seeds.py`.
FOUND_BUGS: Final[dict[int, str]] = {
    5: "a controller that was cut off from all brokers ended, as it looked for better places of coordinators",
}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """The cluster warns of each fault."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", sorted({*_SMALL_SET, *FOUND_BUGS}))
def test_what_a_coordinator_acknowledged_the_next_one_knows_and_nobody_is_shown_less(seed: int) -> None:
    outcome = run_coordinators_seed(seed)
    assert outcome.acknowledged > 100
    assert not seed % 2 or outcome.faults.keys() & {"divide", "renew_unheard"}


def test_a_seed_repeats_itself() -> None:
    assert run_coordinators_seed(1).fingerprint == run_coordinators_seed(1).fingerprint


@pytest.mark.parametrize("name", sorted(SEEDS))
def test_a_rule_that_is_off_is_noticed(name: str) -> None:
    command = f"python -m tests.simulator.mutations.coordinator_mutations {name}"
    assert any(catches(name, seed) for seed in SEEDS[name]), command


def test_every_mutation_has_its_seed() -> None:
    assert set(SEEDS) == set(COORDINATOR_MUTATIONS)
