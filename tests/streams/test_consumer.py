"""The consumer for threads, on the real client loop, with a make-believe cluster behind it."""

from __future__ import annotations

import gc
import inspect
import json
import os
import pickle
import signal
import threading
import time
import weakref
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.machine.real_environment import Place, RealEnvironment
from raylog.actors.protocol.cluster_secrets import ClusterSecrets
from raylog.api.connection.client_runtime import ClientRuntime, client_runtime
from raylog.api.connection.records import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from raylog.api.consumer import consumer_core
from raylog.api.consumer.consumer import Consumer, core_of
from raylog.errors import (
    ConflictingSubscription,
    ConsumerClosed,
    ConsumerInUse,
    GroupRequired,
    InvalidConfig,
    NoOffsetReset,
    NotAssigned,
    RecordUnreadable,
    RequestTimedOut,
    UnknownConfig,
    UnknownPartition,
    UnknownTopic,
    WakeupError,
)
from tests.unit.api.fake_link import TIME, FakeLink, ModelLog

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Cluster:
    """A fake link on the client loop."""

    def __init__(self) -> None:
        self.runtime = client_runtime()
        self.link = self.runtime.run(self._make(), 5.0)
        self.released = 0

    async def _make(self) -> FakeLink:
        env = RealEnvironment(Place("tests", ClusterSecrets.draw(), "127.0.0.1"), None)
        return FakeLink(env, Random(1))

    def do(self, action: Callable[[], Any]) -> Any:
        """Do this on the loop."""

        async def run() -> Any:
            return action()

        return self.runtime.run(run(), 5.0)

    def add_topic(self, name: str, partitions: int = 1) -> list[ModelLog]:
        logs: list[ModelLog] = self.do(lambda: self.link.add_topic(name, partitions))
        return logs

    def append(self, log: ModelLog, *values: bytes | None) -> None:
        self.do(lambda: log.append(*values))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()

    def open_link(runtime: ClientRuntime, name: Any, timeout: float) -> ClusterLink:
        return made.link.as_link

    async def release(self: ClientRuntime, link: ClusterLink) -> None:
        made.released += 1

    monkeypatch.setattr(consumer_core, "open_link", open_link)
    monkeypatch.setattr(ClientRuntime, "release_link", release)
    return made


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%d" % each for each in range(first, end)]


def later(seconds: float, action: Callable[[], Any]) -> threading.Timer:
    timer = threading.Timer(seconds, action)
    timer.start()
    return timer


# --- records ----------------------------------------------------------------------------------------------------------


def test_a_topic_is_read_by_polling_and_by_iterating(cluster: Cluster) -> None:
    (log,) = cluster.add_topic("t")
    for first in range(0, 100, 10):
        cluster.append(log, *numbers(first, first + 10))
    with Consumer("t", auto_offset_reset="earliest", consumer_timeout_ms=300) as consumer:
        found = [record.value for record in consumer.poll(timeout_ms=5000, max_records=7)[P0]]
        for record in consumer:
            found.append(record.value)
            if len(found) == 25:
                break
        assert consumer.position(P0) == 25
        found.append(next(consumer).value)
        found += [record.value for record in consumer.poll(timeout_ms=5000)[P0]]
        assert found == numbers(0, 100)
        assert list(consumer) == []
        cluster.append(log, b"more")
        assert [record.value for record in consumer] == [b"more"]
        metrics = consumer.metrics()
        assert (metrics["records_consumed"], metrics["records_lag"]) == (101, {P0: 0})
        assert consumer.highwater(P0) == 101
        assert repr(consumer) == "<Consumer of 'default', topic 't', 1 partitions>"
    assert cluster.released == 1
    consumer.close()
    assert cluster.released == 1


def test_one_is_refused_by_pickle_and_lets_ray_look_at_its_attributes(cluster: Cluster) -> None:
    cluster.add_topic("t")
    with Consumer("t") as consumer:
        with pytest.raises(TypeError, match="This Consumer belongs to the process"):
            pickle.dumps(consumer)
        inspect.getmembers(consumer)
    inspect.getmembers(consumer)


