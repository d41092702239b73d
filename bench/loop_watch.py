"""A watch on one process of a cluster, from outside: how long it leaves others waiting, and its memory meanwhile.

A stall is the processor time that the thread of its loop spends between a ping and its answer: what everybody else
waits for. Processor time, and not the clock's, because a busy machine makes everybody wait.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bench.hostile.client import HostileClient, StreamClosed

_PAUSE_SECONDS: Final = 0.001
_MIB: Final = 1 << 20


class ProcessEnded(Exception):
    """The watched process is gone: whatever was done to it held its loop for longer than its lease, or killed it."""


class LoopWatch:
    """Watches while it is open, from a thread. `pid`: a process whose loop's thread bears raylog's mark."""

    def __init__(self, pid: int, connect: Callable[[], HostileClient]) -> None:
        self._pid = pid
        self._clock = _loop_clock(pid)
        self._client = connect()
        self._is_over = threading.Event()
        self._longest = 0
        self._failure: Exception | None = None
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak begins anew
        self._before = memory(pid)
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def end(self) -> tuple[float, float]:
        """(longest stall in ms, most memory above that at the beginning in MiB). ProcessEnded."""
        self._is_over.set()
        self._thread.join()
        self._client.close()
        if self._failure is not None:
            raise ProcessEnded(str(self._failure)) from self._failure
        return self._longest / 1e6, (_status(self._pid, "VmHWM") - self._before) / _MIB

    def _watch(self) -> None:
        try:
            while not self._is_over.is_set():
                before = _nanoseconds(self._clock)
                self._client.ping()
                self._longest = max(self._longest, _nanoseconds(self._clock) - before)
                time.sleep(_PAUSE_SECONDS)
        except (StreamClosed, OSError) as error:  # told by `end`
            self._failure = error


def memory(pid: int) -> int:
    """Return the bytes that it holds now."""
    return _status(pid, "VmRSS")


def _loop_clock(pid: int) -> Path:
    for task in Path(f"/proc/{pid}/task").iterdir():
        if task.joinpath("comm").read_text().startswith("raylog-"):
            return task / "schedstat"
    raise ValueError(f"Process {pid} has no loop of raylog's.")


def _nanoseconds(clock: Path) -> int:
    return int(clock.read_text().split()[0])


def _status(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise ValueError(name)
