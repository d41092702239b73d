"""Ray, and with it the cluster, outlive the thread on which `raylog.start` started them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.conftest import StartProgram

pytestmark = pytest.mark.cluster

_PROGRAM = """
import threading, time
import raylog

clusters = []
def main():
    clusters.append(raylog.start({data!r}))
thread = threading.Thread(target=main)
thread.start()
thread.join()
time.sleep(3.0)
print([each.alive for each in clusters[0].describe_cluster(timeout=10).brokers], flush=True)
clusters[0].create_topic("clicks")
clusters[0].shutdown()
print("stopped", flush=True)
"""


@pytest.mark.timeout(180)
def test_the_cluster_outlives_the_thread_that_started_it(
    ray_folder: Path, tmp_path: Path, start_program: StartProgram
) -> None:
    assert ray_folder.exists()
    program = start_program(_PROGRAM.format(data=str(tmp_path)))
    assert program.stdout is not None
    told = [line.strip() for line in program.stdout if line.startswith(("[True", "[False", "stopped"))]
    assert told == ["[True]", "stopped"]
