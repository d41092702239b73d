"""Records as every client of these tests tells them, and what writers and members report."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

SECONDS: Final = 30.0
"""The time within which a client has to have done one thing."""

_BURST: Final = 10
_PAUSE_SECONDS: Final = 0.04


class Record(NamedTuple):
    """A record at its place. Headers are pairs of a name and bytes."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


@dataclass
class Written:
    """`sent`: values in the order of sending. `acknowledged`: (offset, value). `errors`: of records that failed."""

    sent: list[bytes] = field(default_factory=list)
    acknowledged: list[tuple[int, bytes]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


@dataclass
class Shared:
    """What a member of a group has read: (partition, offset), value."""

    found: dict[tuple[int, int], bytes] = field(default_factory=dict)
    repeated: int = 0

    def add(self, partition: int, offset: int, value: bytes | None) -> None:
        self.repeated += (partition, offset) in self.found
        self.found[partition, offset] = value or b""


def read_until(count: int, poll: Callable[[], list[Record]]) -> list[Record]:
    """Poll until there are so many records, or the time is over."""
    found: list[Record] = []
    deadline = time.monotonic() + SECONDS
    while len(found) < count and time.monotonic() < deadline:
        found += poll()
    return found


def values(name: str, stop: threading.Event) -> Iterator[bytes]:
    """Values to be written one after the other, in bursts, until it is time to stop."""
    number = 0
    while not stop.is_set():
        for _ in range(_BURST):
            yield f"{name}-{number}".encode()
            number += 1
        time.sleep(_PAUSE_SECONDS)
