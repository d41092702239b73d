"""A Ray that crashed leaves its address behind; neither the program nor its tests may fall over that."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import ray

from raylog.actors.on_ray.runtime.join_ray import join_or_start_ray, running_ray
from raylog.api.admin.cluster import Cluster
from raylog.errors import RayUnreachable

pytestmark = pytest.mark.cluster

_START_AND_COUNT = """
import json, ray
from raylog.actors.on_ray.runtime.join_ray import join_or_start_ray
address = join_or_start_ray(include_dashboard=False, log_to_driver=False)
print(json.dumps({"address": address, "nodes": len(ray.nodes())}))
ray.shutdown()
"""




def leave_address(folder: Path, address: str) -> None:
    (folder / "ray").mkdir()
    (folder / "ray" / "ray_current_cluster").write_text(address)


def port_nobody_listens_on() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], env=os.environ, capture_output=True, text=True, timeout=100, check=False
    )


def test_a_stale_address_file_does_not_keep_ray_from_starting(ray_folder: Path) -> None:
    stale = f"127.0.0.1:{port_nobody_listens_on()}"
    leave_address(ray_folder, stale)
    finished = run(_START_AND_COUNT)
    assert finished.returncode == 0, finished.stderr
    answer = json.loads(finished.stdout.splitlines()[-1])
    assert answer["nodes"] == 1
    assert answer["address"] != stale


def test_an_address_that_answers_is_joined_rather_than_replaced(ray_folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        leave_address(ray_folder, address)
        assert running_ray() == address


@pytest.mark.parametrize("content", ["", "nonsense", "127.0.0.1:not-a-port"])
def test_a_damaged_address_file_counts_as_none(ray_folder: Path, content: str) -> None:
    leave_address(ray_folder, content)
    assert running_ray() is None


def test_an_address_the_user_named_is_not_silently_replaced(
    ray_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port_nobody_listens_on()}")
    with pytest.raises(RayUnreachable, match=r"No Ray cluster answers at 127\.0\.0\.1"):
        join_or_start_ray()


def test_a_handle_that_outlives_ray_starts_no_other_one() -> None:
    assert not ray.is_initialized()
    with pytest.raises(RayUnreachable, match="has left it"):
        Cluster("of-before").access(timeout=5)
    assert not ray.is_initialized()
