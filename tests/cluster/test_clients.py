"""Producers and consumers on real Ray while leaders die: each acknowledged record is read once, and in order."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.cluster.support.chaos import chaos_cluster
from tests.cluster.support.client_chaos import leaders_die

pytestmark = pytest.mark.cluster


@pytest.mark.timeout(300)
def test_leaders_die_and_every_acknowledged_record_is_read_once_and_in_order(
    ray_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with chaos_cluster(tmp_path) as chaos:
        reckoning = leaders_die(chaos, seconds=20.0, pause=2.0, random=Random(1))
    assert reckoning.errors == []
    assert reckoning.kills >= 3
    assert reckoning.acknowledged > 1_000
