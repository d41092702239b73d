"""The command itself, from start to stop: each step is a process of its own, as at a terminal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from raylog.api.cli.terminal.exit_codes import CLOSED_PIPE, FAILED, INTERRUPTED, OK
from tests.cluster.conftest import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

_RAYLOG = [sys.executable, "-m", "raylog.api.cli"]


def raylog(*arguments: str, stdin: str = "", code: int = OK) -> subprocess.CompletedProcess[str]:
    ran = subprocess.run([*_RAYLOG, *arguments], input=stdin, capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == code, ran.stderr
    assert "Traceback" not in ran.stderr
    return ran


@pytest.fixture
def started(ray_folder: Path, tmp_path: Path) -> Iterator[Path]:
    """A cluster that goes on by itself, and with it the Ray that was started for it."""
    told = json.loads(raylog("start", str(tmp_path), "--num-cpus", "2", "--format", "json").stdout)
    assert told["started_ray"]
    assert told["brokers"] == [0]
    try:
        yield tmp_path
    finally:
        ended = raylog("stop", "--ray")
        assert ended.stdout.endswith("is ended.\n")
        until(lambda: not _processes_of(ray_folder))


def _processes_of(folder: Path) -> list[int]:
    """Return the processes that run in the session of this Ray."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if f"{folder}/ray/session".encode() in entry.read_bytes():
                found.append(int(entry.parent.name))
        except OSError:
            continue
    return found


def interrupted(*arguments: str, after: str = "") -> subprocess.CompletedProcess[str]:
    """Ctrl-C as soon as it has printed that line; without one, after a moment."""
    # Without a buffer: `communicate` would not give back what a `readline` has read ahead.
    process = subprocess.Popen(
        [*_RAYLOG, *arguments], bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    printed: list[bytes] = []
    if after:
        while not printed or printed[-1] != f"{after}\n".encode():
            printed.append(process.stdout.readline())
            assert printed[-1], "it ended before"
    else:
        time.sleep(0.3)  # somewhere among its imports
    process.send_signal(signal.SIGINT)
    rest, stderr = process.communicate(timeout=60)
    printed.append(rest)
    return subprocess.CompletedProcess(
        process.args, process.returncode, b"".join(printed).decode(), stderr.decode()
    )


def test_from_start_to_stop(started: Path) -> None:
    assert raylog("topic", "create", "clicks", "-p", "2").stderr == ""
    lines = "".join(f"user-{number % 7}:{number}\n" for number in range(20_000))
    assert raylog("produce", "clicks", "-K", ":", stdin=lines).stderr == "20000 records written to clicks.\n"

    everything = raylog("consume", "clicks", "-e", "-f", "%k:%v")
    assert everything.stderr == ""
    assert sorted(everything.stdout.splitlines()) == sorted(lines.splitlines())

    reader = subprocess.Popen([*_RAYLOG, "consume", "clicks"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert reader.stdout is not None
    assert reader.stderr is not None
    assert reader.stdout.readline().strip().isdigit()
    reader.stdout.close()
    assert reader.wait(30) == CLOSED_PIPE
    assert reader.stderr.read() == b""
    reader.stderr.close()

    followed = interrupted("consume", "clicks", "-g", "billing", after="19999")
    assert (followed.returncode, followed.stderr) == (INTERRUPTED, "raylog: interrupted\n")
    (group,) = json.loads(raylog("group", "describe", "billing", "--format", "json").stdout)
    read = sum(each["committed"] for each in group["partitions"])
    assert 1 <= read <= len(followed.stdout.splitlines())  # what it has printed, whichever partition came first
    rest = raylog("consume", "clicks", "-g", "billing", "-e").stdout.splitlines()
    assert len(rest) == 20_000 - read

    told = raylog("bench", "--seconds", "0.3", "--rate", "100", "-p", "1", "--format", "json")
    (measured,) = json.loads(told.stdout)["results"]
    assert measured["guarantee"] == "in the page cache of the one replica; written once"
    assert measured["aggregatedPublishLatencyCount"] == measured["aggregatedEndToEndLatencyCount"] == 30
    assert "clicks" in raylog("top", "--once", "--interval", "0.2").stdout

    assert "Did you mean 'clicks'?" in raylog("topic", "describe", "click", code=FAILED).stderr
    assert "'default'" in raylog("status", "--cluster", "other", code=FAILED).stderr
    os.environ["RAY_ADDRESS"] = "127.0.0.1:1"
    try:
        assert raylog("status", code=FAILED).stderr.count("\n") == 1
    finally:
        del os.environ["RAY_ADDRESS"]


def test_without_a_cluster_every_command_says_so(ray_folder: Path) -> None:
    told = raylog("stop", code=FAILED)
    assert told.stderr.startswith("raylog: No Ray is running on this machine")
    early = interrupted("topic", "list")
    assert early.returncode in (INTERRUPTED, FAILED), early.stderr
    assert "Traceback" not in early.stderr


def test_what_ray_tells_drivers_does_not_reach_stdout() -> None:
    program = """
from raylog.api.cli.session.joining import keep_ray_off_stdout
from ray._private.worker import print_to_stdstream
{silence}
print_to_stdstream({{"lines": ["a complaint"], "pid": "raylet", "is_err": False}}, ignore_prefix=False)
"""
    loud, quiet = (
        subprocess.run(
            [sys.executable, "-c", program.format(silence=silence)], capture_output=True, text=True, check=True
        )
        for silence in ("", "keep_ray_off_stdout()")
    )
    assert "a complaint" in loud.stdout
    assert quiet.stdout == ""
