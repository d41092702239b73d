"""A folder for a Ray that a test starts, and processes that end with their test."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import folder_for_ray

StartProgram = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def ray_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for a Ray that the test starts in processes of its own."""
    with folder_for_ray() as folder:
        monkeypatch.setenv("RAY_TMPDIR", str(folder))
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        yield folder


@pytest.fixture
def start_program() -> Iterator[StartProgram]:
    """Runs Python programs; whatever they have started and left is killed in the end."""
    programs: list[subprocess.Popen[str]] = []

    def start(text: str, **environment: str) -> subprocess.Popen[str]:
        program = subprocess.Popen(
            [sys.executable, "-c", text],
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            text=True,
        )
        programs.append(program)
        return program

    yield start
    for program in programs:
        kill_tree(program.pid)
        program.communicate(timeout=10)


def until(condition: Callable[[], bool], seconds: float = 40.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.05)


def kill_tree(pid: int) -> None:
    """SIGKILL for a process and all that come from it."""
    for each in [*_descendants(pid), pid]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)


def _descendants(pid: int) -> list[int]:
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for known in found:
        found.extend(child for child, parent in parents.items() if parent == known)
    return found[1:]
