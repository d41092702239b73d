"""A small fixed set of seeds in which an administrator of Kafka's protocol works under all faults.

`python -m tests.simulator.clients.kafka_admin_scenario 17` replays one and prints what it was. The seeds by name were
found: 44 by the word of a controller that had been replaced, 52 by a port that another process had got, 56 by a broker
that ended with a request which it had passed on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

import pytest

pytest.importorskip("kafka", reason="the extra `kafka` is not installed")

from tests.simulator.clients.kafka_admin_scenario import run_seed

_FOUND: Final = (44, 52, 56)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", [*range(10), *_FOUND])
def test_what_an_administrator_is_told_is_so(seed: int) -> None:
    outcome = run_seed(seed)
    assert outcome.faults["administered"] > 0


def test_a_seed_repeats_itself() -> None:
    assert run_seed(3).fingerprint == run_seed(3).fingerprint
