"""A program that copies a topic by `raylog.data.stream`, until the test kills it between its write and its commit.

    python -m tests.data.streaming_driver ADDRESS SOURCE RESULT FOLDER BATCHES

After so many batches it says that it has written the next one, and waits. The first worker of all kills itself.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any


def copy_all(source: str, result: str, group_id: str, **options: Any) -> int:
    """Return how many records there were."""
    import raylog

    sink, count = raylog.data.sink(result), 0
    with raylog.data.stream(source, group_id=group_id, **options) as batches:
        for batch in batches:
            with batch.transaction(sink) as out:
                count += out.write(batch.dataset)
    return count


def main(address: str, source: str, result: str, folder: str, batches: str) -> None:
    import ray

    import raylog

    mark = f"{folder}/killed"

    def pass_on(batch: dict[str, Any]) -> dict[str, Any]:
        if not Path(mark).exists():
            Path(mark).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return batch

    ray.init(address, log_to_driver=False)
    left = int(batches)
    sink = raylog.data.sink(result)
    for batch in raylog.data.stream(source, group_id="copies", max_rows=200, max_wait_ms=50):
        with batch.transaction(sink) as out:
            out.write(batch.dataset.map_batches(pass_on))
            if left == 0:
                sys.stdout.write("written, not committed\n")
                sys.stdout.flush()
                time.sleep(100)
        left -= 1


if __name__ == "__main__":
    main(*sys.argv[1:])
