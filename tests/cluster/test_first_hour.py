"""The first hour of somebody new: the commands of the README, then what one types into Python, mistakes included.

What commands print is in `test_commands.py`, the README's program in `test_readme.py`, Ctrl-C and tasks of Ray in
`clients/`. One cluster of three brokers serves the whole hour.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

import raylog
from raylog import TopicPartition
from tests.cluster.support.guide_run import GuideRun

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

_README = Path(__file__).parents[2] / "README.md"


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Type the README's commands but for the last, which stops the cluster when the hour is over.

    Returns what they have printed.
    """
    typed = re.findall(r"```sh\n(raylog start .*?)```", _README.read_text(), re.DOTALL)[0].strip().splitlines()
    assert typed[-1] == "raylog stop --ray"
    folder = tempfile.mkdtemp(prefix="rl", dir="/tmp")  # sockets need short paths
    shell = GuideRun(tmp_path_factory.mktemp("hour"), {"RAY_TMPDIR": folder, "RAY_ADDRESS": ""})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", folder)
        patch.delenv("RAY_ADDRESS", raising=False)
        try:
            yield shell.run("\n".join(typed[:-1]))
        finally:
            ray.shutdown()
            shell.run(typed[-1])
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def cluster(commands: str) -> raylog.Cluster:
    cluster = raylog.connect()
    cluster.create_topic("clicks", partitions=2, config={"retention.ms": "1h", "segment.bytes": "64MiB"})
    return cluster


def to_json(value: Any) -> bytes:
    return json.dumps(value).encode()


# --- what works -------------------------------------------------------------------------------------------------------


def test_the_commands_of_the_readme(commands: str) -> None:
    assert commands.startswith("Cluster 'default' runs with brokers 0,1,2 on a Ray of its own at ")
    assert commands.endswith("\nhello\n")


def test_settings_are_given_and_shown_with_their_units(cluster: raylog.Cluster) -> None:
    described = cluster.describe_topic("clicks")
    assert "retention.ms=1h" in repr(described)
    assert "segment.bytes=64MiB" in described._repr_html_()
    assert cluster.describe_topic_config("clicks")["retention.ms"] == 3_600_000


def test_what_was_sent_is_described(cluster: raylog.Cluster) -> None:
    with raylog.Producer(key_serializer=str.encode, value_serializer=to_json) as producer:
        sent = producer.send("clicks", {"id": 1}, key="alice").result(timeout=30)
        assert (sent.serialized_key_size, sent.serialized_value_size) == (5, 9)
        assert (sent.topic, sent.log_start_offset) == ("clicks", 0)
        assert repr(producer).startswith("<Producer of 'default', 3 brokers, ")
    with raylog.Producer(acks=0) as producer:
        sent = producer.send("clicks", b"12345", key=b"bob").result(timeout=30)
        assert (sent.offset, sent.serialized_key_size, sent.serialized_value_size) == (-1, 3, 5)


def test_coroutines_send_and_read(cluster: raylog.Cluster) -> None:
    async def pipe() -> int:
        async with raylog.AsyncProducer() as producer:
            sent = await producer.send_and_wait("clicks", b"value", key=b"alice")
        async with raylog.AsyncConsumer() as consumer:
            partition = TopicPartition("clicks", sent.partition)
            consumer.assign([partition])
            consumer.seek(partition, sent.offset)
            record = await asyncio.wait_for(anext_of(consumer), 30)
        return record.offset - sent.offset

    async def anext_of(consumer: raylog.AsyncConsumer) -> raylog.ConsumerRecord:
        async for record in consumer:
            return record
        raise AssertionError("it ended")

    assert asyncio.run(pipe()) == 0


def test_a_group_reads_and_its_listener_hears_of_it(cluster: raylog.Cluster) -> None:
    heard: list[set[TopicPartition]] = []

    class Listener(raylog.RebalanceListener):
        def on_partitions_assigned(self, partitions: Any) -> None:
            heard.append(set(partitions))

    both = {TopicPartition("clicks", 0), TopicPartition("clicks", 1)}
    with raylog.Producer() as producer, raylog.Consumer(group_id="billing", auto_offset_reset="earliest") as consumer:
        producer.send("clicks", b"read", key=b"alice").result(timeout=30)
        consumer.subscribe(["clicks"], listener=Listener())
        until = time.monotonic() + 60
        while not consumer.poll(timeout_ms=1000):
            assert time.monotonic() < until
        consumer.commit()
        assert heard == [both]
        assert repr(consumer) == "<Consumer of 'default', topic 'clicks', group 'billing', 2 partitions>"
        assert set(cluster.reset_group_offsets("billing", "earliest", dry_run=True)) <= both
        with pytest.raises(raylog.GroupError, match="Group 'billing' has 1 members"):
            cluster.reset_group_offsets("billing", "earliest")
    shown = cluster.describe_group("billing")._repr_html_()
    assert "Group &#x27;billing&#x27;: Empty, 0 members" in shown


def test_a_notebook_shows_the_cluster(cluster: raylog.Cluster) -> None:
    shown = cluster._repr_html_()
    assert shown.count("<td>yes</td>") == 3
    assert "clicks, greetings</p>" in shown
    assert "<b>Cluster(&#x27;nowhere&#x27;)</b>: No raylog cluster" in raylog.Cluster("nowhere")._repr_html_()


