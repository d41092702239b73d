"""`raylog.ConsumerPool` on a real cluster: it grows, loses an actor and its supervisor, is updated, and shrinks."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ray

import raylog
from examples import consumer_pool
from raylog.api.admin.pool_handle import PoolHandle
from raylog.errors import PoolExists, UnknownPool

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

COUNT = 4_000
QUICK: dict[str, Any] = {
    "num_cpus": 0.1, "target_lag_seconds": 1.0, "down_after_seconds": 3.0, "request_nodes": False,
    "session_timeout_ms": 6_000, "heartbeat_interval_ms": 500,
}  # fmt: skip


def until(condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.1)


def fill(topic: str, count: int, first: int = 0, keys: int = 20) -> None:
    numbers = range(first, first + count)
    with raylog.Producer() as producer:
        values, names = [b"%d" % each for each in numbers], [b"%d" % (each % keys) for each in numbers]
        producer.send_many(topic, values, names).result(30)


def note_down(folder: Path, version: str, seconds: float) -> Callable[[Any], None]:
    """Return a handler that is slow, and writes down which record it has had."""

    def handle(record: Any) -> None:
        time.sleep(seconds)
        line = b"%s %d %s\n" % (version.encode(), os.getpid(), record.value)
        opened = os.open(folder / "seen", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(opened, line)
        os.close(opened)

    return handle


def seen(folder: Path) -> list[list[str]]:
    path = folder / "seen"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def kill_an_actor(pool: PoolHandle) -> None:
    running = [each for each in pool.describe().actors if each.phase == "running" and each.partitions]
    os.kill(running[0].pid, signal.SIGKILL)


def test_a_pool_grows_survives_and_shrinks_and_nothing_is_lost(cluster: raylog.Cluster, tmp_path: Path) -> None:
    cluster.create_topic("pool-bills", partitions=4)
    fill("pool-bills", COUNT)
    pool = raylog.ConsumerPool(note_down(tmp_path, "v1", 0.01), "pool-bills", "pool-billing", max_actors=3, **QUICK)
    with pytest.raises(PoolExists):
        raylog.ConsumerPool(print, "pool-bills", "pool-billing")
    assert [each.group_id for each in cluster.pools()] == ["pool-billing"]
    until(lambda: pool.describe().running == 3, "three actors work")
    kill_an_actor(pool)
    until(lambda: pool.describe().deaths == 1, "the death is seen")
    ray.kill(ray.get_actor("pool:pool-billing", namespace="raylog/default"), no_restart=False)
    assert pool.update(note_down(tmp_path, "v2", 0.002)) == 2
    until(lambda: {each.version for each in pool.describe().actors} <= {2}, "all have the new handler")
    until(lambda: len({each[2] for each in seen(tmp_path)}) == COUNT, "all are handled")
    until(lambda: not pool.describe().actors, "nothing to do, nobody there")
    told = pool.describe()
    assert (told.state, told.lag, told.problem) == ("idle", 0, "")
    counts = Counter(each[2] for each in seen(tmp_path))
    assert counts.total() < 1.5 * COUNT, "what a dead actor has not committed is done again, and no more"
    assert {each[0] for each in seen(tmp_path)} == {"v1", "v2"}
    fill("pool-bills", 1, first=5_000)
    until(lambda: seen(tmp_path)[-1][2] == "5000", "it wakes up for one record")
    pool.stop()
    with pytest.raises(UnknownPool):
        cluster.pool("pool-billing")
    assert cluster.describe_group("pool-billing").lag == 0


def test_exactly_once_over_a_kill_with_a_bad_record_put_aside(cluster: raylog.Cluster) -> None:
    for topic in ("pool-in", "pool-out", "pool-dead"):
        cluster.create_topic(topic, partitions=2)
    fill("pool-in", 1_000)

    def price(records: list[Any], out: Any) -> None:
        time.sleep(0.1)
        for record in records:
            if record.value == b"77":
                raise ValueError("no price")
            out.send("pool-out", record.value, key=record.key)

    pool = raylog.ConsumerPool(
        price, ["pool-in"], "pool-pricing", cluster=cluster, takes="batch", exactly_once=True, retries=1,
        max_poll_records=50, max_actors=2, dead_letter_topic="pool-dead", **QUICK,
    )  # fmt: skip
    until(lambda: pool.describe().handled > 100, "some are priced")
    kill_an_actor(pool)
    until(lambda: cluster.describe_group("pool-pricing").lag == 0, "all are priced")
    pool.stop()
    reads: dict[str, Any] = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    with raylog.Consumer("pool-out", "pool-dead", consumer_timeout_ms=3_000, **reads) as consumer:
        found = Counter((record.topic, record.value) for record in consumer)
    numbers = {number: "pool-dead" if number == 77 else "pool-out" for number in range(1_000)}
    assert found == Counter((topic, b"%d" % number) for number, topic in numbers.items())


def test_a_record_that_ends_processes_is_put_aside_and_a_stop_leaves_nothing(
    cluster: raylog.Cluster, tmp_path: Path
) -> None:
    cluster.create_topic("pool-poison")
    cluster.create_topic("pool-poison-dead")
    fill("pool-poison", 20)

    class Handler:
        def __init__(self) -> None:
            self._note = note_down(tmp_path, "v1", 0.0)

        async def __call__(self, record: Any) -> None:
            if record.value == b"7":
                os.kill(os.getpid(), signal.SIGKILL)
            self._note(record)

    pool = raylog.ConsumerPool(Handler, "pool-poison", "pool-poison", dead_letter_topic="pool-poison-dead", **QUICK)
    until(lambda: pool.describe().put_aside == 1, "it is put aside")
    until(lambda: len({each[2] for each in seen(tmp_path)}) == 19, "the others are handled")
    assert pool.describe().deaths == 4, "two make careful, and two more make sure"
    pool.stop()
    left = [each["name"] for each in ray.util.list_named_actors(all_namespaces=True) if "pool" in each["name"]]
    assert left == []


def test_the_example_grows_drains_and_shrinks(cluster: raylog.Cluster) -> None:
    consumer_pool.make_topic(cluster, partitions=3)
    pool = consumer_pool.charge_all(max_actors=3)
    seen = consumer_pool.drain(pool, pile=3_000, actors=3, calm=2, most=60)
    assert (max(each.running for each in seen), seen[-1].running) == (3, 1)
    assert max(each.lag for each in seen) > 1_000
    assert consumer_pool.curve(seen).startswith("<svg")
    pool.stop()
    assert cluster.describe_group(consumer_pool.GROUP).lag == 0
