"""Each library writes and reads under load while leaders are killed: plain, idempotent, as members, as static members.

One run serves all tests of this file. Each library has a topic with a partition for plain writing, one for idempotent
writing, and one into which Python handles write columns. Two members of it share the topic, one of them static. One
library has another topic, of which gateways make columns.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pytest

import raylog
from tests.cluster.conftest import until
from tests.cluster.support.client_programs import on_thread
from tests.kafka.leader_kills import ends_of, kill_leader, leaders, until_whole
from tests.kafka.libraries.records import SECONDS, Record, Shared, Written

pytest.importorskip("kafka", reason="the extra `kafka` is not installed")
pytest.importorskip("confluent_kafka", reason="the extra `bench` is not installed")

from tests.kafka.libraries import aio, confluent, handles, kafka_python

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

LIBRARIES: Final[dict[str, Any]] = {"confluent-kafka": confluent, "kafka-python": kafka_python, "aiokafka": aio}
COLUMNS: Final = "confluent-kafka, columns"
RUNS: Final[dict[str, Any]] = {**LIBRARIES, COLUMNS: confluent}
PARTITIONS: Final = {"plain": 0, "idempotent": 1, "columns": 2}
_PAUSE_SECONDS: Final = 1.0
# Hosts are shared, so that few kills reach all leaders.
_SETTINGS: Final[dict[str, str | int | float]] = {"min.insync.replicas": 2, "replica.host": "shared"}
_END_SECONDS: Final = 2 * SECONDS


@dataclass
class Ran:
    """What became of one library. `log`: what lies in each partition, as Python handles read it."""

    topic: str
    written: dict[str, Written]
    members: list[Shared]
    log: dict[str, list[Record]]


@pytest.fixture(scope="module")
def runs(cluster: raylog.Cluster, bootstrap: str) -> dict[str, Ran]:
    stop_writing, stop_reading = threading.Event(), threading.Event()
    topics = {name: f"killed-{name.replace(', ', '-')}" for name in RUNS}
    for name, topic in topics.items():
        config = {**_SETTINGS, "batch.format": "columns" if name == COLUMNS else "as-produced"}
        cluster.create_topic(topic, partitions=3, replication_factor=3, config=config)
    writers: dict[str, dict[str, Future[Any]]] = {}
    members: dict[str, list[Future[Any]]] = {}
    for name, library in RUNS.items():
        topic = topics[name]
        writers[name] = {
            kind: on_thread(_keep_writing, library, bootstrap, topic, kind, stop_writing)
            for kind in ("plain", "idempotent")
        }
        writers[name]["columns"] = on_thread(handles.keep_writing, topic, PARTITIONS["columns"], stop_writing)
        members[name] = [
            on_thread(library.stay, bootstrap, _group(name), instance, topic, stop_reading)
            for instance in (None, "static-1")
        ]
    try:
        kill_leaders(cluster, list(topics.values()))
        stop_writing.set()
        written = {
            name: {kind: each.result(_END_SECONDS) for kind, each in some.items()} for name, some in writers.items()
        }
        ends = {topic: ends_of(topic) for topic in topics.values()}
        for name, topic in topics.items():
            until(partial(_have_committed, cluster, _group(name), topic, ends[topic], members[name]))
    finally:
        stop_writing.set()
        stop_reading.set()
    return {
        name: Ran(
            topic,
            written[name],
            [each.result(_END_SECONDS) for each in members[name]],
            {kind: handles.read(bootstrap, topic, part, ends[topic][part]) for kind, part in PARTITIONS.items()},
        )
        for name, topic in topics.items()
    }


def _group(name: str) -> str:
    return f"group-{name}"


def _keep_writing(library: Any, bootstrap: str, topic: str, kind: str, stop: threading.Event) -> Written:
    is_idempotent = kind == "idempotent"
    found: Written = library.keep_writing(bootstrap, topic, PARTITIONS[kind], stop, idempotent=is_idempotent)
    return found


def kill_leaders(cluster: raylog.Cluster, topics: list[str]) -> None:
    """Go on until each partition has lost a leader."""
    spared = {(topic, number) for topic in topics for number in PARTITIONS.values()}
    while spared:
        until_whole(cluster, topics)
        time.sleep(_PAUSE_SECONDS)
        led_by = {(topic, number): pid for topic in topics for number, pid in leaders(cluster, topic).items()}
        victim = kill_leader(cluster, *min(spared))
        spared -= {partition for partition, pid in led_by.items() if pid == victim}
    until_whole(cluster, topics)
    time.sleep(_PAUSE_SECONDS)


def _have_committed(
    cluster: raylog.Cluster, group: str, topic: str, ends: dict[int, int], members: list[Future[Any]]
) -> bool:
    for each in members:
        assert not each.done(), each.result()  # or what has ended it
    told = cluster.list_group_offsets(group)
    committed = {each.partition: found.offset for each, found in told.items() if each.topic == topic}
    return committed == ends


@pytest.mark.parametrize("library", RUNS)
def test_plain_writing_loses_nothing(runs: dict[str, Ran], library: str) -> None:
    """What failed, or was sent twice, may be there all the same: that is what `plain` means."""
    written, log = runs[library].written["plain"], runs[library].log["plain"]
    there = {each.offset: each.value for each in log}
    assert len(written.acknowledged) + len(written.errors) == len(written.sent)
    assert len(written.acknowledged) > len(written.errors)
    assert all(there[offset] == value for offset, value in written.acknowledged)


@pytest.mark.parametrize("kind", ["idempotent", "columns"])
@pytest.mark.parametrize("library", RUNS)
def test_idempotent_writing_loses_repeats_and_reorders_nothing(runs: dict[str, Ran], library: str, kind: str) -> None:
    written, log = runs[library].written[kind], runs[library].log[kind]
    assert written.errors == []
    assert [each.value for each in log] == written.sent
    assert sorted(written.acknowledged) == [(each.offset, each.value) for each in log]


@pytest.mark.parametrize("library", RUNS)
def test_members_share_all_of_it(runs: dict[str, Ran], library: str) -> None:
    ran = runs[library]
    wanted = {
        (PARTITIONS[kind], each.offset): each.value for kind, log in ran.log.items() for each in log
    }
    assert all(each.found for each in ran.members), "one of the two has read nothing"
    found = {place: value for each in ran.members for place, value in each.found.items()}
    assert found == wanted


@pytest.mark.parametrize("reader", LIBRARIES)
def test_each_library_reads_what_handles_read(runs: dict[str, Ran], bootstrap: str, reader: str) -> None:
    for library, ran in runs.items():
        for kind, log in ran.log.items():
            found = LIBRARIES[reader].read(bootstrap, ran.topic, PARTITIONS[kind], len(log))
            assert found == log, (library, kind)
