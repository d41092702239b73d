"""Rows of commands: all end well, or the first that fails ends the others."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from tests.rows import rows_of, run

_LONG = [sys.executable, "-c", "import signal; signal.pause()"]


def _says(text: str, status: int = 0) -> list[str]:
    return [sys.executable, "-c", f"print({text!r}); raise SystemExit({status})"]


def _lives(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_all_rows_are_run_and_shown(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run([_says("one"), _says("two"), _says("three")]) == 0
    assert sorted(capfdbinary.readouterr().out.split()) == [b"one", b"three", b"two"]


@pytest.mark.parametrize("place", [0, 1])
def test_a_row_that_fails_ends_the_others(place: int, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    commands = [_LONG]
    commands.insert(place, _says("why it failed", 3))
    assert run(commands) == 3
    assert b"why it failed" in capfdbinary.readouterr().out


def test_what_a_row_has_started_ends_with_it(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    child = f"import os, signal; open({str(note)!r}, 'w').write(str(os.getpid())); signal.pause()"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    with rows_of([[sys.executable, "-c", parent]]) as (row,):
        while not (note.exists() and note.read_text()):
            row.wait(0.01)
    assert row.status()
    deadline = time.monotonic() + 10
    while _lives(int(note.read_text())):
        assert time.monotonic() < deadline
