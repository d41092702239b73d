"""Exactly once from end to end, while copiers, coordinators and leaders are killed. The long form is a soak test."""

from __future__ import annotations

from random import Random

import pytest

from raylog.api.admin.cluster import Cluster
from tests.cluster.support.copier_chain import Chain

pytestmark = pytest.mark.cluster


@pytest.mark.timeout(300)
def test_a_chain_of_copiers_loses_and_doubles_nothing_while_its_parts_are_killed(cluster: Cluster) -> None:
    chain = Chain(cluster, Random(3))
    try:
        chain.run(seconds=6.0, pause=1.0)
        chain.check()
    finally:
        chain.close()
    assert chain.report.killed >= 2
