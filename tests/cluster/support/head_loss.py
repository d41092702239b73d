"""A cluster whose Ray keeps its control store in a Redis, on hosts of its own, and the loss of its head under load.

    host 1   this machine: the test, and the Redis
    host 2   Ray's head with the controller, in a space of processes of its own: all of them die at once
    host 3   a broker, a writer, and a program for administration        hosts 4, 5   a broker and a member of a group

What is looked at afterwards, each program has noted for itself. All times are of the clock that they share.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from raylog.actors.on_ray.runtime.control_store import PATIENCE, PATIENCE_SECONDS
from tests.cluster.conftest import kill_tree, until
from tests.cluster.support.head_loss_programs import MARK, PARTITIONS, TOPIC
from tests.cluster.support.namespaces import Network

HEAD: Final = 2
WORKERS: Final = (3, 4, 5)
HOSTS: Final = 5
REDIS_SERVER: Final = "redis-server"
_PASSWORD: Final = "not for strangers"
_UP_SECONDS: Final = 90.0
_CALL_SECONDS: Final = 30.0
_SHORT_SECONDS: Final = 1.0
_QUIET_SECONDS: Final = 4.0  # longer than a member may wait for news
_APART: Final = ("unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc")


class Program:
    """One of `head_loss_programs.py`, on a host."""

    def __init__(self, command: list[str], variables: dict[str, str], errors: Path) -> None:
        with errors.open("wb") as log:
            self._process = subprocess.Popen(
                command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self._errors = errors

    def next(self) -> Any:
        """Return what it tells next."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(MARK):
                return json.loads(line.removeprefix(MARK))
        raise AssertionError(f"the program has ended:\n{self._errors.read_text()[-2000:]}")

    def ask(self, name: str, **arguments: object) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([name, arguments]) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = self.next()
        return answer

    def must(self, name: str, **arguments: object) -> Any:
        told = self.ask(name, **arguments)
        assert "answer" in told, told
        return told["answer"]

    def finish(self) -> None:
        """End its input, upon which it tells what it has noted."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        kill_tree(self._process.pid)
        self._process.wait(timeout=10)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()


class HeadLossCluster:
    """Made by `head_loss_cluster`."""

    def __init__(self, network: Network, folder: Path) -> None:
        self._network = network
        self._folder = folder
        self._redis_port = free_port(network.address(1))
        self._head_port = free_port(network.address(1))  # there is as much free on the head's own address
        self._variables = {name: value for name, value in os.environ.items() if name != "XDG_RUNTIME_DIR"}
        self._variables |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        self._variables |= {PATIENCE: str(PATIENCE_SECONDS), "RAY_USAGE_STATS_ENABLED": "0"}
        self._nodes: dict[int, subprocess.Popen[bytes]] = {}
        self._programs: list[Program] = []
        self._redis: subprocess.Popen[bytes] | None = None

    @property
    def head_address(self) -> str:
        return f"{self._network.address(HEAD)}:{self._head_port}"

    def start(self) -> None:
        self._start_redis()
        self.start_head()
        for host in WORKERS:
            arguments = (f"--address={self.head_address}", '--resources={"raylog_broker": 1}')
            self._nodes[host] = self._start_ray(host, {}, *arguments)

    def start_head(self) -> None:
        """Returns when its control store answers."""
        redis = {"RAY_REDIS_ADDRESS": f"{self._network.address(1)}:{self._redis_port}"}
        arguments = (f"--port={self._head_port}", "--include-dashboard=false", f"--redis-password={_PASSWORD}")
        self._nodes[HEAD] = self._start_ray(HEAD, redis, "--head", *arguments)
        until(lambda: answers(self.head_address), _UP_SECONDS)

    def kill_head(self) -> None:
        """Everything on that host, at once."""
        head = self._nodes.pop(HEAD)
        head.kill()
        head.wait(timeout=10)

    def run(self, name: str, host: int) -> Program:
        address = self._network.address(host)
        code = f"from tests.cluster.support.head_loss_programs import {name}; {name}({address!r})"
        command = self._network.command(host, sys.executable, "-c", code)
        variables = {**self._variables, "RAY_ADDRESS": self.head_address, "TMPDIR": str(self._folder / f"h{host}")}
        program = Program(command, variables, self._folder / f"{name}-{host}")
        self._programs.append(program)
        return program

    def is_running(self) -> bool:
        """Nothing has ended by itself."""
        nodes_run = all(node.poll() is None for node in self._nodes.values())
        return nodes_run and all(program.is_running for program in self._programs)

    def end(self) -> None:
        for program in self._programs:
            program.end()
        for process in [*self._nodes.values(), *filter(None, [self._redis])]:
            kill_tree(process.pid)
            process.wait(timeout=10)

    def _start_redis(self) -> None:
        address = self._network.address(1)
        options = ["--bind", address, "--port", str(self._redis_port), "--requirepass", _PASSWORD]
        options += ["--save", "", "--appendonly", "no", "--dir", str(self._folder)]
        with (self._folder / "redis").open("wb") as log:
            self._redis = subprocess.Popen([REDIS_SERVER, *options], stdout=log, stderr=log)
        until(lambda: answers(f"{address}:{self._redis_port}"))

    def _start_ray(self, host: int, variables: dict[str, str], *arguments: str) -> subprocess.Popen[bytes]:
        """Start Ray with folders of its own, as hosts have them."""
        own = self._folder / f"h{host}"
        own.mkdir(exist_ok=True)
        command = [str(Path(sys.executable).with_name("ray")), "start", "--block", "--num-cpus=1", *arguments]
        command += [f"--node-ip-address={self._network.address(host)}", f"--temp-dir={own / 'ray'}"]
        command += ["--object-store-memory=80000000"]
        apart = _APART if host == HEAD else ()
        mine = {"TMPDIR": str(own), "RAYLOG_DATA_DIR": str(own / "data"), **variables}
        with (own / "output").open("ab") as output:
            return subprocess.Popen(
                self._network.command(host, *apart, *command),
                env={**self._variables, **mine}, stdout=output, stderr=output,
            )  # fmt: skip


@contextmanager
def head_loss_cluster(network: Network, folder: Path) -> Iterator[HeadLossCluster]:
    cluster = HeadLossCluster(network, folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.end()


@dataclass(frozen=True)
class HeadLoss:
    """The times that were seen, in seconds where nothing else is said."""

    away: float
    store_after: float  # from the start of the head to an answer of its control store
    controller_after: float  # from there to a controller that serves, with all brokers
    election_after: float  # from the death of a leader to another one
    write_silence: float  # the longest time without an acknowledgement, from the head's death on
    commit_silence: float  # the same for each member's commits
    writes: int

    def __str__(self) -> str:
        return (
            f"head away for {self.away:.0f} s; its control store answers {self.store_after:.1f} s after its start, "
            f"the controller serves {self.controller_after:.1f} s later; "
            f"a leader is replaced in {self.election_after:.2f} s; "
            f"{self.writes} records, longest silence of the writer {self.write_silence:.2f} s, "
            f"of a member's commits {self.commit_silence:.2f} s"
        )


def lose_head(cluster: HeadLossCluster, folder: Path, seconds: float) -> HeadLoss:
    """Kill the head for so long, while a writer and a group go on, and check all that they were told."""
    admin = cluster.run("administrate", WORKERS[0])
    admin.next()
    admin.must("form", directory=str(folder / f"h{WORKERS[0]}" / "data"), nodes=len(WORKERS))
    admin.must("create", topic=TOPIC, partitions=PARTITIONS)
    writer, *members = (cluster.run("write", WORKERS[0]), *(cluster.run("read", host) for host in WORKERS[1:]))
    for program in (writer, *members):
        program.next()
    until(lambda: bool(admin.must("look", timeout=_CALL_SECONDS)["is_whole"]), _UP_SECONDS)
    until(lambda: bool(admin.must("group_has_settled", members=len(members))), _UP_SECONDS)
    time.sleep(_QUIET_SECONDS)

    cluster.kill_head()
    killed = time.monotonic()
    time.sleep(seconds)
    assert cluster.is_running(), "a node or a program has ended because there was no head"
    started = time.monotonic()
    cluster.start_head()
    answered = time.monotonic()
    until(lambda: _all_alive(admin), _UP_SECONDS)
    served = time.monotonic()
    elected = _kill_leader(admin)
    admin.must("create", topic="later", partitions=1)

    ended = time.monotonic()
    writer.finish()
    written = writer.next()
    for member in members:
        member.finish()
    read = [member.next() for member in members]
    _check(written, read, (killed, started, ended))
    return HeadLoss(
        away=started - killed,
        store_after=answered - started,
        controller_after=served - answered,
        election_after=elected,
        write_silence=_longest(written["times"], killed),
        commit_silence=max(_longest(each["times"], killed) for each in read),
        writes=len(written["values"]),
    )


def _all_alive(admin: Program) -> bool:
    told = admin.ask("look", timeout=_SHORT_SECONDS)
    assert told.get("answer", {}).get("control_store", "redis") == "redis"
    return bool(told.get("answer", {}).get("alive") == len(WORKERS))


def _kill_leader(admin: Program) -> float:
    """Seconds until another one leads."""
    before = admin.must("leader")
    began = time.monotonic()
    os.kill(before["pid"], signal.SIGKILL)

    def is_replaced() -> bool:
        now = admin.must("leader")
        return bool(now["epoch"] > before["epoch"] and now["broker"] >= 0)

    until(is_replaced, _UP_SECONDS)
    return time.monotonic() - began


def _check(written: dict[str, Any], read: list[dict[str, Any]], moments: tuple[float, float, float]) -> None:
    killed, started, ended = moments
    errors = [error for each in (written, *read) for error in each["errors"]]
    assert not errors, errors
    moved = [(at - killed, *event) for each in read for at, *event in each["moves"] if killed < at < ended]
    assert not moved, moved
    assert sorted(int(value) for each in read for value in each["values"]) == list(range(len(written["values"])))
    quarters = [killed + (started - killed) * quarter / 4 for quarter in range(5)]
    for each in (written, *read):
        for begin, end in pairwise(quarters):
            assert any(begin < at < end for at in each["times"]), "it did not go on while there was no head"


def _longest(times: list[float], since: float) -> float:
    """The longest time between two of them, from the last one before `since` on."""
    return max(later - earlier for earlier, later in pairwise(times) if later > since)


def why_not() -> str:
    """Return what is missing here; empty: nothing."""
    if shutil.which(REDIS_SERVER) is None:
        return f"there is no {REDIS_SERVER} (the package of Debian has that name)"
    if shutil.which("unshare") is None:
        return "there is no unshare (util-linux)"
    return ""


def free_port(address: str) -> int:
    with socket.create_server((address, 0)) as server:
        return int(server.getsockname()[1])


def answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=1.0):
            return True
    except OSError:
        return False
