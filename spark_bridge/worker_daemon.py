"""The daemon that an executor forks its Python workers from: PySpark's own, with what our tasks import already there.

    an executor ──once──► python -m raylog.spark_bridge.worker_daemon ──fork──► workers, which run tasks

Each worker would import Arrow, pandas and raylog by itself, half a second of a core; and PySpark looks through all
objects of a worker for garbage after each task, 45 ms where those modules are loaded. What was there before the fork
is left out of that.

What must stay true: importing starts no thread and opens no connection, for a fork would leave those behind; and
nothing is printed, since Spark reads the daemon's port from its output.
"""

from __future__ import annotations

import gc
from importlib import import_module
from typing import Final

_OF_TASKS: Final = (
    "pyarrow.compute",
    "raylog.spark_bridge.batch_read",
    "raylog.spark_bridge.range_reader",
    "raylog.spark_bridge.stream_read",
    "raylog.spark_bridge.task_writer",
)


def preload() -> None:
    for name in _OF_TASKS:
        import_module(name)
    gc.collect()
    gc.freeze()


def main() -> None:
    from pyspark.daemon import manager

    preload()
    manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
