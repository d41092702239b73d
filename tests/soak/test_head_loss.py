"""Ray's head is away for a minute: as long as Ray by itself lets a node live without one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.cluster.support.head_loss import HOSTS, head_loss_cluster, lose_head, why_not
from tests.cluster.support.namespaces import NamespacesUnavailable, network

pytestmark = [pytest.mark.cluster, pytest.mark.soak, pytest.mark.timeout(0)]


def test_all_but_administration_goes_on_while_rays_head_is_away_for_a_minute(ray_folder: Path) -> None:
    """AWAY_SECONDS: for how long."""
    if why_not():
        pytest.skip(why_not())
    away = float(os.environ.get("AWAY_SECONDS", "60"))
    try:
        with network(HOSTS) as hosts, head_loss_cluster(hosts, ray_folder) as cluster:
            sys.stdout.write(f"{lose_head(cluster, ray_folder, away)}\n")
    except NamespacesUnavailable as reason:
        pytest.skip(f"there can be no hosts on this machine: {reason}")
