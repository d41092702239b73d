"""Runs a command in the processor time that nobody else wants: `python -m tests.spare_time make test-thorough`.

A real Ray leaves half of two cores idle, and its tests look at the clock; so what they leave is there for those that
need nothing but processors, and only that.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path


def main(command: list[str]) -> None:
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    # A kernel that schedules by sessions weighs these first, and their processes only within them. A shell's job cannot
    # leave its session, which is fine: it has the terminal's to itself.
    with contextlib.suppress(PermissionError):
        os.setsid()
    with contextlib.suppress(OSError):  # one that does not has no such file
        Path("/proc/self/autogroup").write_text("19")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
