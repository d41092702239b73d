"""The background loop of a process's clients: waits that end, forks, Ctrl-C, and the end of the process."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from raylog.actors.kernel.environment import Server
from raylog.actors.kernel.stream_requests import refuse_all
from raylog.actors.machine.actor_address import Address
from raylog.actors.machine.cluster_access import ClusterAccess
from raylog.actors.machine.real_environment import Place
from raylog.actors.protocol.cluster_secrets import ClusterSecrets
from raylog.api.connection.client_access import link_address
from raylog.api.connection.client_runtime import ClientEnvironment, client_runtime
from raylog.errors import ClusterUnreachable, PeerNotAdmitted, RequestTimedOut

BEGINNING = """
import asyncio, os, sys, threading
from raylog.api.connection.client_runtime import client_runtime
runtime = client_runtime()

async def wait():
    print("waiting", flush=True)
    try:
        await asyncio.sleep(60)
    finally:
        print("given up", flush=True)

def closer(name, seconds=0.2):
    async def close():
        await asyncio.sleep(seconds)
        print("closed", name, flush=True)
    return close
"""


@pytest.fixture
def programs() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for each in started:
        if each.poll() is None:
            each.kill()
        each.communicate(timeout=10)


def start(programs: list[subprocess.Popen[str]], text: str) -> subprocess.Popen[str]:
    program = subprocess.Popen(
        [sys.executable, "-c", BEGINNING + text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    programs.append(program)
    return program


def outcome(program: subprocess.Popen[str]) -> tuple[int, list[str], str]:
    out, err = program.communicate(timeout=20)
    return program.returncode, out.splitlines(), err


def line_of(program: subprocess.Popen[str]) -> str:
    assert program.stdout is not None
    return program.stdout.readline().strip()


# --- waiting ------------------------------------------------------------------------------------------------------


def test_what_work_returns_or_raises_comes_to_whoever_waits() -> None:
    async def work(value: int) -> int:
        if value < 0:
            raise ValueError("too small")
        return value + 1

    assert client_runtime().run(work(1)) == 2
    with pytest.raises(ValueError, match="too small"):
        client_runtime().run(work(-1))
    assert client_runtime() is client_runtime()


def test_a_wait_ends_with_its_time_and_the_work_with_it() -> None:
    ended = threading.Event()

    async def work() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.set()

    with pytest.raises(RequestTimedOut, match="50 ms"):
        client_runtime().run(work(), 0.05)
    assert ended.wait(5.0)


_STANDSTILL = """
from raylog.errors import RequestTimedOut, TransactionPending

async def work():
    print("waiting", flush=True)
    await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=1.0)
    raise TransactionPending("t", "commit_transaction", 1000, "no answer")

try:
    runtime.run(work(), 2.0)
except (RequestTimedOut, TransactionPending) as error:
    print(type(error).__name__, flush=True)
"""


def test_after_a_standstill_of_the_process_the_work_s_own_time_out_is_told(
    programs: list[subprocess.Popen[str]],
) -> None:
    """Both times are over when it goes on; that the loop had no turn says nothing of the transaction."""
    program = start(programs, _STANDSTILL)
    assert program.stdout is not None
    assert program.stdout.readline() == "waiting\n"
    program.send_signal(signal.SIGSTOP)
    time.sleep(3.0)
    program.send_signal(signal.SIGCONT)
    assert program.stdout.readline() == "TransactionPending\n"


def test_a_time_out_of_the_work_itself_is_not_taken_for_that_of_the_wait() -> None:
    async def work() -> None:
        raise asyncio.TimeoutError

    with pytest.raises(asyncio.TimeoutError):
        client_runtime().run(work(), 5.0)


def test_the_loop_does_not_wait_for_itself() -> None:
    async def inner() -> None:
        raise AssertionError("it never begins")

    async def work() -> None:
        client_runtime().run(inner())

    with pytest.raises(RuntimeError, match="wait for ever"):
        client_runtime().run(work(), 5.0)


def test_ctrl_c_ends_a_wait(programs: list[subprocess.Popen[str]]) -> None:
    program = start(programs, "runtime.run(wait())")
    assert line_of(program) == "waiting"
    program.send_signal(signal.SIGINT)
    code, out, err = outcome(program)
    assert (code, out) == (-signal.SIGINT, ["given up"])
    assert "KeyboardInterrupt" in err


# --- the end of the process ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("last", "expected"), [("", 0), ("sys.exit(3)", 3), ("raise ValueError('oh')", 1)], ids=["end", "exit", "error"]
)
def test_the_end_of_a_program_waits_for_its_clients(
    programs: list[subprocess.Popen[str]], last: str, expected: int
) -> None:
    program = start(programs, f"runtime.at_exit(closer('a')); runtime.at_exit(closer('b'))\n{last}")
    code, out, _ = outcome(program)
    assert (code, sorted(out)) == (expected, ["closed a", "closed b"])


def test_threads_that_end_first_may_still_use_it(programs: list[subprocess.Popen[str]]) -> None:
    program = start(
        programs,
        """
