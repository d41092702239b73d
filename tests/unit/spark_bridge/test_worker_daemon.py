"""What Python workers are forked with."""

from __future__ import annotations

import subprocess
import sys

LOOK = """
import gc, sys, threading
from raylog.spark_bridge import worker_daemon
worker_daemon.preload()
assert gc.get_freeze_count() > 10_000
assert {*worker_daemon._OF_TASKS} <= {*sys.modules}
assert "ray" not in sys.modules
assert threading.active_count() == 1
"""


def test_it_imports_what_tasks_need_and_starts_and_prints_nothing() -> None:
    """In a process of its own, for what is imported stays."""
    ended = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