@pytest.mark.parametrize("field", ["key", "value"])
def test_a_deserializer_that_fails_is_named_with_its_field(cluster: Cluster, field: str) -> None:
    (log,) = cluster.add_topic("t")
    cluster.do(lambda: log.append(b"1", b"{", keys=[b"1", b"{"]))
    options: Any = {"key_deserializer": bytes, "value_deserializer": bytes, f"{field}_deserializer": json.loads}
    with Consumer("t", auto_offset_reset="earliest", **options) as consumer:
        found = consumer.poll(timeout_ms=5000)
        assert len(found[P0]) == 1
        with pytest.raises(RecordUnreadable, match=rf"offset 1 of t-0 .*{field}_deserializer json\.loads raised JSON"):
            consumer.poll(timeout_ms=5000)


def test_poll_waits_no_longer_than_told(cluster: Cluster) -> None:
    (log,) = cluster.add_topic("t")
    with Consumer("t", auto_offset_reset="earliest") as consumer:
        began = time.monotonic()
        assert consumer.poll(timeout_ms=200) == {}
        assert 0.2 <= time.monotonic() - began < 2.0
        later(0.1, lambda: cluster.append(log, b"a"))
        assert [record.value for record in consumer.poll(timeout_ms=20_000)[P0]] == [b"a"]
        assert consumer.poll() == {}
        with pytest.raises(ValueError, match="max_records"):
            consumer.poll(max_records=0)


def test_columns_and_arrow(cluster: Cluster) -> None:
    (log,) = cluster.add_topic("t")
    cluster.append(log, *numbers(0, 10))
    cluster.append(log, b"x", None)
    with Consumer("t", auto_offset_reset="earliest") as consumer:
        (first,) = consumer.poll_batches(timeout_ms=5000, max_bytes=1)
        assert (len(first), first.values, first.topic, first.partition) == (10, numbers(0, 10), "t", 0)
        table = consumer.poll_arrow(timeout_ms=5000)
        assert table.column("value").to_pylist() == [b"x", None]
        assert table.column("offset").to_pylist() == [10, 11]
        assert table.column("topic").to_pylist() == ["t", "t"]
        assert consumer.poll_arrow().num_rows == 0
        consumer.seek(P0, 4)
        assert consumer.poll_arrow(timeout_ms=5000, include_headers=True).column("offset").to_pylist() == list(
            range(4, 12)
        )


def test_deserializers_and_interceptors(cluster: Cluster) -> None:
    (log,) = cluster.add_topic("t")
    cluster.append(log, b"1", None, b"3")

    class Text:
        def deserialize(self, topic: str, headers: Any, data: bytes) -> str:
            return f"{topic}:{data.decode()}"

    with Consumer(
        "t",
        auto_offset_reset="earliest",
        value_deserializer=Text(),
        interceptors=[lambda records: records[1:]],
    ) as consumer:
        assert [record.value for record in consumer.poll(timeout_ms=5000)[P0]] == [None, "t:3"]
        assert consumer.position(P0) == 3


# --- ends of waits ----------------------------------------------------------------------------------------------------


def test_wakeup_ends_a_wait_once_and_loses_nothing(cluster: Cluster) -> None:
    (log,) = cluster.add_topic("t")
    with Consumer("t", auto_offset_reset="earliest") as consumer:
        later(0.1, consumer.wakeup)
        with pytest.raises(WakeupError):
            consumer.poll(timeout_ms=30_000)
        cluster.append(log, *numbers(0, 100))
        seen: list[bytes] = []

        def iterate() -> None:
            for record in consumer:
                seen.append(record.value)
                if len(seen) in (10, 50):
                    consumer.wakeup()

        for _ in range(2):
            with pytest.raises(WakeupError):
                iterate()
        assert seen == numbers(0, 50)
        seen += [record.value for record in consumer.poll(timeout_ms=5000)[P0]]
        assert seen == numbers(0, 100)
        consumer.wakeup()
        assert consumer.assignment() == {P0}
        consumer.seek(P0, 0)
        with pytest.raises(WakeupError):
            next(consumer)
        assert next(consumer).value == b"0"


