"""A chain of copiers for CHAIN_SECONDS (120), while one of its parts is killed every two seconds."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from random import Random

import pytest

from tests.cluster.support.chaos import chaos_cluster
from tests.cluster.support.copier_chain import Chain

pytestmark = [pytest.mark.cluster, pytest.mark.soak, pytest.mark.timeout(0)]


def test_output_is_input_once_and_in_the_order_of_each_key(
    ray_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    seconds, seed = float(os.environ.get("CHAIN_SECONDS", "120")), int(os.environ.get("SEED", "1"))
    with chaos_cluster(tmp_path) as chaos:
        chain = Chain(chaos.cluster, Random(seed))
        try:
            chain.run(seconds, pause=2.0)
            chain.check()
        finally:
            chain.close()
    sys.stdout.write(f"{chain.report}\n")
    assert chain.report.killed >= seconds / 12
