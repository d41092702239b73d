"""Commands as a person types them, and what they print: each is a process, on a cluster that goes on by itself."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from select import select
from typing import Final

import pytest

from raylog.api.cli.terminal.exit_codes import FAILED, INTERRUPTED, OK, TERMINATED
from raylog.storage.directory.partition_directory import LOCK_FILE
from tests.cluster.conftest import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

_RAYLOG: Final = [sys.executable, "-m", "raylog.api.cli"]


def raylog(*arguments: str, stdin: str = "", code: int = OK) -> subprocess.CompletedProcess[str]:
    ran = subprocess.run([*_RAYLOG, *arguments], input=stdin, capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == code, ran.stderr
    return ran


@contextmanager
def own_ray_folder() -> Iterator[Path]:
    folder = tempfile.mkdtemp(prefix="rl", dir="/tmp")  # sockets need short paths
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", folder)
        patch.delenv("RAY_ADDRESS", raising=False)
        try:
            yield Path(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Start a cluster of one broker. Returns the folder of its Ray."""
    data_dir = tmp_path_factory.mktemp("data")
    with own_ray_folder() as folder:
        told = raylog("start", str(data_dir), "--num-cpus", "2")
        assert told.stdout.startswith("Cluster 'default' runs with brokers 0 on a Ray of its own at ")
        assert told.stdout.endswith("; `raylog stop --ray` ends both.\n")
        assert told.stderr == ""
        try:
            yield folder
        finally:
            assert raylog("stop", "--ray").stdout.endswith("is ended.\n")
            until(lambda: not processes_in(folder))


def processes_in(folder: Path, title: str = "") -> list[int]:
    """Return the processes of the Ray in this folder; `title`: only those of this name."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command, environment = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
        except OSError:
            continue
        is_of_folder = f"{folder}/ray/session".encode() in command or f"RAY_TMPDIR={folder}\0".encode() in environment
        if is_of_folder and title.encode() in command and int(entry.name) != os.getpid() and command:
            found.append(int(entry.name))
    return found


class Running:
    """A command that goes on, with its stdin open."""

    def __init__(self, *arguments: str) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([*_RAYLOG, *arguments], bufsize=0, stdin=pipe, stdout=pipe, stderr=pipe)

    def write(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode())

    def line(self) -> str:
        assert self.process.stdout is not None
        assert select([self.process.stdout], [], [], 60.0)[0], "it prints nothing"
        return self.process.stdout.readline().decode()

    def ended_by(self, number: signal.Signals) -> tuple[int, str]:
        """(exit code, what it said on stderr)."""
        self.process.send_signal(number)
        return self.end()

    def end(self) -> tuple[int, str]:
        _, told = self.process.communicate(timeout=60)
        return self.process.returncode, told.decode()


@contextmanager
def stopped(pids: list[int]) -> Iterator[None]:
    """Processes that stand still for a while."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def test_topics_records_and_groups(cluster: Path) -> None:
    made = raylog("topic", "create", "clicks", "-p", "2")
    lines = [line.split() for line in made.stdout.splitlines()]
    assert lines == [["TOPIC", "PARTITIONS", "REPLICAS", "STATUS"], ["clicks", "2", "1", "created"]]
    assert made.stderr == ""

    text = "".join(f"user-{number % 7}:{number}\n" for number in range(5_000))
    assert raylog("produce", "clicks", "-K", ":", "-H", "from=shell", stdin=text).stderr == (
        "5000 records written to clicks.\n"
    )
    read = raylog("consume", "clicks", "-e", "-f", "%k:%v %h")
    assert read.stderr == ""
    assert sorted(read.stdout.splitlines()) == sorted(f"{line} from=shell" for line in text.splitlines())
    assert raylog("produce", "clicks", stdin="one more\n").stderr == "1 record written to clicks.\n"

    assert "Did you mean 'clicks'?" in raylog("topic", "describe", "click", code=FAILED).stderr
    assert len(raylog("consume", "clicks", "-g", "billing", "-e").stdout.splitlines()) == 5_001
    assert "billing" in raylog("group", "list").stdout


def test_records_before_one_that_is_wrong_are_written(cluster: Path) -> None:
    raylog("topic", "create", "halves")
    lines = "".join(f"{number}:x\n" for number in range(500))
    failed = raylog("produce", "halves", "-f", "%k:%v", stdin=f"{lines}nothing\n{lines}", code=FAILED)
    assert failed.stderr.startswith("raylog: stdin, record 501: ")
    assert len(raylog("consume", "halves", "-e").stdout.splitlines()) == 500


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [(signal.SIGTERM, TERMINATED, "terminated"), (signal.SIGINT, INTERRUPTED, "interrupted")],
)
def test_a_signal_ends_a_command_with_what_was_done(
    cluster: Path, number: signal.Signals, code: int, word: str
) -> None:
    topic = f"signals-{word}"
    raylog("topic", "create", topic)
    producing = Running("produce", topic)
    producing.write("one\ntwo\n")
    consuming = Running("consume", topic, "-g", f"group-{word}")
    assert [consuming.line(), consuming.line()] == ["one\n", "two\n"]
    assert producing.ended_by(number) == (code, f"2 records written to {topic}.\nraylog: {word}\n")
    assert consuming.ended_by(number) == (code, f"raylog: {word}\n")
    assert raylog("consume", topic, "-g", f"group-{word}", "-e").stdout == "", "what was printed is committed"


