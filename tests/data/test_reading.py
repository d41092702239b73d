"""`raylog.data.read` on a real cluster: each visible record once, however the work is shared out."""

from __future__ import annotations

import io
import json
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pytest

import raylog
from raylog.errors import InvalidConfig, InvalidRange, RecordsLost, UnknownTopic
from tests.unit.api.data.loopback_registry import framed, loopback_registry

if TYPE_CHECKING:
    import ray.data

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120), pytest.mark.filterwarnings("ignore")]

BEGAN = 1_700_000_000_000


@pytest.fixture(scope="module")
def clicks(cluster: raylog.Cluster) -> str:
    """A topic of three partitions: 0 holds 3,000 records, of which some were aborted, 1 holds 30, 2 none."""
    cluster.create_topic("data-clicks", partitions=3)
    with raylog.Producer(linger_ms=0, batch_size=4_000) as producer:
        for number in range(2_000):
            value = json.dumps({"user": f"u{number % 7}", "amount": number}).encode()
            producer.send("data-clicks", value, key=b"%d" % number, partition=0, timestamp_ms=BEGAN + number)
        for number in range(30):
            producer.send("data-clicks", b'{"amount": -1}', partition=1, headers=[("h", b"%d" % number)])
    with raylog.Producer(transactional_id="data-clicks") as producer:
        producer.init_transactions()
        for commits in (False, True):
            producer.begin_transaction()
            for _ in range(500):
                producer.send("data-clicks", b'{"amount": 5}' if commits else b"aborted", partition=0)
            producer.flush()  # an abort throws away what was not sent yet
            (producer.commit_transaction if commits else producer.abort_transaction)()
    return "data-clicks"


def places(dataset: ray.data.Dataset) -> list[tuple[int, int]]:
    return sorted((row["partition"], row["offset"]) for row in dataset.take_all())


def test_each_visible_record_is_there_once_in_any_number_of_blocks(clicks: str) -> None:
    expected = [*((0, offset) for offset in range(2_000)), *((0, offset) for offset in range(2_501, 3_001))]
    expected += [(1, offset) for offset in range(30)]
    read = raylog.data.read(clicks, override_num_blocks=5)
    assert read.schema().names == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert places(read) == sorted(expected)
    assert read.materialize().num_blocks() == 5
    some = read.take(1)[0]
    assert (some["key"], some["topic"], some["timestampType"]) == (b"0", clicks, 0)
    assert some["timestamp"].timestamp() * 1000 == BEGAN
    uncommitted = raylog.data.read(clicks, isolation="read_uncommitted", columns=["offset"])
    assert uncommitted.count() == 3_030


def test_counting_and_choosing_columns_read_no_more_than_they_need(clicks: str) -> None:
    read = raylog.data.read(clicks)
    assert read.count() == 2_530
    chosen = read.select_columns(["offset"])
    assert chosen.schema().names == ["offset"]
    assert chosen.sum("offset") == sum(range(2_000)) + sum(range(2_501, 3_001)) + sum(range(30))
    headers = raylog.data.read(clicks, columns=["headers"], start={clicks: {0: 2_000}}, end={clicks: {0: 2_000}})
    assert sorted(int(row["headers"][0]["value"]) for row in headers.take_all()) == list(range(30))


def test_values_are_decoded_in_columns(clicks: str) -> None:
    import pyarrow as pa

    fields = raylog.data.Json(pa.schema([("user", pa.string()), ("amount", pa.int64())]))
    read = raylog.data.read(clicks, schema=fields, columns=["user", "amount", "partition"])
    assert read.filter(expr="partition == 0").sum("amount") == sum(range(2_000)) + 500 * 5
    assert read.select_columns(["user"]).unique("user")
    wrong = raylog.data.read(clicks, schema=raylog.data.Json(pa.schema([("amount", pa.string())])))
    with pytest.raises(Exception, match=r"ValueNotDecoded.*offset 0 of data-clicks-0"):
        wrong.take_all()


def test_values_of_a_registered_schema_are_decoded_in_tasks(cluster: raylog.Cluster) -> None:
    import pyarrow as pa
    from fastavro import schemaless_writer

    user = {"type": "record", "name": "User", "fields": [{"name": "name", "type": "string"}]}
    cluster.create_topic("data-avro", partitions=2)
    with loopback_registry() as registry, raylog.Producer() as producer:
        registry.add(5, json.dumps(user))
        for number in range(20):
            content = io.BytesIO()
            schemaless_writer(content, user, {"name": f"u{number}"})
            producer.send("data-avro", framed(5, content.getvalue()), partition=number % 2)
        producer.flush(30)
        users = raylog.data.Avro(pa.schema([("name", pa.string())]), registry.address)
        found = raylog.data.read("data-avro", schema=users, columns=["name"], override_num_blocks=2).take_all()
        assert sorted(row["name"] for row in found) == sorted(f"u{number}" for number in range(20))
        with raylog.Producer() as other:
            other.send("data-avro", framed(6, b""), partition=0).result(30)
        with pytest.raises(Exception, match=r"ValueNotDecoded.*offset 10 of data-avro-0.*/schemas/ids/6"):
            raylog.data.read("data-avro", schema=users).take_all()


def test_a_read_begins_where_it_is_told(clicks: str, cluster: raylog.Cluster) -> None:
    def read(**how: Any) -> list[tuple[int, int]]:
        return places(raylog.data.read(clicks, columns=["partition", "offset"], **how))

    assert read(start=10, end=12) == [(0, 10), (0, 11), (1, 10), (1, 11)]
    since = datetime.fromtimestamp((BEGAN + 1_998) / 1000, tz=timezone.utc)
    assert read(start=since, end={clicks: {0: 2_100, 1: 1}}) == [(0, 1_998), (0, 1_999), (1, 0)]
    cluster.alter_group_offsets("data-readers", {(clicks, 0): 2_999})
    assert read(group_id="data-readers", end={clicks: {1: 1}}) == [(0, 2_999), (0, 3_000), (1, 0)]
    assert read(group_id="nobody", start=3_000) == [(0, 3_000)]


def test_what_is_read_is_fixed_when_the_read_is_made(cluster: raylog.Cluster) -> None:
    cluster.create_topic("data-growing")
    with raylog.Producer() as producer:
        producer.send("data-growing", b"1").result(30)
        read = raylog.data.read("data-growing")
        empty = raylog.data.read("data-growing", start=1)
        producer.send("data-growing", b"2").result(30)
    assert [row["value"] for row in read.take_all()] == [b"1"]
    assert (empty.count(), empty.take_all(), empty.schema().names[0]) == (0, [], "key")
    cluster.delete_records({("data-growing", 0): 2})
    with pytest.raises(Exception, match=r"RecordsLost.*data-growing-0"):
        read.materialize()
    with pytest.raises(RecordsLost):
        raylog.data.read("data-growing", start=1)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"topics": "nobody"}, UnknownTopic),
        ({"topics": []}, InvalidConfig),
        ({"columns": ["kex"]}, InvalidConfig),
        ({"start": "latest"}, InvalidConfig),
        ({"start": {"data-clicks": {9: 0}}}, InvalidRange),
        ({"isolation": "serializable"}, InvalidConfig),
        ({"override_num_blocks": 0}, InvalidConfig),
    ],
)
def test_wrong_arguments_are_refused(clicks: str, wrong: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        raylog.data.read(**{"topics": clicks, **wrong})
