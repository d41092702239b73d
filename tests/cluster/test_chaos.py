"""One fault of each kind under a writer with acks=all: nothing acknowledged is lost, nothing is there twice.

`make soak` goes on for longer, and prints what each kind of fault costs.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.cluster.support.chaos import FAULTS, chaos_cluster, run_cycles

pytestmark = pytest.mark.cluster


@pytest.mark.timeout(400)
def test_no_fault_costs_an_acknowledged_record(
    ray_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    told: list[str] = []
    with chaos_cluster(tmp_path) as chaos:
        report = run_cycles(len(FAULTS), chaos, Random(1), told.append)
    assert (report.tally.lost, report.tally.doubled) == (0, 0), "\n".join([*told, str(report)])
    assert report.tally.acknowledged > 0
