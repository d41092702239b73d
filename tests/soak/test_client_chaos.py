"""Producers and consumers for CLIENT_SECONDS (120), while a leader is killed every few seconds."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from random import Random

import pytest

from tests.cluster.support.chaos import chaos_cluster
from tests.cluster.support.client_chaos import leaders_die

pytestmark = [pytest.mark.cluster, pytest.mark.soak, pytest.mark.timeout(0)]


def test_leaders_die_and_every_acknowledged_record_is_read_once_and_in_order(
    ray_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    seconds, seed = float(os.environ.get("CLIENT_SECONDS", "120")), int(os.environ.get("SEED", "1"))
    with chaos_cluster(tmp_path) as chaos:
        reckoning = leaders_die(chaos, seconds, pause=3.0, random=Random(seed))
    sys.stdout.write(f"{reckoning}\n")
    assert reckoning.errors == []
