"""A small fixed set of seeds of the simulated cluster, those that have found something, and that each repeats itself.

`make simulate SEEDS=20000` runs many; `make simulate SEED=17` prints all that happens in one.
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

from tests.simulator.scenario import run_seed
from tests.simulator.simulate import replay_command, summary_of, try_seed

# What each found, when it did. A seed changes its meaning whenever the scenario, or the code that runs in it, draws
# differently; then it is a seed like any other, and only the word of it stays.
FOUND_BUGS: Final[dict[int, str]] = {
    13: "an error while a stopped replica closed its log left the replica's process",
    30: "a stream that was admitted in the moment in which its dialler was cancelled broke with an error",
    43: "a deletion that was confirmed was undone when the leader died",
    54: "a replica that was moved away while its broker was cut off ran for ever",
    91: "after a power cut of all an election in doubt did not wait for the replica with the most",
    179: "the same as 43, and the replicas began at different offsets for ever",
    417: "the one copy that was kept had rotted unseen, and the others were removed",
    575: "records in a copy that was taken away as the second last one were asked for in the end (by the test)",
    1059: "a damaged length in the last batch passed for a torn tail, and an acknowledged record was cut",
    1743: "a late answer broke a stream that was being closed, and with it the answers that it still owed",
    2284: "a deletion was confirmed below the minimum, and one that had left the ISR and did not know of it led next",
    8220: "an elected replica died before it heard of it, and its follower, which had, lost its power (by the test)",
    50011: "an elected replica that died before it heard of it came back blank, and no person was there to choose",
    51519: "records that a person had given up counted again while no controller served (by the test)",
    200_274: "a failure of the disk was told to nobody, since whoever waited for it had been cancelled",
    200_319: "a topic was made while brokers, whose registration had waited for a slow disk, were fenced (by the test)",
    302_296: "a replica whose way into the ISR was not committed counted for the rest of a power cut (by the test)",
    604_175: "a topic counted as given up since an earlier one of its name was elected uncleanly (by the test)",
    700_380: "a bit was to rot in the log of a process that had just been killed (by the test)",
    703_675: "a bit was to flip in a log that begins anew and has no segment yet (by the test)",
    901_484: "a broker looked once for what it holds in vain, while the replica that it had just told to end held it",
    901_694: "a power cut took the name of a first segment and left that of the next: an empty log counted as damaged",
    903_743: "the same batches came back under an older epoch, in the copy that a person chose (by the test)",
}

_SMALL_SET: Final = range(150)
_LAST_COPIES: Final = range(31, 31 + 32 * 12, 32)  # their last copies are taken away, and a person chooses
_ROOT: Final = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """The cluster warns of each fault; and caught log records of a whole run take memory."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", sorted({*_SMALL_SET, *_LAST_COPIES, *FOUND_BUGS}))
def test_nothing_is_lost(seed: int) -> None:
    failure = try_seed(seed).failure
    assert not failure, f"{failure}\n    {replay_command(seed)}"


@pytest.mark.parametrize("seed", [2, 7])
def test_a_seed_repeats_itself_elsewhere(seed: int) -> None:
    """Run it in processes with other hashes, and in one that has run another seed before."""
    fingerprints = {run_seed(seed).fingerprint}
    for hashes in ("1", "2"):
        code = f"from tests.simulator.scenario import run_seed; print(run_seed({seed}).fingerprint)"
        ran = subprocess.run(
            [sys.executable, "-c", code],
            cwd=_ROOT, env={**os.environ, "PYTHONHASHSEED": hashes}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        fingerprints.add(int(ran.stdout))
    run_seed(seed + 1)
    fingerprints.add(run_seed(seed).fingerprint)
    assert len(fingerprints) == 1


def test_a_failure_is_told_in_one_line() -> None:
    report = "At 3.5 s: The watcher\nTraceback (most recent call last):\n  …\nSomethingBroken: it is gone\nSeed 5. Its"
    assert summary_of(AssertionError(report)) == "AssertionError: At 3.5 s: The watcher … SomethingBroken: it is gone"
