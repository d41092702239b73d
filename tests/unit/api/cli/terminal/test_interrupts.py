"""Ctrl-C and SIGTERM in the middle of a command: it ends with what it has done, and says so."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from raylog.api.cli.terminal.exit_codes import INTERRUPTED, TERMINATED
from raylog.api.cli.terminal.interrupts import Interrupts

_PROGRAM: Final = """
import os, signal, sys
from raylog.api.cli.terminal.interrupts import interrupts

interrupts.install()
signal.signal(signal.SIGTERM, lambda *_: os._exit(9))  # as Ray does when a process joins it
interrupts.take_back()

from raylog.api.cli.program import program
from tests.unit.api.cli.fake_cluster import FakeCluster, FakeSession

cluster = FakeCluster()
cluster.fill("clicks", 1, 0)
program.main(["produce", "clicks", "-v"], "raylog", obj=FakeSession(cluster))
"""


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [(signal.SIGINT, INTERRUPTED, "interrupted"), (signal.SIGTERM, TERMINATED, "terminated")],
)
def test_a_signal_ends_a_command_with_what_was_done(number: signal.Signals, code: int, word: str) -> None:
    command = [sys.executable, "-c", _PROGRAM]
    with subprocess.Popen(command, 0, None, subprocess.PIPE, subprocess.PIPE, subprocess.PIPE) as ran:
        assert ran.stdin is not None
        assert ran.stdout is not None
        ran.stdin.write(b"one\ntwo\n")
        printed = [ran.stdout.readline(), ran.stdout.readline()]
        ran.send_signal(number)
        _, told = ran.communicate(timeout=30)
    assert printed == [b"clicks\t0\t0\n", b"clicks\t0\t1\n"], told
    assert told.decode() == f"2 records written to clicks.\nraylog: {word}\n"
    assert ran.returncode == code


def test_a_second_signal_ends_the_process_at_once() -> None:
    program = """
import os, signal, sys, time
from raylog.api.cli.terminal.interrupts import interrupts
interrupts.install()
try:
    os.kill(os.getpid(), signal.SIGTERM)
except KeyboardInterrupt:
    os.kill(os.getpid(), signal.SIGINT)
    print("not reached")
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=30, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (INTERRUPTED, b"", b"")


def test_signals_of_a_program_that_has_installed_nothing_stay_its_own() -> None:
    before = signal.getsignal(signal.SIGTERM)
    Interrupts().take_back()
    assert signal.getsignal(signal.SIGTERM) is before


_LATE: Final = """
import os, signal, sys
from raylog.api.cli.terminal.interrupts import interrupts

class Late:
    def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.SIGINT):
        kill(pid, number)

interrupts.install()
interrupts.late = Late()  # goes with its module, after Python has taken its handlers away
sys.exit(7)
"""


def test_an_interrupt_at_the_very_end_leaves_the_exit_code() -> None:
    assert subprocess.run([sys.executable, "-c", _LATE], timeout=60, check=False).returncode == 7


_IN_A_STRING: Final = """
from raylog.api.cli import entry, program

program.run = lambda arguments: exec("raise KeyboardInterrupt")
entry.main()
"""


def test_an_interrupt_while_python_runs_a_string_leaves_the_exit_code(tmp_path: Path) -> None:
    (tmp_path / "entered.py").write_text(_IN_A_STRING)
    ran = subprocess.run([sys.executable, "-m", "entered"], cwd=tmp_path, timeout=60, check=False)
    assert ran.returncode == INTERRUPTED
