"""The consumer of a workload, in a process of its own: `python -m raylog.api.workloads.subscriber`.

    stdin    a pickled `Order`; later one line, the number of records there will have been
    stdout   "ready", then one line of JSON

It reads until it has that many, or until nothing has come for a while.
"""

from __future__ import annotations

import asyncio
import json
import pickle
import sys
import threading
import time
from dataclasses import asdict, dataclass
from typing import Final

from raylog.api.workloads.driver import Target, open_driver
from raylog.api.workloads.workload import NOT_MEASURED, Workload, due_of, latency_of

IDLE_SECONDS: Final = 15.0
_POLL_SECONDS: Final = 0.2


@dataclass(frozen=True)
class Order:
    target: Target
    topic: str
    workload: Workload


class _Expected:
    """The number of records there will be, once that is known."""

    def __init__(self) -> None:
        self.count: int | None = None

    def read(self) -> None:
        line = sys.stdin.buffer.readline()
        if line:
            self.count = int(line)


async def _follow(order: Order, expected: _Expected) -> dict[str, object]:
    driver = await open_driver(order.target)
    subscriber = await driver.subscriber(order.topic, order.workload)
    print("ready", flush=True)
    threading.Thread(target=expected.read, daemon=True).start()
    samples: list[float] = []
    count, began = 0, time.monotonic_ns()
    last = began
    while expected.count is None or count < expected.count:
        values = await subscriber.poll(_POLL_SECONDS)
        now = time.monotonic_ns()
        if values:
            count, last = count + len(values), now
            samples += [(now - due) / 1e9 for due in map(due_of, values) if due != NOT_MEASURED]
        elif now - last > IDLE_SECONDS * 1e9:
            break
    await subscriber.close()
    await driver.close()
    return {"count": count, "seconds": (last - began) / 1e9, "latency": asdict(latency_of(samples))}


def main() -> None:
    order: Order = pickle.load(sys.stdin.buffer)
    print(json.dumps(asyncio.run(_follow(order, _Expected()))), flush=True)


if __name__ == "__main__":
    main()