runtime.at_exit(closer("client"))
def late():
    import time
    time.sleep(0.3)
    print(runtime.run(asyncio.sleep(0.1, "still there")), flush=True)
threading.Thread(target=late).start()
""",
    )
    assert outcome(program)[:2] == (0, ["still there", "closed client"])


def test_what_is_taken_back_is_not_closed_again(programs: list[subprocess.Popen[str]]) -> None:
    program = start(programs, "runtime.at_exit(closer('a'))(); runtime.at_exit(closer('b'))")
    assert outcome(program)[:2] == (0, ["closed b"])


def test_ctrl_c_ends_the_wait_at_the_end(programs: list[subprocess.Popen[str]]) -> None:
    program = start(programs, "runtime.at_exit(closer('slow', 60)); print('ending', flush=True)")
    assert line_of(program) == "ending"
    assert program.stderr is not None
    assert "Ctrl-C gives that up" in program.stderr.readline()
    program.send_signal(signal.SIGINT)
    _, out, err = outcome(program)
    assert out == []
    assert "KeyboardInterrupt" in err


def test_one_client_that_fails_does_not_keep_others_from_closing(programs: list[subprocess.Popen[str]]) -> None:
    program = start(
        programs,
        """
async def fail():
    raise ValueError("it went wrong")
runtime.at_exit(fail)
runtime.at_exit(closer("other"))
""",
    )
    code, out, err = outcome(program)
    assert (code, out) == (0, ["closed other"])
    assert "it went wrong" in err


def test_slow_work_is_still_done_while_the_process_ends(programs: list[subprocess.Popen[str]]) -> None:
    program = start(
        programs,
        """
from raylog.actors.protocol.cluster_secrets import ClusterSecrets
from raylog.actors.machine.real_environment import Place
from raylog.api.connection.client_runtime import ClientEnvironment
env = ClientEnvironment(Place("c", ClusterSecrets(1, (), (b"s" * 32,)), "127.0.0.1"), None)
async def close():
    print(await env.off_loop(lambda: "done"), flush=True)
runtime.at_exit(close)
""",
    )
    assert outcome(program)[:2] == (0, ["done"])


def test_clients_that_nobody_closed_end_in_silence(programs: list[subprocess.Popen[str]]) -> None:
    program = start(programs, "runtime.submit(wait()); runtime.run(asyncio.sleep(0.1))")
    assert outcome(program) == (0, ["waiting", "given up"], "")


# --- forks --------------------------------------------------------------------------------------------------------

FORKED = """
def in_child():
    try:
        runtime.run(asyncio.sleep(0))
    except Exception as error:
        print(type(error).__name__, flush=True)
    mine = client_runtime()
    assert mine is not runtime
    mine.at_exit(closer("child's"))
    print(mine.run(asyncio.sleep(0, "a loop of its own")), flush=True)
"""
EXPECTED = ["ClientOfOtherProcess", "a loop of its own", "closed child's"]


def test_a_child_makes_a_loop_of_its_own(programs: list[subprocess.Popen[str]]) -> None:
    program = start(
        programs,
        FORKED
        + """
runtime.at_exit(closer("parent's"))
pid = os.fork()
if pid == 0:
    in_child()
    sys.exit(0)
