"""A small fixed set of seeds in which the cores of producer and consumer are the clients of a simulated cluster.

`python -m tests.simulator.clients.real_clients 17` replays one and prints what it was.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

import pytest

from tests.simulator.clients.real_clients import run_seed

# What each found, when it did. See `test_seeds.py`.
FOUND_BUGS: Final[dict[int, str]] = {
    2: "a refresh that nobody waited for any more left an error that nobody looked at",
    147: "a port that had become another process's was taken for the leader's",
    176: "the same as 147",
}
_SMALL_SET: Final = range(40)
_ONE_COPY_ROTS: Final = (61, 80)  # a consumer reads again what only a replica out of sync has sound


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", sorted({*_SMALL_SET, *_ONE_COPY_ROTS, *FOUND_BUGS}))
def test_each_acknowledged_record_is_there_once_and_read_in_order(seed: int) -> None:
    outcome = run_seed(seed)
    assert outcome.acknowledged > 0


def test_a_seed_repeats_itself() -> None:
    assert run_seed(7).fingerprint == run_seed(7).fingerprint
