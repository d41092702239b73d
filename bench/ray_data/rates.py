"""Ray Data: rows read from a topic and written to it a second, beside Kafka's connector of Ray Data on the gateway of
the same cluster, and beside Parquet on the same disk; where an Apache Kafka is given, also beside that connector there.

20 million records of 110 bytes (RAYLOG_BENCH_ROWS for another number), all seven columns, two CPUs. A quarter of them
is written; a fortieth goes through Kafka's connector.
"""

from __future__ import annotations

import logging
import os
import statistics
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import raylog
from bench.measuring import Figure, seconds
from bench.partitions.kafka import KafkaCluster, send_all
from bench.real_cluster import real_cluster
from raylog.api.admin.cluster import Cluster

if TYPE_CHECKING:
    import pyarrow as pa
    import ray.data

ROWS: Final = int(os.environ.get("RAYLOG_BENCH_ROWS", "20000000"))
FEW: Final = ROWS // 40
PARTITIONS: Final = 4
VALUE_BYTES, KEY_BYTES = 100, 10
ROUNDS: Final = 3
AT_ONCE: Final = 100_000
BATCHES: Final = 20


def run(kafka: str | None = None) -> Iterator[Figure]:
    """`kafka`: the address of an Apache Kafka, whose figures stand beside."""
    with real_cluster(brokers=1, kafka="127.0.0.1:0") as cluster, tempfile.TemporaryDirectory() as folder:
        _quiet()
        for name, rows in (("rows", ROWS), ("few", FEW)):
            _fill(cluster, name, rows)
        (bootstrap,) = cluster.kafka_addresses()
        if kafka is not None:
            yield from _on_kafka(kafka)
        yield from _reads(bootstrap, Path(folder))
        yield from _writes(cluster, bootstrap, Path(folder))
        yield _first_row()
        yield _batches(cluster)


def _quiet() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray Data warns of settings of its own when it is imported
        import ray.data
    logging.getLogger("ray.data").setLevel(logging.WARNING)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False


