"""A small fixed set of seeds in which clients of Kafka's protocol are the clients of a simulated cluster.

`python -m tests.simulator.clients.kafka_scenario 17` replays one and prints what it was.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

import pytest

pytest.importorskip("kafka", reason="the extra `kafka` is not installed")

from tests.simulator.clients.kafka_scenario import run_seed

_SMALL_SET: Final = range(20)
_OVERTAKEN: Final = (142, 264)  # a batch passed an earlier one where its leader did not know the producer (rule 18)
_LOWERED: Final = 248  # an eligible replica was forgotten as the minimum was lowered, though nobody could acknowledge


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", [*_SMALL_SET, *_OVERTAKEN, _LOWERED])
def test_each_acknowledged_record_is_there_once_and_read_in_order(seed: int) -> None:
    outcome = run_seed(seed)
    assert outcome.acknowledged > 0


def test_a_seed_repeats_itself() -> None:
    assert run_seed(7).fingerprint == run_seed(7).fingerprint
