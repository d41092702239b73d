"""Ray's head is killed under load, stays away for a while, and comes back, with its control store in a Redis.

Brokers, replicas, coordinators and clients on the other nodes go on without it; nothing of a group moves. Afterwards
there is a controller again, which elects leaders and makes topics. `tests/soak/test_head_loss.py` has the long form.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cluster.support.head_loss import HOSTS, head_loss_cluster, lose_head, why_not
from tests.cluster.support.namespaces import NamespacesUnavailable, network

pytestmark = pytest.mark.cluster

_AWAY_SECONDS = 15.0


@pytest.mark.timeout(400)
def test_all_but_administration_goes_on_while_rays_head_is_away(ray_folder: Path) -> None:
    if why_not():
        pytest.skip(why_not())
    try:
        with network(HOSTS) as hosts, head_loss_cluster(hosts, ray_folder) as cluster:
            sys.stderr.write(f"{lose_head(cluster, ray_folder, _AWAY_SECONDS)}\n")
    except NamespacesUnavailable as reason:
        pytest.skip(f"there can be no hosts on this machine: {reason}")
