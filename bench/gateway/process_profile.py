"""Profiles of running processes: what each asks Linux for, and on which of its functions its loop spends its time.

A process listens for two signals on its loop. After the first cProfile counts the calls of the loop's thread, after the
second it leaves them in a file. A profiled process is half as fast: the figures of its functions are shares of it.
"""

from __future__ import annotations

import asyncio
import cProfile
import os
import pstats
import signal
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

_BEGIN: Final = signal.SIGUSR1
_END: Final = signal.SIGUSR2
_LOOK_SECONDS: Final = 0.05
_WRITE_SECONDS: Final = 10.0


class Spent(NamedTuple):
    """Sums over the threads of a process."""

    processor: float  # seconds on a processor
    queued: float  # seconds for which it could have run, while all processors were taken
    wakes: float  # how often it had slept before it ran


def spent(pid: int) -> Spent:
    """Return what a process has asked Linux for since it began."""
    sums = Spent(0.0, 0.0, 0.0)
    for task in Path(f"/proc/{pid}/task").iterdir():
        processor, queued, _ = map(int, (task / "schedstat").read_text().split())
        lines = (task / "status").read_text().splitlines()
        wakes = next(int(line.split()[1]) for line in lines if line.startswith("voluntary"))
        sums = Spent(sums.processor + processor / 1e9, sums.queued + queued / 1e9, sums.wakes + wakes)
    return sums


class Function(NamedTuple):
    """A function of a profiled process."""

    file: str  # empty: it is not Python's
    name: str
    calls: int
    seconds: float  # without those that it calls


@dataclass(frozen=True)
class Profiles:
    """Profiles of the processes of one run, in a folder."""

    folder: str

    def listen(self, name: str) -> None:
        """Have this process listen for the signals. To be called on its loop, by the name that it is told apart by."""
        profile, loop = cProfile.Profile(builtins=True), asyncio.get_running_loop()
        loop.add_signal_handler(_BEGIN, profile.enable)
        loop.add_signal_handler(_END, self._write, profile, name)

    def _write(self, profile: cProfile.Profile, name: str) -> None:
        profile.disable()
        profile.dump_stats(f"{self._path(name)}.part")
        os.rename(f"{self._path(name)}.part", self._path(name))

    def _path(self, name: str) -> str:
        return f"{self.folder}/{name}.profile"

    def begin(self, pids: Iterable[int]) -> None:
        """Have these processes count."""
        for pid in pids:
            os.kill(pid, _BEGIN)

    def end(self, pids: Mapping[str, int]) -> dict[str, list[Function]]:
        """Return what they have counted, by name. TimeoutError: one does not leave its profile."""
        for pid in pids.values():
            os.kill(pid, _END)
        deadline = time.monotonic() + _WRITE_SECONDS
        while missing := [name for name in pids if not Path(self._path(name)).exists()]:
            if time.monotonic() > deadline:
                raise TimeoutError(f"No profile of {', '.join(missing)} within {_WRITE_SECONDS:.0f} s")
            time.sleep(_LOOK_SECONDS)
        return {name: self._read(name) for name in pids}

    def _read(self, name: str) -> list[Function]:
        counted = pstats.Stats(self._path(name)).stats  # type: ignore[attr-defined]  # typeshed leaves it out
        return [
            Function("" if file == "~" else file, function, calls, seconds)
            for (file, _, function), (_, calls, seconds, _, _) in counted.items()
        ]


def shares(functions: Iterable[Function], rooms: Sequence[tuple[str, str]], others: str) -> dict[str, float]:
    """Return the part that each room has in all their time, the largest first.

    `rooms`: parts of a function's file or name, and the room that they belong to; the first that fits counts.
    """
    found: defaultdict[str, float] = defaultdict(float)
    for each in functions:
        place = f"{each.file}:{each.name}"
        found[next((room for part, room in rooms if part in place), others)] += each.seconds
    whole = sum(found.values()) or 1.0
    return {room: seconds / whole for room, seconds in sorted(found.items(), key=lambda item: -item[1])}
