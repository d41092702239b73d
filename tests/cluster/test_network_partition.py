"""The leader's host is cut off from all others: both ways, so that it is not heard, and so that it does not hear.

Four hosts are network namespaces (`namespaces.py`): Ray's head, where the controller is, and three with a broker each.
A writer with acks=all runs beside the leader and another one at the head. While the host is cut off, its leader
acknowledges nothing, and the other side writes again under a new one; after healing all logs are the same, byte for
byte, and hold all that either writer was told is there.
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
import ray

import raylog
from raylog.actors.cluster.descriptions import BrokerDescription
from raylog.errors import RaylogError
from tests.cluster.conftest import kill_tree, until
from tests.cluster.support.chaos_clients import Clients, longest_silence
from tests.cluster.support.namespaces import NamespacesUnavailable, Network, network

pytestmark = pytest.mark.cluster

_TOPIC: Final = "clicks"
_CUT_SECONDS: Final = 6.0
_ON_ITS_WAY_SECONDS: Final = 0.1  # what had reached the leader before the cut, it may acknowledge right after
_WHOLE_SECONDS: Final = 90.0
_CUTS: Final[dict[str, Callable[[Network, int], None]]] = {
    "both ways": Network.cut,
    "not heard": Network.mute,
    "does not hear": Network.deafen,
}


@pytest.fixture(scope="module")
def hosts() -> Iterator[Network]:
    try:
        with network(4) as made:
            yield made
    except NamespacesUnavailable as reason:
        pytest.skip(f"there can be no hosts on this machine: {reason}")


@pytest.fixture
def cluster(ray_folder: Path, hosts: Network, monkeypatch: pytest.MonkeyPatch) -> Iterator[raylog.Cluster]:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    head = f"{hosts.address(1)}:{free_port(hosts.address(1))}"
    start = ("--head", f"--port={head.rpartition(':')[2]}", "--include-dashboard=false")
    nodes = [start_ray(hosts, 1, ray_folder, *start)]
    try:
        until(lambda: answers(head))
        for host in hosts.hosts[1:]:
            nodes.append(start_ray(hosts, host, ray_folder, f"--address={head}", '--resources={"raylog_broker": 1}'))
        ray.init(address=head, _node_ip_address=hosts.address(1), log_to_driver=False, logging_level=logging.ERROR)
        until(lambda: sum(node["Alive"] for node in ray.nodes()) == len(hosts.hosts), _WHOLE_SECONDS)  # type: ignore[no-untyped-call]
        yield raylog.start(ray_folder / "unused", form=True)
    finally:
        ray.shutdown()
        for node in nodes:
            kill_tree(node.pid)
            node.wait(timeout=10)


def start_ray(hosts: Network, host: int, folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """Start Ray with folders of its own, as hosts have them."""
    own = folder / f"h{host}"
    own.mkdir()
    variables = {"TMPDIR": str(own), "RAYLOG_DATA_DIR": str(own / "data")}
    command = [str(Path(sys.executable).with_name("ray")), "start", "--block", "--num-cpus=1", *arguments]
    command += [f"--node-ip-address={hosts.address(host)}", f"--temp-dir={own / 'ray'}"]
    with (own / "output").open("wb") as output:
        return subprocess.Popen(
            hosts.command(host, *command), env={**os.environ, **variables}, stdout=output, stderr=output
        )


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


def leaders_broker(cluster: raylog.Cluster) -> BrokerDescription:
    leader = cluster.describe_topic(_TOPIC).partitions[0].leader
    return next(each for each in cluster.describe_cluster().brokers if each.broker == leader)


def is_whole(cluster: raylog.Cluster) -> bool:
    try:
        replicas = cluster.describe_replicas(_TOPIC)
    except RaylogError:
        return False
    return all(each.in_sync and each.role in ("leader", "follower") for each in replicas)


def is_at_rest(cluster: raylog.Cluster) -> bool:
    """Tell whether every replica has everything, and knows that all have."""
    marks = {(each.high_watermark, each.log_end_offset) for each in cluster.describe_replicas(_TOPIC)}
    return is_whole(cluster) and len(marks) == 1 and len(set(marks.pop())) == 1


def log_of(cluster: raylog.Cluster, broker: BrokerDescription) -> bytes:
    files = sorted(Path(broker.directory, f"{_TOPIC}-0").glob("*.log"))
    return b"".join(file.read_bytes() for file in files)


@pytest.mark.timeout(400)
def test_a_leader_that_is_cut_off_acknowledges_nothing(cluster: raylog.Cluster, hosts: Network) -> None:
    cluster.create_topic(_TOPIC, replication_factor=3, config={"min.insync.replicas": 2})
    until(lambda: is_whole(cluster), _WHOLE_SECONDS)
    access = cluster.access()
    near = Clients(access, _TOPIC, host=hosts.address(1))
    for kind in _CUTS:
        broker = leaders_broker(cluster)
        host = next(each for each in hosts.hosts if hosts.address(each) == broker.host)
        beside = Clients(
            access,
            _TOPIC,
            producer_id=2001 + 1000 * list(_CUTS).index(kind),
            history=near.history,
            host=broker.host,
            namespace=hosts.namespace(host),
        )
        silence, whole_after = cut_off(kind, cluster, hosts, host, near, beside)
        sys.stderr.write(
            f"{kind}: the other side writes after {silence:.2f} s, whole {whole_after:.2f} s after healing\n"
        )

    records = near.finish()
    near.history.check_final(records, 0, records[-1][0] + 1)
    until(lambda: is_at_rest(cluster))
    logs = [log_of(cluster, broker) for broker in cluster.describe_cluster().brokers]
    assert len(logs[0]) > 0
    assert logs == [logs[0]] * 3
    cluster.shutdown()


def cut_off(
    kind: str, cluster: raylog.Cluster, hosts: Network, host: int, near: Clients, beside: Clients
) -> tuple[float, float]:
    """(seconds that the writer on the other side had to wait, seconds from healing until all is whole)."""
    near.until_acknowledged(20)
    beside.until_acknowledged(20)
    _CUTS[kind](hosts, host)
    cut_at = time.monotonic()
    time.sleep(_CUT_SECONDS)
    near.until_acknowledged(20)
    assert leaders_broker(cluster).host != hosts.address(host)
    healed_at = time.monotonic()
    hosts.heal(host)

    until(lambda: is_whole(cluster), _WHOLE_SECONDS)
    whole_at = time.monotonic()
    beside.until_acknowledged(20)
    beside.finish()
    near.until_acknowledged(20)
    wrong = [at - cut_at for at, _ in beside.writer.acknowledged if cut_at + _ON_ITS_WAY_SECONDS < at < healed_at]
    assert not wrong, f"{kind}: the leader acknowledged {wrong} s after it was cut off"
    times = [at for at, _ in near.writer.acknowledged]
    return longest_silence(times, cut_at, healed_at), whole_at - healed_at
