"""Groups on a replicated offsets topic, with coordinators, members, replicas and controllers killed, stopped, cut off.

`make simulate-groups SEEDS=500` runs many, together with those of `test_groups.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

import pytest

from tests.simulator.cluster.group_cluster import run_group_cluster_seed

# What each found, when it did. See `test_seeds.py`.
FOUND_BUGS: Final[dict[int, str]] = {
    27: "a member asked at a port that had become another coordinator's, which took its group for a new one",
    31: "the same as 27",
}
_NETWORK: Final = {"cut_off", "cut_off_client", "cut_streams", "flap", "slow_links"}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """The cluster warns of each fault."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", sorted({*range(4), *FOUND_BUGS}))
def test_no_partition_has_two_owners_and_no_committed_offset_is_lost(seed: int) -> None:
    outcome = run_group_cluster_seed(seed)
    assert outcome.acknowledged > 50
    assert outcome.faults.keys() & {"kill_coordinator", "pause_coordinator"}
    assert outcome.faults.keys() & _NETWORK


def test_a_seed_repeats_itself() -> None:
    assert run_group_cluster_seed(1).fingerprint == run_group_cluster_seed(1).fingerprint
