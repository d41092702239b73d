"""The steps of the demo, one after the other."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import ray

import raylog
from examples.demo.account import Account, milliseconds, quantile, thousands
from examples.demo.failures import DemoFailed, in_one_line
from examples.demo.load import NUMBER_DIGITS, RECORD_BYTES, Reader, Seen, Writer, Written, numbered
from raylog.errors import RaylogError

TOPIC: Final = "clicks"
GROUP: Final = "analytics"
PARTITIONS: Final = 3
RATE: Final = 10_000
BURST: Final = 500_000
_CHUNK: Final = 25_000
_CALM_SECONDS: Final = 4.0
_WAIT_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.02


class Story:
    def __init__(self, account: Account, data: Path) -> None:
        self._tell = account
        self._data = data
        self._rows: list[tuple[str, str]] = []

    def run(self) -> None:
        cluster = self._start()
        written, seen = self._fail_over(cluster)
        self._account_for(written, seen)
        self._burst(written)
        self._spark(written.acknowledged + BURST)
        with self._tell.step("cluster stopped, its files removed"):
            cluster.shutdown()
        self._tell.chapter("In figures")
        self._tell.table(self._rows)

    # --- the steps ---

    def _start(self) -> raylog.Cluster:
        self._tell.chapter("A cluster")
        with self._tell.step("three brokers on this machine, each with a directory of its own"):
            cluster = raylog.start(self._data, brokers=3)
        with self._tell.step(f"topic {TOPIC!r}: {PARTITIONS} partitions, three copies of each"):
            cluster.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=3)
            until(lambda: is_whole(cluster))
        return cluster

    def _fail_over(self, cluster: raylog.Cluster) -> tuple[Written, list[Seen]]:
        self._tell.chapter("A leader dies under load")
        with self._tell.step(f"a producer, and a group of two consumers: {GROUP!r}"):
            writer = actor(Writer).remote(TOPIC, PARTITIONS, RATE)
            readers = [actor(Reader).remote(TOPIC, GROUP) for _ in range(2)]
            until(lambda: sum(map(len, ask(*(each.partitions for each in readers)))) == PARTITIONS)
            ask(writer.begin)
        with self._tell.step(f"{thousands(RATE)} records a second, acks=all"):
            time.sleep(_CALM_SECONDS)
        self._kill_leader(cluster)
        with self._tell.step("the records go on"):
            time.sleep(_CALM_SECONDS)
        with self._tell.step("producer stopped; the group reads to the end"):
            (written,) = ask(writer.stop)
            until(lambda: sum(ask(*(each.count for each in readers))) >= written.acknowledged)
            seen = ask(*(each.stop for each in readers))
        for each in (writer, *readers):
            ray.kill(each)
        return written, seen

    def _kill_leader(self, cluster: raylog.Cluster) -> None:
        before = cluster.describe_topic(TOPIC).partitions[0]
        leader = next(
            each for each in cluster.describe_replicas(TOPIC) if (each.partition, each.broker) == (0, before.leader)
        )
        os.kill(leader.pid, signal.SIGKILL)
        began = time.monotonic()
        self._tell.blow(f"kill -9 {leader.pid}: the leader of {TOPIC}-0, on broker {leader.broker}")

        def leads() -> int:
            after = cluster.describe_topic(TOPIC).partitions[0]
            return after.leader if after.leader >= 0 and after.leader_epoch > before.leader_epoch else -1

        until(lambda: leads() >= 0)
        elected = time.monotonic() - began
        self._tell.done(f"broker {leads()} leads {TOPIC}-0", elected)
        until(lambda: is_whole(cluster))
        whole = time.monotonic() - began
        self._tell.done("all three copies are in sync again", whole)
        self._rows += [("a new leader after", milliseconds(elected)), ("three copies again after", f"{whole:.1f} s")]

    def _account_for(self, written: Written, seen: list[Seen]) -> None:
        read = Counter(number for each in seen for number in each.numbers)
        lost = written.acknowledged - len(read)
        twice = sum(count - 1 for count in read.values())
        self._tell.chapter("Nothing was lost")
        self._tell.table(
            [
                ("acknowledged to the producer", thousands(written.acknowledged)),
                ("read by the group", thousands(sum(read.values()))),
                ("lost", thousands(lost)),
                ("twice", thousands(twice)),
                ("longest wait for an acknowledgement", milliseconds(max(written.waits))),
            ]
        )
        delays = [delay for each in seen for delay in each.delays]
        self._rows += [
            ("longest wait for an acknowledgement", milliseconds(max(written.waits))),
            ("usual wait (median)", milliseconds(quantile(written.waits, 0.5))),
            ("from producer to consumer (median)", milliseconds(quantile(delays, 0.5))),
        ]
        if lost or twice or max(read) + 1 != len(read):
            raise DemoFailed(f"{lost} records lost, {twice} twice, of {written.acknowledged}.")

    def _burst(self, written: Written) -> None:
        self._tell.chapter("As fast as it goes")
        values = numbered(written.acknowledged, BURST)
        with self._tell.step(f"{thousands(BURST)} records of {RECORD_BYTES} bytes, three copies, acks=all"):
            with raylog.Producer(acks="all") as producer:
                began = time.monotonic()
                sent = [producer.send_many(TOPIC, values[at : at + _CHUNK]) for at in range(0, BURST, _CHUNK)]
                total = sum(future.result(timeout=_WAIT_SECONDS).record_count for future in sent)
            took = time.monotonic() - began
        self._rows.append(("written and copied twice, flat out", f"{thousands(total / took)} records/s"))
        expected = written.acknowledged + BURST
        with self._tell.step("all of the topic read, as columns"):
            took = self._read_all(expected)
        self._rows.append(("read, flat out", f"{thousands(expected / took)} records/s"))

    def _read_all(self, expected: int) -> float:
        with raylog.Consumer(TOPIC, auto_offset_reset="earliest") as consumer:
            began, count = time.monotonic(), 0
            while count < expected:
                found = sum(len(batch) for batch in consumer.poll_batches(timeout_ms=1000))
                count += found
                if not found and time.monotonic() - began > _WAIT_SECONDS:
                    raise DemoFailed(f"{expected - count} of {expected} records could not be read.")
        return time.monotonic() - began

    def _spark(self, expected: int) -> None:
        from raylog import spark_bridge
        from raylog.actors.on_ray.runtime.java_runtime import spark_is_installed

        self._tell.chapter("The same records in Spark")
        if not spark_is_installed():
            self._tell.note("left out: pip install 'raylog[spark]' brings it")
            return
        with self._tell.step("Spark's executors start on the same Ray"):
            spark = spark_bridge.session("demo", executors=1, executor_memory="600m")
        try:
            with self._tell.step("count(*) and max(number) of each partition, in SQL"):
                began = time.monotonic()
                number = f"cast(substring(cast(value as string), 1, {NUMBER_DIGITS}) as long)"
                frame = spark_bridge.read(spark, subscribe=TOPIC, startingOffsets="earliest")
                frame.selectExpr("partition", f"{number} as number").createOrReplaceTempView(TOPIC)
                found = spark.sql(
                    f"select partition, count(*), max(number) from {TOPIC} group by partition order by partition"
                ).collect()
                took = time.monotonic() - began
        except Exception as error:  # told now, while there is a Java to be asked what it means
            raise DemoFailed(f"Spark: {in_one_line(error)}") from error
        finally:
            spark_bridge.stop(spark)
        for partition, count, number in found:
            self._tell.note(f"partition {partition}: {thousands(count)} records, up to number {thousands(number)}")
        total = sum(count for _, count, _ in found)
        self._rows.append(("counted by Spark", f"{thousands(total / took)} records/s"))
        if total != expected:
            raise DemoFailed(f"Spark found {total} records of {expected}.")


def actor(kind: type) -> Any:
    return ray.remote(kind).options(num_cpus=0, max_concurrency=2)


def ask(*methods: Any) -> list[Any]:
    answers: list[Any] = ray.get([method.remote() for method in methods], timeout=2 * _WAIT_SECONDS)
    return answers


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _WAIT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise DemoFailed("The demo waited for a minute in vain.")
        time.sleep(_LOOK_SECONDS)


def is_whole(cluster: raylog.Cluster) -> bool:
    try:
        replicas = cluster.describe_replicas(TOPIC)
    except RaylogError:
        return False
    return all(each.in_sync and each.role in ("leader", "follower") for each in replicas)
