"""A program that copies a topic by `raylog.data.stream` until it is killed; its tasks note their processes.

    python -m tests.data.endless_driver ADDRESS SOURCE RESULT FOLDER
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any


def main(address: str, source: str, result: str, folder: str) -> None:
    import ray

    import raylog

    def pass_on(batch: dict[str, Any]) -> dict[str, Any]:
        Path(folder, str(os.getpid())).touch()
        return batch

    ray.init(address, log_to_driver=False)
    sink = raylog.data.sink(result, transaction_timeout_ms=20_000)
    for batch in raylog.data.stream(source, group_id="copies", max_rows=2_000, max_wait_ms=50):
        with batch.transaction(sink) as out:
            out.write(batch.dataset.map_batches(pass_on))


if __name__ == "__main__":
    main(*sys.argv[1:])
