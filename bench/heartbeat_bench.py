"""1,000 members in 100 groups, a heartbeat each every 3 s, against one coordinator of a real cluster.

The coordinator is the actor that users have, and the heartbeats come over real streams, from a process of their own
(`heartbeat_members.py`). `python -m bench groups` takes its core apart.
"""

from __future__ import annotations

import base64
import json
import pickle
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Final

import raylog
from bench.heartbeat_members import GROUPS, MEMBERS, PARTITION, TOPIC
from bench.measuring import Figure
from bench.real_cluster import coordinator_pid, real_cluster
from raylog.api.admin.cluster import Cluster

_PARTITIONS: Final = 2
_START_SECONDS: Final = 30.0
_RUN_SECONDS: Final = 120.0


def run() -> Iterator[Figure]:
    with real_cluster(brokers=1) as cluster:
        cluster.create_topic(TOPIC, _PARTITIONS, 1)
        pid = _coordinator(cluster)
        access = base64.b64encode(pickle.dumps(cluster.access())).decode()
        program = [sys.executable, "-m", "bench.heartbeat_members", str(pid), access]
        ran = subprocess.run(program, stdout=subprocess.PIPE, timeout=_RUN_SECONDS, check=True)
    told = json.loads(ran.stdout)
    note = f"{GROUPS * MEMBERS} members in {GROUPS} groups, the coordinator's process"
    yield Figure("heartbeats that are held for 3 s", [told["held"]], "% of a core", note=note)
    yield Figure("the same, answered at once", [told["at_once"]], "% of a core", note="one of each member every 3 s")
    percentiles = statistics.quantiles(told["latencies"], n=100)
    note = f"there and back over a stream, {len(told['latencies'])} of them"
    yield Figure("such a heartbeat, p50", [percentiles[49]], "ms", note=note)
    yield Figure("such a heartbeat, p99", [percentiles[98]], "ms", note=note)


def _coordinator(cluster: Cluster) -> int:
    """Return the coordinator's process; there is none before the first group."""
    with raylog.Consumer(cluster=cluster, group_id="first") as consumer:
        consumer.committed(raylog.TopicPartition(TOPIC, 0))
    deadline = time.monotonic() + _START_SECONDS
    while (pid := coordinator_pid(cluster, PARTITION)) is None and time.monotonic() < deadline:
        time.sleep(0.1)
    assert pid is not None
    return pid