def test_a_second_thread_that_polls_is_refused(cluster: Cluster) -> None:
    (log,) = cluster.add_topic("t")
    with Consumer("t", auto_offset_reset="earliest") as consumer:
        found: list[Any] = []
        waiting = threading.Thread(target=lambda: found.append(consumer.poll(timeout_ms=20_000)), name="first")
        waiting.start()
        while not core_of(consumer)._polling:
            time.sleep(0.001)
        for call in (consumer.poll, consumer.poll_batches, lambda: next(consumer)):
            with pytest.raises(ConsumerInUse, match="'MainThread' polls a consumer that thread 'first' is polling"):
                call()
        cluster.append(log, b"a")
        waiting.join(20.0)
        assert [record.value for record in found[0][P0]] == [b"a"], "the first one goes on undisturbed"
        cluster.append(log, b"b")
        later_on = consumer.poll(timeout_ms=20_000)[P0]
        assert [record.value for record in later_on] == [b"b"], "one after the other is fine"


def test_a_second_thread_that_iterates_is_refused(cluster: Cluster) -> None:
    (log,) = cluster.add_topic("t")
    with Consumer("t", auto_offset_reset="earliest", consumer_timeout_ms=20_000) as consumer:
        found: list[Any] = []
        waiting = threading.Thread(target=lambda: found.append(next(iter(consumer)).value))
        waiting.start()
        while not core_of(consumer)._polling:
            time.sleep(0.001)
        with pytest.raises(ConsumerInUse):
            next(iter(consumer))
        cluster.append(log, b"a")
        waiting.join(20.0)
        assert found == [b"a"]


def test_close_from_another_thread_ends_a_wait(cluster: Cluster) -> None:
    cluster.add_topic("t")
    consumer = Consumer("t")
    closing = later(0.1, consumer.close)
    with pytest.raises(ConsumerClosed):
        list(consumer)
    closing.join()
    for call in (
        consumer.poll,
        consumer.assignment,
        lambda: next(consumer),
        lambda: consumer.seek(P0, 0),
        consumer.topics,
        lambda: consumer.subscribe(["t"]),
        lambda: consumer.position(P0),
    ):
        with pytest.raises(ConsumerClosed):
            call()


