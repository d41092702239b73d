"""Each rule of 1 to 18 is needed: with one of its clauses switched off, a seed fails that passes otherwise."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

import pytest

from tests.simulation.mutation_seeds import SEEDS
from tests.simulation.mutations import MUTATIONS
from tests.simulation.search_mutations import catch

_CAUGHT: Final = [mutation for mutation in MUTATIONS.values() if not mutation.masked]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", sorted(SEEDS))
def test_is_caught(name: str) -> None:
    seed = SEEDS[name]
    assert catch(name, seed), (
        f"seed {seed} does not tell whether {MUTATIONS[name].what!r}: `make mutations ONLY={name}` looks for another"
    )


def test_the_table_is_of_these_mutations() -> None:
    """`make mutations` fails as long as one of them is not in the table."""
    assert {mutation.rule for mutation in _CAUGHT} == set(range(1, 19))
    assert set(SEEDS) <= {mutation.name for mutation in _CAUGHT}
