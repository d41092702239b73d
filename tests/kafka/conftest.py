"""The address of the cluster that all tests of this folder share."""

from __future__ import annotations

import pytest

import raylog


@pytest.fixture(scope="module")
def bootstrap(cluster: raylog.Cluster) -> str:
    """What clients are told to begin with: all gateways."""
    addresses = cluster.kafka_addresses()
    assert len(set(addresses)) == 3
    return ",".join(addresses)
