"""Telling raylog's own processes from all others, and ending one of them (rule 26).

A process id alone is not enough: its process may be gone, and the number may belong to another one by now. So each of
our processes has a thread with a name of ours, which every process on the machine can read. Before a kill, a handle of
the process is opened, then the name is checked, and then the handle is signalled; a handle never means another process.
"""

from __future__ import annotations

import hashlib
import logging
import os
import signal
import threading
from pathlib import Path
from typing import Final

_OOM_SCORE: Final = 500
_log = logging.getLogger(__name__)


def mark_thread(cluster_id: str) -> None:
    """Give the calling thread the name that marks this cluster's processes."""
    Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(_mark(cluster_id))


def is_own(pid: int, cluster_id: str) -> bool:
    """Return whether that is a living process of this cluster."""
    mark = _mark(cluster_id)
    try:
        threads = Path(f"/proc/{pid}/task").iterdir()
        return any(thread.joinpath("comm").read_text().strip() == mark for thread in threads)
    except OSError:  # it is gone, or going: a thread's files vanish while one reads them
        return False


def kill_own(pid: int, cluster_id: str) -> None:
    """Send SIGKILL, if that is a living process of this cluster and not this one."""
    if pid == os.getpid():
        return
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if is_own(pid, cluster_id):
            _log.warning("Process %d is killed: it was replaced.", pid)
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it has ended by itself meanwhile
    finally:
        os.close(handle)


def outlive_others() -> None:
    """Make the kernel, out of memory, kill Ray's other workers (1000) before us, and us before the raylet (0)."""
    try:
        Path("/proc/self/oom_score_adj").write_text(str(_OOM_SCORE))
    except OSError as error:  # a container may forbid it; then this process is as likely to be killed as any worker
        _log.info("The kernel's memory killer makes no difference between this process and others: %s", error)


def take_normal_priority() -> None:
    """Run at the priority of ordinary programs. Ray gives its workers niceness 15.

    Beside as many busy programs as cores a broker had 3 % of a core then: too little for its signs of life. It takes a
    privilege; a Ray that raylog starts gives niceness 0 anyway. To be called before the core's thread starts, which
    inherits it.
    """
    for task in Path("/proc/self/task").iterdir():
        try:
            os.setpriority(os.PRIO_PROCESS, int(task.name), 0)
        except ProcessLookupError:
            continue  # the thread has ended
        except PermissionError as error:
            _log.info("This process keeps the niceness that Ray gives its workers: %s", error)
            return


def _mark(cluster_id: str) -> str:
    return "raylog-" + hashlib.blake2s(cluster_id.encode(), digest_size=4).hexdigest()  # 15 bytes, the most there is
