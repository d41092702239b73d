"""`make demo` runs through, tells it calmly at 80 columns, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.conftest import until

_ROOT = Path(__file__).parents[2]
_SECONDS = 300


@pytest.mark.cluster
@pytest.mark.timeout(_SECONDS + 30)
def test_the_demo_loses_nothing_and_says_so(ray_folder: Path) -> None:
    marked = {**os.environ, "RAYLOG_DEMO_OF": str(ray_folder)}
    ran = subprocess.run(
        [sys.executable, "-m", "examples.demo"],
        cwd=_ROOT, env=marked, capture_output=True, text=True, timeout=_SECONDS, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stderr == ""
    assert max(map(len, ran.stdout.splitlines())) <= 80
    assert re.search(r"^ +lost +0$", ran.stdout, re.MULTILINE), ran.stdout
    assert re.search(r"^ +twice +0$", ran.stdout, re.MULTILINE), ran.stdout
    assert "kill -9" in ran.stdout
    assert re.search(r"^ +counted by Spark +[\d ]+ records/s$", ran.stdout, re.MULTILINE), ran.stdout
    until(lambda: processes_with(f"RAYLOG_DEMO_OF={ray_folder}") == [], 15.0)


def processes_with(variable: str) -> list[str]:
    """Return what still runs of all that was started in this environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if variable.encode() in path.read_bytes():
                found.append((path.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:  # it has just ended
            continue
    return found