def test_who_waits_is_told_why(cluster: Path) -> None:
    raylog("topic", "create", "waits")
    controllers = processes_in(cluster, "ControllerActor")
    assert len(controllers) == 1
    producing, consuming = Running("produce", "waits"), Running("consume", "waits")
    producing.write("one\n")
    assert consuming.line() == "one\n"
    with stopped(controllers):
        listing = Running("topic", "list")
        for host in processes_in(cluster, "ReplicaHostActor"):
            os.kill(host, signal.SIGKILL)  # and nobody makes others
        producing.write("two\n")
        time.sleep(8.0)
    assert consuming.line() == "two\n"
    code, told = listing.end()
    assert code == OK
    assert told.startswith("raylog: Has waited 3 s for an answer of the controller of 'default' to ")
    assert "there is no answer yet\n" in told
    assert all(line.startswith("raylog: Has waited ") for line in told.splitlines())
    code, told = producing.end()
    assert code == OK
    *waits, last = told.splitlines()
    assert last == "2 records written to waits."
    assert waits[0].startswith("raylog: Has waited 3 s for waits-0 to take records: ")
    code, told = consuming.ended_by(signal.SIGTERM)
    *waits, last = told.splitlines()
    assert (code, last) == (TERMINATED, "raylog: terminated")
    assert waits[0].startswith("raylog: Has waited 3 s for records of waits-0: ")


def test_a_program_that_connects_hears_nothing_of_rays(cluster: Path) -> None:
    program = "import raylog; cluster = raylog.connect(); print(cluster.list_topics() is not None)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout == "True\n"
    told = [line for line in ran.stderr.splitlines() if "Connecting to existing Ray" not in line]
    assert [line for line in told if "Connected to Ray" not in line] == []


def test_a_second_name_on_a_running_clusters_directory_is_refused_at_once(cluster: Path) -> None:
    (data_dir,) = {Path(_data_dir(pid)).parent for pid in processes_in(cluster, "BrokerActor")}
    began = time.monotonic()
    told = raylog("start", str(data_dir), "--cluster", "second", code=FAILED).stderr
    assert "runs as 'default'" in told
    assert time.monotonic() - began < 15


def _data_dir(pid: int) -> str:
    """Return the directory in which a broker has its lock."""
    links = (os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir())
    return next(str(Path(each).parent) for each in links if each.endswith(f"/{LOCK_FILE}"))


# --- starts that cannot work --------------------------------------------------------------------------------------


def test_a_start_that_cannot_work_ends_at_once_and_leaves_nothing(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    (locked / "broker-0").mkdir(parents=True)
    with own_ray_folder() as folder, (locked / "broker-0" / LOCK_FILE).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for data_dir, problem, advice, seconds in (
            (str(locked), "is locked by another process", "Stop that process first.", 10),
            ("/proc/raylog/data", "cannot be made: No such file or directory", "Give a path where", 6),
            (f"{locked}/broker-0/{LOCK_FILE}/data", "is a file", "", 6),
        ):
            began = time.monotonic()
            told = raylog("start", data_dir, code=FAILED).stderr
            assert time.monotonic() - began < seconds
            assert told.count("\n") == 1
            assert problem in told or "Not a directory" in told
            assert advice in told
            assert processes_in(folder) == []


def test_after_a_start_that_could_not_work_the_next_one_does(tmp_path: Path) -> None:
    """Start in one program, also if Ray runs by then."""
    program = f"""
import fcntl, time, raylog
from raylog.errors import DirectoryLocked, DirectoryNotMade

def refused(path, error):
    began = time.monotonic()
    try:
        raylog.start(path)
    except error as told:
        assert time.monotonic() - began < 12, time.monotonic() - began
        print(type(told).__name__)

import pathlib
locked = pathlib.Path({str(tmp_path)!r}, "locked")
(locked / "broker-0").mkdir(parents=True)
lock = open(locked / "broker-0" / {LOCK_FILE!r}, "w")
fcntl.flock(lock, fcntl.LOCK_EX)
refused("/proc/raylog/data", DirectoryNotMade)
refused(locked, DirectoryLocked)
cluster = raylog.start({str(tmp_path / "good")!r})
print(cluster.list_topics())
cluster.shutdown()
refused("/proc/raylog/data", DirectoryNotMade)
refused(locked, DirectoryLocked)
cluster = raylog.start({str(tmp_path / "good")!r})
print(len(cluster.describe_cluster().brokers))
cluster.shutdown()
"""
    with own_ray_folder() as folder:
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=200, check=False)
        assert ran.returncode == 0, ran.stderr
        expected = ["DirectoryNotMade", "DirectoryLocked"]
        told = [line for line in ran.stdout.splitlines() if line in expected or line in ("()", "1")]
        assert told == [*expected, "()", *expected, "1"], ran.stdout
        until(lambda: not processes_in(folder))
