"""Memory stays flat: a producer before a slow broker for OUTRUN_SECONDS (60), a consumer on BACKLOG_GB (10)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from raylog.config import MIB
from tests.cluster.support.chaos import chaos_cluster
from tests.cluster.support.client_memory import outrun, sleep_on_backlog, write_backlog

_SHORT = {"retention.bytes": 1 << 30, "segment.bytes": 1 << 27}  # else the disk would be full sooner

pytestmark = [pytest.mark.cluster, pytest.mark.soak, pytest.mark.timeout(0)]


def test_a_producer_outruns_a_slow_broker(ray_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with chaos_cluster(tmp_path) as chaos:
        cluster = chaos.cluster
        cluster.create_topic("outrun", partitions=3, replication_factor=3, config=_SHORT)
        slow = next(each for each in cluster.describe_replicas("outrun") if each.role == "leader")
        growth = outrun(cluster, "outrun", float(os.environ.get("OUTRUN_SECONDS", "60")), 64 * MIB, [slow.pid])
    sys.stdout.write(f"outrunning: {growth}\n")
    assert growth.met > 0, "the cluster was faster"
    assert growth.grown < 128 * MIB


def test_a_consumer_sleeps_on_a_backlog(ray_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with chaos_cluster(tmp_path) as chaos:
        cluster = chaos.cluster
        cluster.create_topic("backlog", partitions=3, replication_factor=1)
        count = write_backlog(cluster, "backlog", int(float(os.environ.get("BACKLOG_GB", "10")) * 1e9))
        for local in (True, False):
            growth = sleep_on_backlog(cluster, "backlog", 30.0, local)
            sys.stdout.write(f"sleeping{' beside its files' if local else ''}: {growth}\n")
            assert growth.grown < 64 * MIB
            assert growth.met == count - 1