def _fill(cluster: Cluster, topic: str, rows: int) -> None:
    cluster.create_topic(topic, partitions=PARTITIONS, replication_factor=1)
    at_once = min(AT_ONCE, rows // PARTITIONS)
    with raylog.Producer(cluster=cluster, batch_size=1024 * 1024) as producer:
        for number in range(0, rows, at_once):
            count = min(at_once, rows - number)
            keys = [b"%010d" % each for each in range(count)]
            partition = number // at_once % PARTITIONS
            producer.send_many(topic, [b"v" * VALUE_BYTES] * count, keys=keys, partition=partition)
        producer.flush(600)


# --- reading ----------------------------------------------------------------------------------------------------------


def _touched(table: pa.Table) -> pa.Table:
    """Look at every column, and return one row."""
    import pyarrow as pa
    import pyarrow.compute as pc

    sizes = sum(pc.sum(pc.binary_length(table[name])).as_py() or 0 for name in ("key", "value"))
    newest = [pc.max(column) for name, column in zip(table.column_names, table.columns, strict=True)
              if name not in ("key", "value", "headers")]  # fmt: skip
    assert all(each is not None for each in newest)
    return pa.table({"rows": [table.num_rows], "bytes": [sizes]})


def _scan_rate(make: Callable[[], ray.data.Dataset], rows: int) -> Callable[[], float]:
    def scan() -> None:
        found = make().map_batches(_touched, batch_format="pyarrow", batch_size=None, zero_copy_batch=True).take_all()
        told = (sum(each["rows"] for each in found), sum(each["bytes"] for each in found))
        assert told == (rows, rows * (VALUE_BYTES + KEY_BYTES)), told

    return lambda: rows / seconds(scan) / 1e6


def _reads(bootstrap: str, folder: Path) -> Iterator[Figure]:
    import ray.data

    ours = _rounds(_scan_rate(lambda: raylog.data.read("rows"), ROWS))
    kafka = _rounds(_scan_rate(lambda: ray.data.read_kafka("few", bootstrap_servers=bootstrap), FEW))
    raylog.data.read("rows").write_parquet(str(folder / "rows"))
    parquet = _rounds(_scan_rate(lambda: ray.data.read_parquet(str(folder / "rows")), ROWS))
    yield Figure("Ray Data: read, 7 columns", ours, "M rows/s", note=_beside(ours, kafka, parquet))
    yield Figure("Ray Data: read_kafka on the gateway", kafka, "M rows/s")
    yield Figure("Ray Data: the same from Parquet", parquet, "M rows/s")


# --- writing ----------------------------------------------------------------------------------------------------------


def _made(rows: int) -> ray.data.Dataset:
    import ray.data

    def make(batch: dict[str, Any]) -> pa.Table:
        import pyarrow as pa

        count = len(batch["id"])
        keys = pa.array(batch["id"] % AT_ONCE).cast(pa.string())
        return pa.table({"key": keys, "value": pa.repeat("v" * VALUE_BYTES, count)})

    return ray.data.range(rows, override_num_blocks=8).map_batches(make, batch_size=AT_ONCE)


def _writes(cluster: Cluster, bootstrap: str, folder: Path) -> Iterator[Figure]:
    for name in ("written", "by-kafka"):
        cluster.create_topic(name, partitions=PARTITIONS, replication_factor=1)
    rows = ROWS // 4

    def to_topic() -> object:
        return raylog.data.write(_made(rows), "written", key="key", batch_size=1024 * 1024)

    def by_kafka() -> object:
        return _made(FEW).write_kafka("by-kafka", bootstrap, key_field="key")

    def to_parquet() -> object:
        return _made(rows).write_parquet(str(folder / "written"))

    ours = _rounds(lambda: rows / seconds(to_topic) / 1e6)
    kafka = _rounds(lambda: FEW / seconds(by_kafka) / 1e6)
    parquet = _rounds(lambda: rows / seconds(to_parquet) / 1e6)
    yield Figure("Ray Data: write, all or nothing", ours, "M rows/s", note=_beside(ours, kafka, parquet))
    yield Figure("Ray Data: write_kafka on the gateway", kafka, "M rows/s")
    yield Figure("Ray Data: write_parquet", parquet, "M rows/s")


# --- Apache Kafka -----------------------------------------------------------------------------------------------------


def _on_kafka(address: str) -> Iterator[Figure]:
    """Ray Data's connector, on topics as those here."""
    import ray.data

    peer = KafkaCluster(address)
    with peer.topic("few", PARTITIONS, 1) as few, peer.topic("written", PARTITIONS, 1) as written:
        keys = [b"%010d" % number for number in range(AT_ONCE)]
        with peer.producer() as producer:
            for start in range(0, FEW, AT_ONCE):
                send_all(producer, few, keys[: FEW - start], [b"v" * VALUE_BYTES] * min(AT_ONCE, FEW - start))
        rate = _rounds(_scan_rate(lambda: ray.data.read_kafka(few, bootstrap_servers=address), FEW))
        yield Figure("Ray Data: read_kafka on Apache Kafka", rate, "M rows/s")

        def by_kafka() -> object:
            return _made(FEW).write_kafka(written, address, key_field="key")

        rate = _rounds(lambda: FEW / seconds(by_kafka) / 1e6)
        yield Figure("Ray Data: write_kafka on Apache Kafka", rate, "M rows/s")


def _first_row() -> Figure:
    def look() -> float:
        return seconds(lambda: next(iter(raylog.data.read("rows").iter_rows())))

    return Figure("Ray Data: the first row", _rounds(look), "s", smaller_is_better=True)


def _batches(cluster: Cluster) -> Figure:
    """Time batches of a stream that copies 100 records each: read, written, and committed with their offsets."""
    cluster.create_topic("trickle", partitions=1, replication_factor=1)
    cluster.create_topic("copied", partitions=1, replication_factor=1)
    with raylog.Producer(cluster=cluster) as producer:
        producer.send_many("trickle", [b"x"] * 100 * (BATCHES + 3)).result(30)
    times = []
    sink = raylog.data.sink("copied")
    with raylog.data.stream("trickle", group_id="bench", max_rows=100, idle_timeout_ms=1000) as batches:
        for _ in range(BATCHES + 2):
            times.append(seconds(lambda: _copy(next(batches), sink)))
    return Figure("Ray Data: a batch of a stream", times[2:], "s", smaller_is_better=True, note="read to commit")


def _copy(batch: Any, sink: Any) -> None:
    with batch.transaction(sink) as out:
        out.write(batch.dataset)


def _rounds(measure: Callable[[], float]) -> list[float]:
    measure()
    return [measure() for _ in range(ROUNDS)]


def _beside(ours: list[float], kafka: list[float], parquet: list[float]) -> str:
    by_kafka, of_parquet = (statistics.median(ours) / statistics.median(each) for each in (kafka, parquet))
    return f"{by_kafka:.0f} × Kafka's connector, {of_parquet:.2f} of Parquet"
