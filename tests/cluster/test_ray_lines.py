"""Lines of Ray's that are left out, and all others, which are not."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from raylog.actors.on_ray.runtime.ray_lines import strangers_left_out

pytestmark = pytest.mark.cluster

_WARNING = (
    "WARNING: 9 PYTHON worker processes have been started on node: ab12 with address: 10.0.0.1, which is 4x the "
    "maximum expected startup concurrency (2). This could be a result of using a large number of actors."
)
_PROGRAM = f"""
from ray._private.worker import print_to_stdstream
from raylog.actors.on_ray.runtime.ray_lines import leave_out_worker_counts

leave_out_worker_counts()
for line in ({_WARNING!r}, "a node has died"):
    print_to_stdstream({{"lines": [line], "pid": "raylet", "is_err": False}}, ignore_prefix=False)
"""


@pytest.mark.parametrize(("environment", "is_there"), [({}, False), ({"RAY_DEDUP_LOGS_SKIP_REGEX": "nothing"}, True)])
def test_counts_of_worker_processes_are_left_out_unless_the_user_has_decided(
    environment: dict[str, str], is_there: bool
) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _PROGRAM], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    assert ("startup concurrency" in ran.stdout) == is_there
    assert "a node has died" in ran.stdout


def test_only_lines_about_strangers_are_left_out_of_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    with strangers_left_out():
        os.write(2, b"[W] gcs: Unauthenticated: InvalidAuthToken: missing\nsomething else\n\xff not whole")
    os.write(2, b".\n")
    assert capfd.readouterr().err.startswith("something else\n")


def test_an_error_meanwhile_leaves_stderr_as_it_was(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyError), strangers_left_out():
        raise KeyError
    os.write(2, b"after it\n")
    assert capfd.readouterr().err == "after it\n"
