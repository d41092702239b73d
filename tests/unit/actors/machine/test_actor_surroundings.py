"""Names, addresses, sockets' paths and certificates: what the shells take from their surroundings."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from raylog.actors.machine.actor_address import Address
from raylog.actors.machine.own_processes import is_own
from raylog.actors.machine.socket_directory import (
    _held,
    is_dead,
    is_of_this_host,
    listening_socket,
    remove_dead_sockets,
    socket_directory,
    socket_path,
    sweep_beside,
)
from raylog.actors.machine.tls import RayTls
from raylog.actors.protocol.actor_names import broker_id_of, broker_name, host_name, namespace
from raylog.actors.protocol.endpoint import Endpoint
from raylog.errors import InvalidConfig, PeerUnreachable, SocketInUse


@pytest.mark.parametrize("name", ["", ".", "-a", "a/b", "a b", "x" * 101, "ü"])
def test_a_cluster_cannot_have_every_name(name: str) -> None:
    with pytest.raises(InvalidConfig, match="'cluster'"):
        namespace(name)


def test_names_tell_what_an_actor_is() -> None:
    assert broker_id_of(broker_name(12)) == 12
    assert broker_id_of(host_name(1, 2)) is None
    assert broker_id_of("broker-x") is None


def test_processes_of_one_node_meet_at_the_unix_socket_and_all_others_over_tcp() -> None:
    address = Address("node-a", ("unix:/tmp/x/broker-0", "tcp:10.0.0.1:4711"))
    assert address.nearest_to("node-a") == Endpoint(path="/tmp/x/broker-0")
    assert address.nearest_to("node-b") == Endpoint(host="10.0.0.1", port=4711)
    with pytest.raises(PeerUnreachable):
        Address("node-a", ("unix:/tmp/x/broker-0",)).nearest_to("node-b")


@pytest.mark.parametrize("folder", ["XDG_RUNTIME_DIR", "TMPDIR"])
def test_a_sockets_path_fits_however_long_the_folders_and_names_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setenv(folder, str(deep))
    monkeypatch.setattr("tempfile.tempdir", None)
    longest_base = "b" * 40
    for name in ("n" * 28, "n" * 29, "n" * 200):
        path = socket_path(f"{longest_base}/raylog-4294967295-0123456789", name, "c" * 100)
        assert len(path) <= 107  # with the zero behind it 108, which is all that the kernel takes
    directory = socket_directory("a test's cluster", "10.0.0.1")
    assert len(directory) <= 70
    Path(directory).rmdir()


def test_the_sockets_of_two_clusters_lie_apart() -> None:
    first, second = socket_directory("a test's c1", "10.0.0.1"), socket_directory("a test's c2", "10.0.0.1")
    assert first != second
    for directory in (first, second):
        Path(directory).rmdir()


def test_a_socket_of_another_host_is_known_by_its_path() -> None:
    here, there = (socket_directory("a test's c3", host) for host in ("10.0.0.1", "10.0.0.2"))
    assert is_of_this_host(socket_path(here, "broker-1"), here)
    assert is_of_this_host(socket_path(f"/run/user/{Path(here).name}", "broker-1"), here)
    assert not is_of_this_host(socket_path(there, "broker-1"), here)
    for directory in (here, there):
        Path(directory).rmdir()


def test_a_second_name_of_a_cluster_has_sockets_of_its_own() -> None:
    first, second = (socket_path("/tmp/x", "broker-1", cluster) for cluster in ("default", "second"))
    assert first != second
    assert first == socket_path("/tmp/x", "broker-1", "default")


def test_a_socket_that_is_listened_at_is_never_replaced(tmp_path: Path) -> None:
    path = f"{tmp_path}/s"
    first = listening_socket(path)
    with pytest.raises(SocketInUse, match=path):
        listening_socket(path)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        client.setblocking(False)
    first.close()
    assert is_dead(path)
    second = listening_socket(path)  # a dead one gives way
    assert not is_dead(path)
    assert [each.name for each in tmp_path.iterdir()] == ["s"]
    second.close()


def test_a_stopped_process_keeps_its_socket(tmp_path: Path) -> None:
    """Nobody accepts at it, and its backlog is full."""
    path = f"{tmp_path}/s"
    clients = []
    with socket.socket(socket.AF_UNIX) as stopped:
        stopped.bind(path)
        stopped.listen(1)
        for _ in range(3):
            clients.append(socket.socket(socket.AF_UNIX))
            clients[-1].setblocking(False)
            with contextlib.suppress(BlockingIOError):
                clients[-1].connect(path)
        assert not is_dead(path)
        with pytest.raises(SocketInUse):
            listening_socket(path)
        for client in clients:
            client.close()


def test_a_socket_that_has_no_name_yet_is_not_taken_for_dead() -> None:
    directory = Path(socket_directory("a test's unnamed sockets", "10.0.0.1"))
    with socket.socket(socket.AF_UNIX) as begun, socket.socket(socket.AF_UNIX) as abandoned:
        begun.bind(f"{directory}/.begun")
        abandoned.bind(f"{directory}/.abandoned")
        os.utime(f"{directory}/.abandoned", (0, 0))
        remove_dead_sockets(str(directory))
        assert [path.name for path in directory.iterdir()] == [".begun"]
    (directory / ".begun").unlink()
    directory.rmdir()


def test_only_sockets_that_nobody_listens_at_are_removed() -> None:
    directory = Path(socket_directory("a test's dead sockets", "10.0.0.1"))
    with socket.socket(socket.AF_UNIX) as living, socket.socket(socket.AF_UNIX) as dead:
        living.bind(f"{directory}/living")
        living.listen()
        dead.bind(f"{directory}/dead")
        dead.listen()
        dead.close()
        remove_dead_sockets(str(directory))
        assert [path.name for path in directory.iterdir()] == ["living"]
    (directory / "living").unlink()
    directory.rmdir()


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder of its own, with a short path."""
    folder = tempfile.mkdtemp(prefix="s-")
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr("tempfile.tempdir", folder)
    yield Path(folder)
    shutil.rmtree(folder)


