"""Brokers of Apache Kafka on this machine, each a JVM that is broker and voter at once (KRaft), on loopback only.

Their data lie in a folder that is removed at the end. The JVM's options are those of Kafka's own start script.
"""

from __future__ import annotations

import base64
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench.kafka_peer.jars import fetched_jars

_HOST: Final = "127.0.0.1"
_START_SECONDS: Final = 90.0
_STOP_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.1
_JVM: Final = (
    "-Xms1G", "-Xmx1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true",
)  # fmt: skip
_FORMAT: Final = "kafka.tools.StorageTool"
_SERVER: Final = "kafka.Kafka"


class KafkaNotStarted(Exception):
    """A broker ended, or did not listen in time; the text has the end of what it said."""


class Node(NamedTuple):
    """One JVM: its id, and the ports for clients and for the other voters."""

    number: int
    port: int
    control_port: int


@contextmanager
def kafka_brokers(directory: Path, brokers: int = 3) -> Iterator[str]:
    """Yield the address of that many brokers, `HOST:PORT` with commas between. KafkaNotStarted, MavenFailed.

    The jars stay in the directory for the next time; the rest is removed, and the JVMs are ended by their pids.
    """
    directory = directory.resolve()  # the brokers run in folders of their own
    jars = fetched_jars(directory)
    ports = _free_ports(2 * brokers)
    nodes = [Node(number + 1, *ports[2 * number : 2 * number + 2]) for number in range(brokers)]
    cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    with ExitStack() as ended:
        folder = Path(tempfile.mkdtemp(prefix="brokers-", dir=directory))
        ended.callback(shutil.rmtree, folder, ignore_errors=True)
        started: list[tuple[subprocess.Popen[bytes], Path, int]] = []
        ended.callback(lambda: _stop([process for process, _, _ in started]))
        for node in nodes:
            settings = _prepared(folder / f"node-{node.number}", node, nodes)
            _run_to_end(jars, settings, "format", f"--cluster-id={cluster_id}", "-c", str(settings))
            started.append((_start(jars, settings), settings.with_name("output"), node.port))
        for process, output, port in started:
            _until_it_listens(process, output, port)
        yield ",".join(f"{_HOST}:{node.port}" for node in nodes)


def settings_of(node: Node, nodes: Sequence[Node], folder: Path) -> Mapping[str, str]:
    """Return a node's settings; what is not there is Kafka's default."""
    copies = str(min(3, len(nodes)))
    return {
        "process.roles": "broker,controller",
        "node.id": str(node.number),
        "controller.quorum.voters": ",".join(f"{each.number}@{_HOST}:{each.control_port}" for each in nodes),
        "listeners": f"PLAINTEXT://{_HOST}:{node.port},CONTROLLER://{_HOST}:{node.control_port}",
        "advertised.listeners": f"PLAINTEXT://{_HOST}:{node.port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": str(folder / "data"),
        "auto.create.topics.enable": "false",
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "share.coordinator.state.topic.replication.factor": copies,
    }


def _prepared(folder: Path, node: Node, nodes: Sequence[Node]) -> Path:
    folder.mkdir()
    path = folder / "server.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in settings_of(node, nodes, folder).items()))
    return path


def _run_to_end(jars: Path, settings: Path, *arguments: str) -> None:
    command = ["java", "-cp", f"{jars}/*", _FORMAT, *arguments]
    done = subprocess.run(command, cwd=settings.parent, capture_output=True, text=True, check=False)
    if done.returncode:
        raise KafkaNotStarted(f"A directory could not be formatted:\n{done.stdout}{done.stderr}")


def _start(jars: Path, settings: Path) -> subprocess.Popen[bytes]:
    command = ["java", *_JVM, "-cp", f"{jars}/*", _SERVER, str(settings)]
    with settings.with_name("output").open("wb") as output:
        return subprocess.Popen(
            command, cwd=settings.parent, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )


def _stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End the JVMs. The last of them cannot leave its quorum cleanly, and is killed: its data go anyway."""
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + _STOP_SECONDS
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _until_it_listens(process: subprocess.Popen[bytes], output: Path, port: int) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not _listens(port):
        if process.poll() is not None or time.monotonic() > deadline:
            said = output.read_text(errors="replace")[-2_000:]
            raise KafkaNotStarted(f"The broker at port {port} does not listen; its last words:\n{said}")
        time.sleep(_LOOK_SECONDS)


def _listens(port: int) -> bool:
    try:
        socket.create_connection((_HOST, port), timeout=1.0).close()
    except OSError:
        return False
    return True


def _free_ports(count: int) -> list[int]:
    """Return ports that nobody listens at, all drawn before any is let go."""
    with ExitStack() as open_sockets:
        drawn = [open_sockets.enter_context(socket.socket()) for _ in range(count)]
        for each in drawn:
            each.bind((_HOST, 0))
        return [each.getsockname()[1] for each in drawn]
