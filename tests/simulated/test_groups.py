"""Seeds of groups under faults, that each repeats itself, and with rules 23 to 25 switched off.

`make simulate-groups SEEDS=500` runs many, together with those of `test_group_cluster.py`.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.simulator.cluster.group_world import run_group_seed
from tests.simulator.mutations.group_mutations import GROUP_MUTATIONS, SEEDS, catches

_SMALL_SET: Final = tuple(seed for seed in range(61) if seed != 50)  # there each member is killed before it commits
_ROOT: Final = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


# A topic was made while the only member with a pattern was away.
_WITH_HISTORY: Final = (7007,)


@pytest.mark.parametrize("seed", _SMALL_SET + _WITH_HISTORY)
def test_no_two_own_a_partition_no_commit_is_lost_and_groups_settle(seed: int) -> None:
    world = run_group_seed(seed)
    assert world.checker.grants
    assert world.checker.committed


def test_a_seed_repeats_itself_elsewhere() -> None:
    """Run it in processes with other hashes."""
    fingerprints = {run_group_seed(2).scheduler.fingerprint}
    for hashes in ("1", "2"):
        module = "tests.simulator.cluster.group_world"
        code = f"from {module} import run_group_seed as run; print(run(2).scheduler.fingerprint)"
        ran = subprocess.run(
            [sys.executable, "-c", code],
            cwd=_ROOT, env={**os.environ, "PYTHONHASHSEED": hashes}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        fingerprints.add(int(ran.stdout))
    assert len(fingerprints) == 1


@pytest.mark.parametrize("name", sorted(SEEDS))
def test_a_rule_that_is_off_is_noticed(name: str) -> None:
    command = f"python -m tests.simulator.mutations.group_mutations {name}"
    assert any(catches(name, seed) for seed in SEEDS[name]), command


def test_every_mutation_has_its_seed() -> None:
    assert set(SEEDS) == set(GROUP_MUTATIONS)