def let_go(directory: str) -> None:
    """As the end of a process does."""
    os.close(_held.pop(directory))


def leave_behind(cluster: str) -> Path:
    """The directory of a cluster whose processes were killed."""
    directory = socket_directory(cluster, "10.0.0.1")
    listening_socket(socket_path(directory, "broker-0")).close()
    let_go(directory)
    return Path(directory)


def test_directories_of_clusters_that_run_no_more_are_swept(base: Path) -> None:
    gone, own = leave_behind("gone"), socket_directory("own", "10.0.0.1")
    listening_socket(socket_path(own, "broker-0")).close()
    used = socket_directory("runs", "10.0.0.1")  # a process has it, and no socket yet
    older = leave_behind("of a raylog that held no locks")
    living = listening_socket(socket_path(str(older), "broker-1"))
    others = base / f"raylog-{os.geteuid() + 1}-0123456789"
    others.mkdir()
    (base / "raylog-notes").mkdir()
    (base / f"raylog-{os.geteuid()}-ray.lock").touch()
    kept = leave_behind("with a file in it")
    (kept / "file").touch()
    sweep_beside(own)
    assert not gone.exists()
    assert [each.name.split("-")[0:2] for each in older.iterdir()] == [["broker", "1"]]
    assert (kept / "file").exists()
    there = {each.name for each in base.iterdir()}
    assert there == {
        Path(own).name, Path(used).name, older.name, others.name, kept.name,
        "raylog-notes", f"raylog-{os.geteuid()}-ray.lock",
    }  # fmt: skip
    assert len(list(Path(own).iterdir())) == 1, "its own cluster's are another's task"
    living.close()
    let_go(own)
    let_go(used)


def test_a_process_that_is_gone_or_anothers_is_not_ours() -> None:
    assert not is_own(1, "c1")
    assert not is_own(2**22 + 1, "c1")


def test_tls_is_off_unless_rays_is_on() -> None:
    assert RayTls.from_environment({}) is None
    assert RayTls.from_environment({"RAY_USE_TLS": "0", "RAY_TLS_CA_CERT": "ca"}) is None


def test_tls_takes_rays_certificates_and_asks_for_all_of_them() -> None:
    files = {"RAY_TLS_SERVER_CERT": "cert", "RAY_TLS_SERVER_KEY": "key", "RAY_TLS_CA_CERT": "ca"}
    assert RayTls.from_environment({"RAY_USE_TLS": "1", **files}) == RayTls("cert", "key", "ca")
    with pytest.raises(InvalidConfig, match="RAY_TLS_CA_CERT"):
        RayTls.from_environment({"RAY_USE_TLS": "1", **files, "RAY_TLS_CA_CERT": ""})