def test_ctrl_c_ends_a_wait_and_loses_nothing(cluster: Cluster) -> None:
    (log,) = cluster.add_topic("t")
    with Consumer("t", auto_offset_reset="earliest") as consumer:
        for call in (lambda: consumer.poll(timeout_ms=60_000), lambda: next(consumer)):
            later(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
            began = time.monotonic()
            with pytest.raises(KeyboardInterrupt):
                call()
            assert time.monotonic() - began < 5.0
        cluster.append(log, *numbers(0, 5))
        assert [record.value for record in consumer.poll(timeout_ms=5000)[P0]] == numbers(0, 5)


def test_a_consumer_that_is_dropped_fetches_no_more(cluster: Cluster) -> None:
    (log,) = cluster.add_topic("t")
    cluster.append(log, b"a", b"b")
    consumer = Consumer("t", auto_offset_reset="earliest")
    assert next(consumer).value == b"a"
    gone = weakref.ref(consumer)
    del consumer
    gc.collect()
    assert gone() is None
    deadline = time.monotonic() + 5.0
    while not cluster.released and time.monotonic() < deadline:
        cluster.do(lambda: None)
    assert cluster.released == 1


# --- positions --------------------------------------------------------------------------------------------------------


def test_positions_can_be_moved_and_asked_for(cluster: Cluster) -> None:
    first, second = cluster.add_topic("t", 2)
    cluster.append(first, *numbers(0, 10))
    cluster.append(second, *numbers(0, 20))
    with Consumer() as consumer:
        with pytest.raises(NotAssigned):
            consumer.seek(P0, 1)
        consumer.assign([P0, P1])
        assert consumer.assignment() == {P0, P1}
        assert (consumer.position(P0), consumer.position(P1)) == (10, 20)
        consumer.seek_to_beginning()
        assert (consumer.position(P0), consumer.position(P1)) == (0, 0)
        consumer.seek_to_end(P1)
        consumer.seek(P0, OffsetAndMetadata(8))
        assert (consumer.position(P0), consumer.position(P1)) == (8, 20)
        assert [record.offset for record in consumer.poll(timeout_ms=5000)[P0]] == [8, 9]
        consumer.pause(P0)
        assert consumer.paused() == {P0}
        cluster.append(first, b"10")
        assert consumer.poll(timeout_ms=100) == {}
        consumer.resume(P0)
        assert [record.offset for record in consumer.poll(timeout_ms=5000)[P0]] == [10]
        assert consumer.beginning_offsets([P0, P1]) == {P0: 0, P1: 0}
        assert consumer.end_offsets([P0, ("t", 1)]) == {P0: 11, P1: 20}  # type: ignore[list-item]
        assert consumer.offsets_for_times({P0: TIME, P1: TIME + 1}) == {P0: OffsetAndTimestamp(0, TIME, 0), P1: None}
        for wrong in (-1, "1", 1.5, True):
            with pytest.raises(ValueError, match="offset"):
                consumer.seek(P0, wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="partition"):
            consumer.seek(("t", "0"), 1)  # type: ignore[arg-type]
        with pytest.raises(UnknownPartition):
            consumer.end_offsets([TopicPartition("t", 7)])
        consumer.assign([])
        assert consumer.assignment() == set()


def test_a_position_that_nobody_tells_is_an_error(cluster: Cluster) -> None:
    (log,) = cluster.add_topic("t")
    log.knows_end = False
    with Consumer("t") as consumer, pytest.raises(RequestTimedOut):
        consumer.position(P0, timeout_ms=200)
    with Consumer("t", auto_offset_reset="none") as consumer:
        for _ in range(2):
            with pytest.raises(NoOffsetReset):
                consumer.position(P0)


# --- what is read -----------------------------------------------------------------------------------------------------


def test_topics_are_followed_or_partitions_assigned_but_not_both(cluster: Cluster) -> None:
    cluster.add_topic("t")
    cluster.add_topic("u", 2)
    cluster.add_topic("__consumer_offsets")
    with Consumer("t") as consumer:
        assert consumer.topics() == {"t", "u"}
        assert consumer.partitions_for_topic("u") == {0, 1}
        assert consumer.partitions_for_topic("nope") is None
        with pytest.raises(ConflictingSubscription):
            consumer.assign([P0])
        consumer.subscribe(["t", "u"])
        assert consumer.subscription() == {"t", "u"}
        assert len(consumer.assignment()) == 3
        consumer.unsubscribe()
        assert consumer.subscription() is None
        consumer.assign([P0])
        with pytest.raises(ConflictingSubscription):
            consumer.subscribe(["t"])
        with pytest.raises(TypeError, match="list of topics"):
            consumer.subscribe("t")
        with pytest.raises(UnknownTopic):
            Consumer("nope")


def test_what_needs_a_group_says_so(cluster: Cluster) -> None:
    cluster.add_topic("t")
    with Consumer() as consumer, pytest.raises(GroupRequired, match="pattern"):
        consumer.subscribe(pattern="t.*")


def test_options_are_checked_at_once() -> None:
    with pytest.raises(UnknownConfig, match="auto_offset_reset"):
        Consumer("t", auto_offset_rest="earliest")  # type: ignore[call-arg]
    with pytest.raises(InvalidConfig, match="earliest"):
        Consumer("t", auto_offset_reset="smallest")  # type: ignore[arg-type]
