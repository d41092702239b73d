"""What Python workers are forked with. In processes of their own, for what is imported stays."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

PREPARED = """
import gc, sys, threading
from raylog.spark_bridge.sessions import worker_daemon
worker_daemon.preload()
assert gc.get_freeze_count() > 10_000
assert {*worker_daemon._OF_TASKS} <= {*sys.modules}
assert "ray" not in sys.modules
assert threading.active_count() == 1
"""
WITHOUT_ARCHIVES = """
import sys
from raylog.spark_bridge.sessions import worker_daemon
worker_daemon.leave_out_archives()
import pyspark.daemon, of_the_user
assert ".zip" not in pyspark.__file__
read_again = [place for place, finder in sys.path_importer_cache.items() if "zip" in type(finder).__name__]
assert read_again == [sys.argv[1]], read_again
"""


def run(program: str, *arguments: str, **environment: str) -> None:
    command = [sys.executable, "-c", program, *arguments]
    together = {**os.environ, **environment}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, env=together)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_it_imports_what_tasks_need_and_starts_and_prints_nothing() -> None:
    run(PREPARED)


def test_sparks_own_archives_are_not_read_again_for_each_task(tmp_path: Path) -> None:
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    home = Path(spec.origin).parent
    archives = [*home.glob("python/lib/*.zip"), *home.glob("jars/spark-core_*.jar")]
    assert len(archives) == 3
    users = tmp_path / "users.zip"
    with zipfile.ZipFile(users, "w") as archive:
        archive.writestr("of_the_user.py", "")
    run(WITHOUT_ARCHIVES, str(users), PYTHONPATH=os.pathsep.join(map(str, [*archives, users])))
