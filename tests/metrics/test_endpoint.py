"""Ray's own Prometheus endpoint, and what it tells of a cluster. One Ray for this module reports every second."""

from __future__ import annotations

import re
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

import raylog
from raylog.actors.on_ray.runtime.join_ray import join_or_start_ray
from tests.cluster.conftest import until

pytestmark = pytest.mark.cluster
pytest.importorskip("aiohttp", reason="this Ray has no endpoint; make test-metrics makes an environment that has one")

_RECORDS = 300


@pytest.fixture
def reporting_ray(ray_folder: Path) -> Iterator[str]:
    """Yields the address of its endpoint."""
    every_second = {"metrics_report_interval_ms": 1000}
    join_or_start_ray(num_cpus=2, include_dashboard=False, log_to_driver=False, _system_config=every_second)
    (node,) = ray.nodes()  # type: ignore[no-untyped-call]
    yield f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    ray.shutdown()


def scrape(address: str) -> dict[str, float]:
    """raylog's series: `name{tag="value",…}` with the tags that raylog gave, in the order of the alphabet."""
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            text = answer.read().decode()
    except OSError:  # the agent is starting
        return {}
    series: dict[str, float] = {}
    for name, tags, value in re.findall(r"^ray_(raylog_\w+)\{(.*)\} (\S+)$", text, re.MULTILINE):
        ours = re.findall(r'\b(broker|cluster|group|le|partition|state|topic)="([^"]*)"', tags)
        key = f"{name}{{{','.join(f'{tag}={content}' for tag, content in sorted(ours))}}}"
        series[key] = series.get(key, 0.0) + float(value)
    return series


@pytest.mark.timeout(120)
def test_ray_exports_what_was_produced_and_consumed(tmp_path: Path, reporting_ray: str) -> None:
    cluster = raylog.start(tmp_path, brokers=2, cluster="measured")
    cluster.create_topic("clicks", replication_factor=2)
    cluster.create_topic("views", replication_factor=1, config={"metrics.per.partition": True}, partitions=2)
    with raylog.Producer(cluster="measured", transactional_id="mover") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send_many("clicks", [b"v"] * _RECORDS)
    with raylog.Consumer("clicks", cluster="measured", auto_offset_reset="earliest") as consumer:
        read = 0
        while read < _RECORDS:
            read += sum(map(len, consumer.poll(timeout_ms=1000).values()))

    leader = cluster.describe_topic("clicks").partitions[0].leader
    of_leader = f"broker={leader},cluster=measured"
    expected = {
        f"raylog_records_in_total{{{of_leader},partition=all,topic=clicks}}": _RECORDS,
        "raylog_brokers_alive{cluster=measured}": 2,
        "raylog_controller_serving{cluster=measured}": 1,
        "raylog_under_replicated_partitions{cluster=measured}": 0,
        "raylog_log_end_offset{broker=0,cluster=measured,partition=all,topic=clicks}": _RECORDS + 1,
        "raylog_log_end_offset{broker=1,cluster=measured,partition=all,topic=clicks}": _RECORDS + 1,
        f"raylog_is_leader{{{of_leader},partition=all,topic=clicks}}": 1,
        **{
            f"raylog_is_leader{{broker={each.leader},cluster=measured,partition={each.partition},topic=views}}": 1
            for each in cluster.describe_topic("views").partitions
        },
    }
    rising = [
        f"raylog_bytes_in_total{{{of_leader},partition=all,topic=clicks}}",
        f"raylog_bytes_out_total{{{of_leader},partition=all,topic=clicks}}",
        f"raylog_append_seconds_bucket_total{{{of_leader},le=+Inf,partition=all,topic=clicks}}",
        f"raylog_append_seconds_count_total{{{of_leader},partition=all,topic=clicks}}",
        f"raylog_append_seconds_sum_total{{{of_leader},partition=all,topic=clicks}}",
        f"raylog_disk_free_bytes{{{of_leader}}}",
    ]
    found: dict[str, float] = {}

    def is_told() -> bool:
        found.update(scrape(reporting_ray))
        committed = sum(value for key, value in found.items() if "state=complete_commit" in key)
        told = {key: found.get(key) for key in expected}
        return told == expected and committed == 1 and all(found.get(key, 0.0) > 0 for key in rising)

    try:
        until(is_told, 30.0)
    finally:
        sys.stdout.write("".join(f"{key} {value}\n" for key, value in sorted(found.items())))
        cluster.shutdown()


@pytest.mark.timeout(120)
@pytest.mark.filterwarnings("ignore")
def test_the_driver_of_a_stream_tells_its_lag_and_what_it_has_committed(tmp_path: Path, reporting_ray: str) -> None:
    pytest.importorskip("pandas", reason="the extra `data` is not installed")
    cluster = raylog.start(tmp_path, brokers=1, cluster="measured")
    cluster.create_topic("clicks", partitions=2)
    with raylog.Producer(cluster="measured") as producer:
        producer.send_many("clicks", [b"v"] * _RECORDS).result(30)
    found: dict[str, float] = {}
    tags = "{cluster=measured,group=scores}"

    def is_told(lag: int, offsets: int, batches: int) -> bool:
        found.update(scrape(reporting_ray))
        names = ("raylog_stream_lag", "raylog_stream_offsets_total", "raylog_stream_batches_total")
        return [found.get(name + tags, 0.0) for name in names] == [lag, offsets, batches]

    try:
        with raylog.data.stream("clicks", group_id="scores", cluster="measured", max_rows=100) as batches:
            next(batches)
            until(lambda: is_told(_RECORDS, 0, 0), 30.0)
            next(batches).commit()
            until(lambda: is_told(_RECORDS - 200, 200, 1), 30.0)
        until(lambda: is_told(0, 200, 1), 30.0)
    finally:
        sys.stdout.write("".join(f"{key} {value}\n" for key, value in sorted(found.items()) if "stream" in key))
        cluster.shutdown()
