"""The processor time of a new file where a cluster of the benchmarks keeps its data.

A follower makes three files when it is created and a leader five, so this is the floor for creating many. Journalled
file systems take 0.01 ms. ext4 without a journal passes over each inode that was freed within some minutes: up to
0.23 ms have been seen while directories of earlier clusters had just been removed.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Final

_DIRECTORIES: Final = 100
_FILES_EACH: Final = 4


def new_file_ms() -> float:
    """Return what one new file costs, in milliseconds of the processor, among new directories of few files each."""
    with tempfile.TemporaryDirectory(prefix="raylog-bench-", dir=os.environ.get("RAYLOG_BENCH_DIR")) as folder:
        spent = sum(_made(Path(folder, str(number))) for number in range(_DIRECTORIES))
    return 1000 * spent / (_DIRECTORIES * _FILES_EACH)


def _made(directory: Path) -> float:
    directory.mkdir()
    began = time.thread_time()
    for number in range(_FILES_EACH):
        directory.joinpath(str(number)).touch()
    return time.thread_time() - began
