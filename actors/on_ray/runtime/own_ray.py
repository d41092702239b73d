"""A Ray that outlives the command that started it, and can be stopped without touching any other.

`ray stop` ends every Ray of this machine. So the Ray started here has a mark in its environment, which all its
processes inherit, with workers and their children. The mark is noted, and stopping ends all processes that have it.

What must stay true: a process is signalled only through a handle that was opened before its mark was read. So a process
id that was reused does no harm.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from raylog.actors.on_ray.runtime.java_runtime import java_on_path
from raylog.actors.on_ray.runtime.join_ray import named_address, one_process_at_a_time, running_ray
from raylog.actors.on_ray.runtime.own_notes import read_note, remove_note, write_note
from raylog.actors.on_ray.runtime.ray_tokens import turn_tokens_on
from raylog.actors.on_ray.runtime.worker_priority import normal_priority
from raylog.errors import RayNotStarted

START_SECONDS: Final = 60.0
_NOTE: Final = "head"
_MARK: Final = "RAYLOG_STARTED_RAY"
_DEFAULT_PORT: Final = 6379
_RAYLET_SECONDS: Final = 5.0  # to end its workers
_POLITE_SECONDS: Final = 1.0  # for the others after it: they keep nothing, and one waits for the others in vain
_KILL_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 0.05


@dataclass(frozen=True)
class OwnRay:
    """The note about the Ray that was started here last."""

    address: str
    mark: str


@dataclass(frozen=True)
class RaySettings:
    """Settings of a new Ray; None: Ray's defaults."""

    port: int | None = None
    num_cpus: int | None = None
    dashboard: bool = False


def find_or_start_ray(settings: RaySettings, timeout: float = START_SECONDS) -> OwnRay | None:
    """Start a Ray that goes on by itself, and return it. None: one is running, or `RAY_ADDRESS` names one.

    RayNotStarted, RayUnreachable, RayClientRefused.
    """
    with one_process_at_a_time():
        if named_address() or running_ray():
            return None
        mark = uuid.uuid4().hex
        _start(mark, settings, timeout)
        own = OwnRay(running_ray() or "", mark)
        write_note(_NOTE, json.dumps({"address": own.address, "mark": own.mark}))
    return own


def own_ray() -> OwnRay | None:
    """Return the Ray started here that still runs, at least in part."""
    text = read_note(_NOTE)
    if not text:
        return None
    noted = json.loads(text)
    own = OwnRay(str(noted["address"]), str(noted["mark"]))
    return own if _carriers(own.mark) else None


def stop_own_ray(own: OwnRay) -> list[int]:
    """End its processes, the raylet first, which ends its workers. Return the ids of those that did not end."""
    _signal(own.mark, signal.SIGTERM, only="raylet")
    _until_gone(own.mark, _RAYLET_SECONDS, only="raylet")
    _signal(own.mark, signal.SIGTERM)
    _until_gone(own.mark, _POLITE_SECONDS)
    _signal(own.mark, signal.SIGKILL)
    left = _until_gone(own.mark, _KILL_SECONDS)
    if not left:
        remove_note(_NOTE)
    return left


def _start(mark: str, settings: RaySettings, timeout: float) -> None:
    turn_tokens_on()
    # In a session of its own, so that neither Ctrl-C nor the end of the terminal reaches it. Its output goes to a
    # file: the processes it leaves behind would keep a pipe open.
    with tempfile.TemporaryFile("w+") as output, java_on_path():  # which a node has for as long as it lives, or never
        ray = subprocess.Popen(
            [sys.executable, "-m", "ray.scripts.scripts", "start", *_arguments(settings)],
            env={**os.environ, **normal_priority(), _MARK: mark, "RAY_USAGE_STATS_ENABLED": "0"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            if ray.wait(timeout) == 0:
                return
            reason = _last_line(output)
        except subprocess.TimeoutExpired:
            reason = f"it took longer than {timeout:g} s"
        except BaseException:  # an interrupt: nothing half started is left behind
            stop_own_ray(OwnRay("", mark))
            raise
    stop_own_ray(OwnRay("", mark))
    raise RayNotStarted(reason)


def _arguments(settings: RaySettings) -> list[str]:
    port = settings.port if settings.port is not None else _free_port()
    arguments = ["--head", f"--port={port}", f"--include-dashboard={str(settings.dashboard).lower()}"]
    arguments.append("--disable-usage-stats")
    if settings.num_cpus is not None:
        arguments.append(f"--num-cpus={settings.num_cpus}")
    return arguments


def _free_port() -> int:
    """Return Ray's usual port where it is free, so that other nodes find it there; else any (0)."""
    with socket.socket() as probe:
        try:
            probe.bind(("", _DEFAULT_PORT))
        except OSError:
            return 0
    return _DEFAULT_PORT


def _last_line(output: IO[str]) -> str:
    output.seek(0)
    lines = [line.strip() for line in output.read().splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


# --- its processes ------------------------------------------------------------------------------------------------


def _carriers(mark: str, only: str = "") -> list[int]:
    """Return processes of this user that have the mark; `only`: those of this name."""
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [pid for pid in pids if _carries(pid, mark) and (not only or _name_of(pid) == only)]


def _carries(pid: int, mark: str) -> bool:
    if pid == os.getpid():
        return False
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # another user's, or gone
        return False
    return f"{_MARK}={mark}".encode() in environment.split(b"\0")


def _name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _signal(mark: str, number: signal.Signals, only: str = "") -> None:
    for pid in _carriers(mark, only):
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            handle = os.pidfd_open(pid)
            try:
                if _carries(pid, mark):
                    signal.pidfd_send_signal(handle, number)
            finally:
                os.close(handle)


def _until_gone(mark: str, timeout: float, only: str = "") -> list[int]:
    deadline = time.monotonic() + timeout
    while (left := _carriers(mark, only)) and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
    return left
