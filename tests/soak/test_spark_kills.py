"""A job of Spark's copies a topic while its driver, its executor and leaders are killed, KILLS (10) times in all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random

import pytest
import ray

import raylog
from raylog.actors.on_ray.runtime.join_ray import join_or_start_ray
from raylog.api.admin.cluster import Cluster
from tests.spark.processes import kill_leader

pytestmark = [
    pytest.mark.spark,
    pytest.mark.soak,
    pytest.mark.timeout(0),
    pytest.mark.filterwarnings("default"),
]
SOURCE, SINK, PARTITIONS = "events", "copies", 3
START_SECONDS = 300.0
CATCH_UP_SECONDS = 300.0


class CopyingJob:
    """The driver's process, started again whenever it has ended."""

    def __init__(self, checkpoint: Path) -> None:
        self.starts = 0
        self._checkpoint = checkpoint
        self._pids = checkpoint.with_name("executors")
        self._log = checkpoint.with_name("driver.log")
        self._process: subprocess.Popen[bytes] | None = None

    def ensure(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self.starts += 1
        self._pids.write_text("")
        command = [sys.executable, "-m", "tests.soak.copying_job", SOURCE, SINK, str(self._checkpoint), str(self._pids)]
        environment = {**os.environ, "RAY_ADDRESS": ray.get_runtime_context().gcs_address}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def log(self) -> str:
        return self._log.read_text()[-3000:]

    def kill_driver(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(30)

    def kill_executor(self) -> None:
        for pid in self._pids.read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        self._pids.write_text("")


class Producing:
    """Numbers into the source, until it is stopped."""

    def __init__(self, cluster: Cluster) -> None:
        self.count = 0
        self._cluster = cluster
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with raylog.Producer(cluster=self._cluster) as producer:
            while not self._is_over.wait(0.05):
                values = [b"%d" % number for number in range(self.count, self.count + 50)]
                producer.send_many(SOURCE, values, keys=values)
                self.count += len(values)

    def stop(self) -> int:
        self._is_over.set()
        self._thread.join()
        return self.count


class Copies:
    """The copies that a reader of committed records has seen."""

    def __init__(self, cluster: Cluster) -> None:
        self.seen: Counter[bytes | None] = Counter()
        self._consumer = raylog.Consumer(
            SINK, cluster=cluster, auto_offset_reset="earliest", isolation_level="read_committed"
        )

    def more_than(self, count: int, seconds: float, ensure: Callable[[], None]) -> bool:
        until = time.monotonic() + seconds
        while self.seen.total() < count and time.monotonic() < until:
            ensure()
            for records in self._consumer.poll(timeout_ms=500).values():
                self.seen.update(record.value for record in records)
        return self.seen.total() >= count

    def close(self) -> None:
        self._consumer.close()


@contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    join_or_start_ray(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    cluster = raylog.start(folder / "data", brokers=3)
    for topic in (SOURCE, SINK):
        cluster.create_topic(topic, partitions=PARTITIONS, replication_factor=3)
    yield cluster
    cluster.shutdown()
    ray.shutdown()


def test_each_record_is_copied_once_whatever_is_killed(ray_folder: Path, tmp_path: Path) -> None:
    random = Random(int(os.environ.get("SEED", "1")))
    with running_cluster(ray_folder) as cluster:
        job, producing, copies = CopyingJob(tmp_path / "checkpoint"), Producing(cluster), Copies(cluster)
        kills: list[Callable[[], None]] = [
            job.kill_driver,
            job.kill_executor,
            partial(kill_leader, cluster, SINK, 0),
            partial(kill_leader, cluster, SOURCE, 1),
        ]
        try:
            for number in range(int(os.environ.get("KILLS", "10"))):
                assert copies.more_than(copies.seen.total() + 500, START_SECONDS, job.ensure), job.log()
                time.sleep(random.uniform(0.0, 2.0))
                kills[number % len(kills)]()
            written = producing.stop()
            is_there = copies.more_than(written, CATCH_UP_SECONDS, job.ensure)
            sys.stdout.write(f"{written} records, {job.starts} starts of the driver\n")
            assert is_there, f"{copies.seen.total()} of {written}; {job.log()}"
            copies.more_than(written + 1, 5.0, job.ensure)
            assert copies.seen == Counter(b"%d" % number for number in range(written))
        finally:
            producing.stop()
            copies.close()
            job.kill_driver()