def test_names_of_kafkas_admin_client_work(cluster: raylog.Cluster) -> None:
    cluster.create_topics([raylog.NewTopic("orders", num_partitions=1, replication_factor=1)])
    found = cluster.describe_configs([raylog.ConfigResource("topic", "orders")], config_filter="all")
    assert found["topic"]["orders"]["retention.ms"]["value"] == "604800000"
    cluster.delete_topics(["orders"])
    assert "orders" not in cluster.list_topics()


def test_former_names_work_and_warn(cluster: raylog.Cluster) -> None:
    with pytest.warns(DeprecationWarning, match=r"connect\(name=…\) is connect\(cluster=…\) now"):
        assert raylog.connect(name="default").name == "default"  # type: ignore[call-arg]


# --- mistakes, and the sentences that answer them ---------------------------------------------------------------------


def test_more_insync_replicas_than_there_are_replicas(cluster: raylog.Cluster) -> None:
    refused = "Setting 'min.insync.replicas' cannot be 4: expected no more than the 3 replicas of the topic"
    with pytest.raises(raylog.InvalidConfig, match=refused):
        cluster.create_topic("strict", config={"min.insync.replicas": 4})
    with pytest.raises(raylog.InvalidConfig, match=refused):
        cluster.alter_topic_config("clicks", {"min.insync.replicas": 4})
    cluster.alter_topic_config("clicks", {"min.insync.replicas": 3})
    with pytest.raises(raylog.InvalidConfig, match="no more than the 2 replicas"):
        cluster.change_replication_factor("clicks", 2)
    cluster.alter_topic_config("clicks", {"min.insync.replicas": None})


def test_a_serializer_that_fails_is_named_with_topic_and_field(cluster: raylog.Cluster) -> None:
    said = r"The value of a record for 'clicks': value_serializer \S*to_json raised TypeError on a set"
    with raylog.Producer(value_serializer=to_json) as producer, pytest.raises(TypeError, match=said):
        producer.send("clicks", {1})
    with (
        raylog.Consumer("greetings", auto_offset_reset="earliest", value_deserializer=json.loads) as consumer,
        pytest.raises(raylog.RaylogError, match=r"offset 0 of greetings-\d cannot be read: value_deserializer json"),
    ):
        consumer.poll(timeout_ms=30_000)


def test_text_without_a_serializer(cluster: raylog.Cluster) -> None:
    with raylog.Producer() as producer, pytest.raises(TypeError, match="give bytes, or set value_serializer"):
        producer.send("clicks", "text")


def test_a_topic_that_is_not_there(cluster: raylog.Cluster) -> None:
    with pytest.raises(raylog.UnknownTopic, match=r"There is no topic 'click'\. Create it, or correct its name"):
        raylog.Consumer("click")


def test_a_group_that_is_not_there(cluster: raylog.Cluster) -> None:
    for call in (cluster.describe_group, cluster.list_group_offsets, cluster.delete_group):
        with pytest.raises(raylog.UnknownGroup, match="There is no group 'nobody'"):
            call("nobody")
    with pytest.raises(raylog.UnknownGroup, match="There is no group 'nobody'"):
        cluster.reset_group_offsets("nobody", "earliest")


def test_a_second_thread_that_polls(cluster: raylog.Cluster) -> None:
    with raylog.Consumer("clicks", auto_offset_reset="latest") as consumer:
        woken: list[BaseException] = []

        def poll() -> None:
            with pytest.raises(raylog.WakeupError) as ended:
                consumer.poll(timeout_ms=20_000)
            woken.append(ended.value)

        polling = threading.Thread(target=poll, name="first")
        polling.start()
        time.sleep(0.5)
        with pytest.raises(raylog.errors.ConsumerInUse, match="that thread 'first' is polling"):
            consumer.poll()
        consumer.wakeup()
        polling.join(20)
        assert len(woken) == 1


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"acks": "al"}, "InvalidConfig", "Setting 'acks' cannot be 'al'"),
        ({"linger_ms": "5xs"}, "InvalidConfig", "or a time such as 30s"),
        ({"linger": 5}, "UnknownConfig", "Did you mean 'linger_ms'"),
        ({"bootstrap_servers": "localhost:9092"}, "UnknownConfig", "Brokers are found through Ray"),
    ],
)
def test_options_that_are_none(cluster: raylog.Cluster, options: dict[str, Any], error: str, said: str) -> None:
    with pytest.raises(getattr(raylog, error), match=said):
        raylog.Producer(**options)


def test_habits_from_kafka(cluster: raylog.Cluster) -> None:
    with pytest.raises(TypeError, match="takes its options as keywords"):
        raylog.Producer({"bootstrap.servers": "localhost:9092"})  # type: ignore[arg-type]
    with pytest.raises(raylog.InvalidConfig, match="the name of a cluster and no address"):
        raylog.connect("localhost:9092")
    with pytest.raises(AttributeError, match=r"here it is raylog\.Consumer"):
        getattr(raylog, "KafkaConsumer")  # noqa: B009
    with raylog.Producer(acks="-1") as producer:
        assert producer.send("clicks", b"value").result(timeout=30).offset >= 0
