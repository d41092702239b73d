"""What a simulated process does with its disk on its loop, where all others of its host wait for it (rule 35)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from tests.simulator.world.machines import Process


class DiskWork(NamedTuple):
    """One operation on the disk."""

    operation: str
    path: str


@contextmanager
def watched(process: Process) -> Iterator[list[DiskWork]]:
    """Yield a list that grows with each operation, but for those that it does beside its loop."""
    found: list[DiskWork] = []
    beside = 0
    do, on_disk = process._do, process.disk.on_operation
    assert on_disk is not None

    def note_beside(work: Callable[[], Any], future: Any) -> None:
        nonlocal beside
        beside += 1
        try:
            do(work, future)
        finally:
            beside -= 1

    def note(operation: str, path: str) -> None:
        if not beside:
            found.append(DiskWork(operation, path))
        on_disk(operation, path)

    process._do, process.disk.on_operation = note_beside, note  # type: ignore[method-assign]
    yield found
