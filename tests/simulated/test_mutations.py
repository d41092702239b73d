"""Each rule of 1 to 18 is needed: with one of its clauses switched off, a seed fails that passes otherwise."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import islice
from typing import Final

import pytest

from tests.simulator.mutation_seeds import SEEDS
from tests.simulator.mutations.mutations import MUTATIONS
from tests.simulator.search_mutations import candidates, catch

_TRIED: Final = 30
_CAUGHT: Final = [mutation for mutation in MUTATIONS.values() if not mutation.masked]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", sorted(SEEDS))
def test_is_caught(name: str) -> None:
    """Try the seed in the table, then the next ones, so that a change of what is drawn does not ask for a search."""
    tried = list(islice(candidates(name, 1_000), _TRIED))
    assert any(catch(name, seed) for seed in tried), (
        f"no seed of {tried} tells whether {MUTATIONS[name].what!r}: `make mutations ONLY={name}` looks for another"
    )


def test_the_table_is_of_these_mutations() -> None:
    """`make mutations` fails as long as one of them is not in the table."""
    assert {MUTATIONS[name].rule for name in SEEDS} == {*range(1, 19), 33}
    assert set(SEEDS) <= {mutation.name for mutation in _CAUGHT}
