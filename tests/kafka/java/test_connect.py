"""Kafka Connect in distributed mode: a file goes through a topic into another file. Its own topics are raylog's."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any, Final

import pytest

import raylog
from bench.kafka_peer.programs import JavaPrograms, Running
from raylog.errors import RaylogError
from tests.cluster.conftest import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

TOPIC: Final = "lines"
_OWN_TOPICS: Final = {"connect-configs": 1, "connect-offsets": 5, "connect-status": 1}
_FILES: Final = "org.apache.kafka.connect.file.FileStream"
_SECONDS: Final = 60.0


class Worker:
    """A Connect worker, and its REST interface at a port that was free."""

    def __init__(self, programs: JavaPrograms, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/connectors"
        settings = {
            "bootstrap.servers": programs.bootstrap,
            "group.id": "connect",
            "listeners": f"http://127.0.0.1:{port}",
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "config.storage.topic": "connect-configs",
            "offset.storage.topic": "connect-offsets",
            "status.storage.topic": "connect-status",
            "offset.flush.interval.ms": "500",
            "plugin.discovery": "only_scan",
        }
        path = programs.properties("worker.properties", settings)
        self._process: Running = programs.start("org.apache.kafka.connect.cli.ConnectDistributed", path)

    def answers(self) -> bool:
        self._process.check()
        try:
            self.ask("")
        except OSError:
            return False
        return True

    def ask(self, path: str, posted: dict[str, Any] | None = None) -> Any:
        data = None if posted is None else json.dumps(posted).encode()
        request = urllib.request.Request(self._url + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            return json.load(answer)

    def connect(self, kind: str, file: Path, **more: str) -> None:
        settings = {"connector.class": f"{_FILES}{kind}Connector", "file": str(file), "tasks.max": "1", **more}
        self.ask("", {"name": kind.lower(), "config": settings})

    def stop(self) -> None:
        self._process.stop()


def test_a_file_goes_through_a_topic(
    cluster: raylog.Cluster, programs: JavaPrograms, tmp_path: Path, unused_port: int
) -> None:
    cluster.create_topic(TOPIC, 1, 3)
    for name, partitions in _OWN_TOPICS.items():
        cluster.create_topic(name, partitions, 3, {"cleanup.policy": "compact"})
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    source.write_text(first := "".join(f"line {number}\n" for number in range(500)))
    worker = Worker(programs, unused_port)
    until(worker.answers, _SECONDS)
    worker.connect("Source", source, topic=TOPIC)
    worker.connect("Sink", sink, topics=TOPIC)
    until(lambda: sink.exists() and sink.read_text() == first, _SECONDS)
    until(lambda: _is_committed(cluster, 500), _SECONDS)
    worker.stop()

    again = Worker(programs, unused_port)  # which knows by its topics what it has to do, and where it was
    with source.open("a") as more:
        more.write("the last line\n")
    until(lambda: sink.read_text() == first + "the last line\n", _SECONDS)
    assert again.ask("") == ["sink", "source"] or again.ask("") == ["source", "sink"]
    again.stop()


def _is_committed(cluster: raylog.Cluster, offset: int) -> bool:
    try:
        told = cluster.list_group_offsets("connect-sink")
    except RaylogError:
        return False
    return [each.offset for each in told.values()] == [offset]
