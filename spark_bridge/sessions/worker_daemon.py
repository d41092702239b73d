"""The daemon that an executor forks its Python workers from: PySpark's own, with what our tasks import already there.

    an executor ──once──► python -m raylog.spark_bridge.sessions.worker_daemon ──fork──► workers, which run tasks

What it saves, by what was measured:
- Each worker would import Arrow, pandas and raylog by itself: half a second of a core.
- Before each task PySpark has Python forget what lies on its path. Spark has put its archives there (`pyspark.zip`, and
  a jar), and reading their contents again takes 80 ms. They hold nothing that is not installed beside them.
- After each task PySpark looks through all objects for garbage: 45 ms, but for those that were there before the fork.

What must stay true: importing starts no thread and opens no connection, for a fork would leave those behind; and
nothing is printed, since Spark reads the daemon's port from its output.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final

_OF_TASKS: Final = (
    "pyarrow.compute",
    "raylog.spark_bridge.reading.batch_read",
    "raylog.api.jobs.range_reader",
    "raylog.spark_bridge.reading.stream_read",
    "raylog.spark_bridge.writing.task_writer",
)


def leave_out_archives() -> None:
    """Leave the archives of the installed PySpark out of Python's path. To be called before anything of PySpark is
    imported.
    """
    archives = [place for place in sys.path if place.endswith((".zip", ".jar"))]
    rest = [place for place in sys.path if place not in archives]
    found = PathFinder.find_spec("pyspark", rest)
    if found is None or found.origin is None or PathFinder.find_spec("py4j", rest) is None:
        return
    home = Path(found.origin).resolve().parent
    for place in archives:
        if Path(place).resolve().is_relative_to(home):
            sys.path.remove(place)
            sys.path_importer_cache.pop(place, None)


def preload() -> None:
    for name in _OF_TASKS:
        import_module(name)
    gc.collect()
    gc.freeze()


def main() -> None:
    leave_out_archives()
    from pyspark.daemon import manager

    preload()
    manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
