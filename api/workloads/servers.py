"""Redis and NATS for one run: on loopback, on a free port, in a folder that is removed, ended with the run."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Final

from raylog.api.workloads.driver import KAFKA, NATS, REDIS, Target
from raylog.errors import WorkloadFailed

_START_SECONDS: Final = 20.0
_STOP_SECONDS: Final = 5.0
_VERSION: Final = re.compile(r"v?=?(\d+\.\d+\.\d+)")
_PROGRAMS: Final = {REDIS: "redis-server", NATS: "nats-server"}
_CLIENTS: Final = {REDIS: "redis", NATS: "nats", KAFKA: "aiokafka"}


def missing(kind: str) -> str:
    """Return what the system lacks to be measured here; empty: nothing."""
    if kind in _CLIENTS and find_spec(_CLIENTS[kind]) is None:
        return f"its client is not installed (pip install 'raylog[bench]' brings {_CLIENTS[kind]})"
    if kind in _PROGRAMS and shutil.which(_PROGRAMS[kind]) is None:
        return f"there is no {_PROGRAMS[kind]} on PATH"
    return ""


@contextmanager
def server(kind: str) -> Iterator[Target]:
    """Raises WorkloadFailed where it does not start."""
    program = _PROGRAMS[kind]
    with tempfile.TemporaryDirectory(prefix="raylog-bench-") as folder:
        port = _free_port()
        process = subprocess.Popen(
            [program, *_arguments(kind, port, folder)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the bench, which ends it
        )
        try:
            _until_it_answers(process, program, port)
            yield Target(kind, f"127.0.0.1:{port}", _version(program))
        finally:
            _end(process)


def _arguments(kind: str, port: int, folder: str) -> Sequence[str]:
    if kind == REDIS:
        place = ["--bind", "127.0.0.1", "--port", str(port), "--dir", folder]
        return [*place, "--save", "", "--appendonly", "yes", "--appendfsync", "everysec"]
    return ["--addr", "127.0.0.1", "--port", str(port), "--jetstream", "--store_dir", folder]


def _until_it_answers(process: subprocess.Popen[bytes], program: str, port: int) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise WorkloadFailed(program, f"it ended with {process.returncode} instead of starting")
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                return
        except OSError:
            time.sleep(0.05)
    raise WorkloadFailed(program, f"it takes no connections after {_START_SECONDS:g} s")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _version(program: str) -> str:
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    found = _VERSION.search(told)
    return found[1] if found else "unknown"
