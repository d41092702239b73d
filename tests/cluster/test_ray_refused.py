"""A Ray that raylog cannot run on is refused with a sentence that says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

import raylog
from raylog.actors.on_ray.runtime.join_ray import join_or_start_ray, join_ray
from raylog.errors import RayClientRefused, RayNotStarted, RayUnreachable
from tests.cluster.conftest import StartProgram

pytestmark = pytest.mark.cluster

_HOLD = """
import ray, time
ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
print(ray.get_runtime_context().gcs_address, flush=True)
time.sleep(60)
"""
_TOKENS = """
import logging, sys
logging.basicConfig(level=logging.WARNING, stream=sys.stdout)
import os, time
from raylog.actors.on_ray.runtime.join_ray import join_or_start_ray, join_ray, tell_if_open
{how}
for _ in range(2):
    tell_if_open()
print("mode", os.environ.get("RAY_AUTH_MODE"), flush=True)
"""
_START = "join_or_start_ray(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level='ERROR')"
_JOIN = """
from raylog.actors.on_ray.runtime.join_ray import join_ray
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


def told_by(start_program: StartProgram, how: str, **environment: str) -> list[str]:
    program = start_program(_TOKENS.format(how=how), **environment)
    assert program.stdout is not None
    lines = []
    for line in program.stdout:
        lines.append(line)
        if line.startswith("mode "):
            break
    return [line for line in lines if "TOKEN" in line or line.startswith("mode ")]


def test_a_ray_that_raylog_starts_has_tokens_unless_they_were_turned_off(
    ray_folder: Path, start_program: StartProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    monkeypatch.setenv("HOME", str(ray_folder))  # where the token is made
    assert told_by(start_program, _START) == ["mode token\n"]
    assert (ray_folder / ".ray" / "auth_token").exists()


def test_a_ray_without_tokens_is_told_of_once_and_loudly(ray_folder: Path, start_program: StartProgram) -> None:
    holder = start_program(_HOLD, RAY_AUTH_MODE="disabled")
    assert holder.stdout is not None
    address = holder.stdout.readline().strip()
    told = told_by(start_program, "join_ray()", RAY_AUTH_MODE="disabled", RAY_ADDRESS=address)
    assert len(told) == 2
    assert f"THE RAY AT {address} ASKS NOBODY FOR A TOKEN" in told[0]


def test_of_a_ray_with_tokens_nothing_is_told(ray_folder: Path, start_program: StartProgram) -> None:
    secret = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0123456789abcdef" * 4}
    holder = start_program(_HOLD, **secret)
    assert holder.stdout is not None
    address = holder.stdout.readline().strip()
    assert told_by(start_program, "join_ray()", RAY_ADDRESS=address, **secret) == ["mode token\n"]
