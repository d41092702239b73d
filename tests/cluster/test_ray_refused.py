"""A Ray that raylog cannot run on is refused with a sentence that says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

import raylog
from raylog.actors.ray_runtime import join_or_start_ray, join_ray
from raylog.errors import RayClientRefused, RayNotStarted, RayUnreachable
from tests.cluster.conftest import StartProgram

pytestmark = pytest.mark.cluster

_HOLD = """
import ray, time
ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
print(ray.get_runtime_context().gcs_address, flush=True)
time.sleep(60)
"""
_JOIN = """
from raylog.actors.ray_runtime import join_ray
from raylog.errors import RayNotAdmitted
try:
    join_ray()
except RayNotAdmitted as error:
    print(error, flush=True)
"""


def test_ray_client_is_refused(ray_folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "ray://127.0.0.1:10001")
    for call in (join_ray, join_or_start_ray, raylog.connect, lambda: raylog.start(tmp_path)):
        with pytest.raises(RayClientRefused, match=r"ray://127\.0\.0\.1:10001.*on a node of the cluster"):
            call()


def test_connecting_starts_no_ray(ray_folder: Path) -> None:
    with pytest.raises(RayUnreachable, match="none is running"):
        raylog.connect()


def test_a_ray_that_does_not_start_in_time_is_told_plainly(ray_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_slow(**_: object) -> None:
        raise Exception("The current node timed out during startup.")  # just so does Ray

    monkeypatch.setattr("ray.init", too_slow)
    with pytest.raises(RayNotStarted, match="timed out during startup"):
        join_or_start_ray()


def test_a_missing_token_is_told_plainly(ray_folder: Path, start_program: StartProgram) -> None:
    token = "0123456789abcdef" * 4
    holder = start_program(_HOLD, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=token)
    assert holder.stdout is not None
    address = holder.stdout.readline().strip()
    refused = start_program(_JOIN, RAY_AUTH_MODE="disabled", RAY_ADDRESS=address)
    assert refused.stdout is not None
    answer = refused.stdout.readline()
    assert f"The Ray cluster at {address} asks for a token" in answer
    assert "set RAY_AUTH_MODE=token" in answer