status = os.waitpid(pid, 0)[1]
print(os.waitstatus_to_exitcode(status), runtime.run(asyncio.sleep(0, "goes on")), flush=True)
""",
    )
    code, out, err = outcome(program)
    assert (code, out) == (0, [*EXPECTED, "0 goes on", "closed parent's"]), err


def test_a_child_of_multiprocessing_closes_its_clients_too(programs: list[subprocess.Popen[str]]) -> None:
    program = start(
        programs,
        FORKED
        + """
import multiprocessing
child = multiprocessing.get_context("fork").Process(target=in_child)
child.start()
child.join(10)
print(child.exitcode, flush=True)
""",
    )
    code, out, err = outcome(program)
    assert (code, out) == (0, [*EXPECTED, "0"]), err


# --- links --------------------------------------------------------------------------------------------------------


def access(cluster_id: str = "cluster-1") -> ClusterAccess:
    near = Address("node-1", ("unix:/run/raylog/b", "tcp:127.0.0.1:9"))
    far = Address("node-2", ("unix:/run/raylog/c", "tcp:192.0.2.1:9"))
    return ClusterAccess(cluster_id, ClusterSecrets(1, (), (b"secret" * 4,)), {2: far, 1: near})


def test_without_ray_the_node_is_known_by_its_address() -> None:
    address = link_address(access(), 1.0)
    assert (address.node_id, address.place.host) == ("node-1", "127.0.0.1")
    assert list(map(str, address.bootstrap)) == ["unix:/run/raylog/b", "tcp:127.0.0.1:9", "tcp:192.0.2.1:9"]


def test_on_none_of_the_nodes_only_tcp_is_used() -> None:
    far = ClusterAccess("cluster-1", ClusterSecrets(1, (), (b"secret" * 4,)), {2: access().brokers[2]})
    address = link_address(far, 1.0)
    assert address.node_id == ""
    assert "tcp:192.0.2.1:9" in map(str, address.bootstrap)


def test_clients_of_a_cluster_share_a_link_until_the_last_of_them_ends() -> None:
    runtime = client_runtime()
    one = runtime.run(runtime.acquire_link(link_address(access(), 1.0)))
    same = runtime.run(runtime.acquire_link(link_address(access(), 1.0)))
    other = runtime.run(runtime.acquire_link(link_address(access("cluster-2"), 1.0)))
    assert one is same
    assert one is not other
    runtime.run(runtime.release_link(one))
    assert [each.is_over for each in (one, other)] == [False, False]
    runtime.run(runtime.release_link(one))
    assert [each.is_over for each in (one, other)] == [True, False]
    again = runtime.run(runtime.acquire_link(link_address(access(), 1.0)))
    assert again is not one
    for link in (again, other):
        runtime.run(runtime.release_link(link))


def test_the_process_id_is_that_of_this_process() -> None:
    assert client_runtime().pid == os.getpid()


# --- what keeps a client out ------------------------------------------------------------------------------------------


async def _served_with(secret: bytes) -> tuple[Server, ClusterAccess]:
    """A broker's address behind which nobody is admitted who holds another secret."""
    place = Place("cluster-3", ClusterSecrets(1, (secret,), (secret,)), "127.0.0.1")
    server, endpoints = await ClientEnvironment(place, None).listen("broker-1", "broker", refuse_all)
    address = Address("node-1", tuple(map(str, endpoints)))
    return server, ClusterAccess("cluster-3", ClusterSecrets(1, (), (b"another" * 4,)), {1: address})


def test_a_client_with_another_secret_is_told_so_and_not_that_nobody_answers() -> None:
    runtime = client_runtime()
    server, wrong = runtime.run(_served_with(b"the right one" * 3))
    link = runtime.run(runtime.acquire_link(link_address(wrong, 1.0)))
    try:
        with pytest.raises(PeerNotAdmitted, match="secret"):
            runtime.run(link.find_topic("clicks", 30.0), 20.0)
    finally:
        runtime.run(runtime.release_link(link))
        runtime.run(server.close())


def test_where_nobody_listens_the_cluster_is_unreachable() -> None:
    runtime = client_runtime()
    link = runtime.run(runtime.acquire_link(link_address(access(), 1.0)))
    try:
        with pytest.raises(ClusterUnreachable, match="Check that its brokers run"):
            runtime.run(link.find_topic("clicks", 1.0), 20.0)
    finally:
        runtime.run(runtime.release_link(link))
