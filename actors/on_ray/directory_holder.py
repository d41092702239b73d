"""The process that has a broker's directory open, and the name under which its cluster runs.

    .lock    flock of the process that has the directory, and the text "pid 123 of cluster 'default'"

The text is a hint for people, written by the broker's shell; the lock itself is the kernel's, and ends with its holder.
Looking takes the lock for a moment, as a shared lock. A broker that starts in that moment is refused, and is started
again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from dataclasses import dataclass
from typing import Final

from raylog.storage.directory.partition_directory import LOCK_FILE

_MAX_TEXT: Final = 256
_SIGNATURE: Final = re.compile(r"pid (\d+)(?: of cluster '([^']*)')?")


@dataclass(frozen=True)
class Holder:
    """A process that has a directory. `cluster` empty, `pid` −1: it has not written them yet."""

    pid: int = -1
    cluster: str = ""

    def __str__(self) -> str:
        if self.pid < 0:
            return "it has not said which"
        return f"process {self.pid}" + (f" of the cluster {self.cluster!r}" if self.cluster else "")


def sign(directory: str, cluster: str) -> None:
    """Write under which name this process runs. The caller holds the lock. A full disk may prevent it."""
    with contextlib.suppress(OSError), open(f"{directory}/{LOCK_FILE}", "r+") as file:
        file.write(f"pid {os.getpid()} of cluster {cluster!r}\n")
        file.truncate()


def holder_of(directory: str) -> Holder | None:
    """Return the process that has it; None: no process has it, or it is missing."""
    try:
        fd = os.open(f"{directory}/{LOCK_FILE}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # opening the directory reports what is wrong with it
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _parse(os.pread(fd, _MAX_TEXT, 0).decode(errors="replace"))
    finally:
        os.close(fd)
    return None


def _parse(text: str) -> Holder:
    match = _SIGNATURE.fullmatch(text.strip())
    return Holder(int(match[1]), match[2] or "") if match else Holder()
