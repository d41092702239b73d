"""Costs of processes, as Linux counts them: processor time and memory; and which process listens at a port."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_LISTENS: Final = "0A"


def processor_share(pids: Sequence[int], seconds: float) -> float:
    """Return what these processes take of one core, in percent, while the caller sleeps for so long."""
    before = {pid: cpu_seconds(pid) for pid in pids}
    began = time.perf_counter()
    time.sleep(seconds)
    spent = sum(cpu_seconds(pid) - before[pid] for pid in pids)
    return 100 * spent / (time.perf_counter() - began)


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process's threads of now have used since they began."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def private_mib(pids: Iterable[int]) -> float:
    """Return the memory that these processes share with nobody."""
    return sum(_private_mib(pid) for pid in pids)


def _private_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private")) / 1024


def listener_at(port: int, proc: Path = _PROC) -> int:
    """Return the pid of the process that listens at a TCP port of this machine. LookupError: none that we may see."""
    tables = [table for name in ("tcp", "tcp6") if (table := proc / "net" / name).exists()]
    sockets = {f"socket:[{inode}]" for table in tables for inode in _listening_inodes(table.read_text(), port)}
    for process in proc.iterdir():
        if process.name.isdigit() and sockets & _open_files(process):
            return int(process.name)
    raise LookupError(f"No process of this user on this machine listens at port {port}.")


def _listening_inodes(table: str, port: int) -> list[str]:
    """Return the inodes of the sockets that listen at a port, from the text of `/proc/net/tcp`."""
    rows = [line.split() for line in table.splitlines()[1:]]
    return [row[9] for row in rows if row[3] == _LISTENS and int(row[1].rpartition(":")[2], 16) == port]


def _open_files(process: Path) -> set[str]:
    try:
        return {name for each in (process / "fd").iterdir() if (name := _link(each))}
    except OSError:  # it has ended, or belongs to another user
        return set()


def _link(descriptor: Path) -> str:
    """Return what a descriptor is of; nothing where it has just been closed."""
    try:
        return os.readlink(descriptor)
    except FileNotFoundError:
        return ""
