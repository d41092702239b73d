"""All ways to write into topics of each `batch.format`: the same records, in batches of that form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import pyarrow as pa
import pytest

from raylog.api.producer import bulk_send
from raylog.api.producer.producer import Producer
from raylog.storage.format.record_batch import MAGIC_COLUMNS, MAGIC_KAFKA
from tests.unit.api.producer_cluster import TOPIC, FakeLink, producer_of

Row: TypeAlias = tuple[bytes | None, bytes | None, int, tuple[tuple[str, bytes | None], ...]]
ROWS: list[Row] = [
    (
        None if number % 7 == 0 else b"key-%d" % number,
        None if number % 5 == 0 else bytes(number),
        5_000 + number % 3,
        (("n", b"%d" % number),) * (number % 2),
    )
    for number in range(300)
]
KEYS, VALUES, STAMPS, HEADERS = (list(column) for column in zip(*ROWS, strict=True))
PLAIN = [(key, value, 5_000, ()) for key, value, _, _ in ROWS]


def one_by_one(producer: Producer) -> None:
    for key, value, stamp, headers in ROWS:
        producer.send(TOPIC, value, key, timestamp_ms=stamp, headers=list(headers))


def many(producer: Producer) -> None:
    producer.send_many(TOPIC, VALUES, KEYS, STAMPS, HEADERS)


def many_by_arrow(producer: Producer) -> None:
    producer.send_many(TOPIC, VALUES, KEYS, 5_000)


def arrow(producer: Producer) -> None:
    pairs = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = [[{"key": name, "value": value} for name, value in each] for each in HEADERS]
    columns = {
        "key": pa.array(KEYS, pa.binary()),
        "value": pa.array(VALUES, pa.binary()),
        "timestamp": pa.array(STAMPS, pa.timestamp("ms")),
        "headers": pa.array(headers, pairs),
    }
    producer.send_arrow(TOPIC, pa.table(columns))


def found(link: FakeLink) -> list[Row]:
    return [
        (key, value, timestamp, tuple(headers))
        for partition in link.batches
        for batch in partition
        for key, value, timestamp, headers in zip(
            batch.keys, batch.values, batch.timestamps, batch.headers, strict=True
        )
    ]


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=repr)


@pytest.mark.parametrize(
    ("batch_format", "magic"), [("as-produced", MAGIC_COLUMNS), ("columns", MAGIC_COLUMNS), ("kafka", MAGIC_KAFKA)]
)
@pytest.mark.parametrize("options", [{}, {"compression_type": "lz4"}, {"acks": 0}, {"batch_size": 400}], ids=str)
@pytest.mark.parametrize(
    ("write", "rows"), [(one_by_one, ROWS), (many, ROWS), (many_by_arrow, PLAIN), (arrow, ROWS)]
)
def test_batches_have_the_form_that_the_topic_says(
    monkeypatch: pytest.MonkeyPatch,
    write: Callable[[Producer], None],
    rows: list[Row],
    options: dict[str, Any],
    batch_format: str,
    magic: int,
) -> None:
    if write is many_by_arrow:
        monkeypatch.setattr(bulk_send, "_WORTH_ARROW", 1)
    with producer_of(monkeypatch, 3, **options) as (producer, link):
        link.view = replace(link.view, batch_format=batch_format)
        write(producer)
        producer.flush(10)
        assert in_order(found(link)) == in_order(rows)
        assert {batch.header.magic for partition in link.batches for batch in partition} == {magic}


def test_a_change_counts_from_the_next_batch_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with producer_of(monkeypatch, 1) as (producer, link):
        for batch_format in ("columns", "kafka", "kafka", "as-produced"):
            link.view = replace(link.view, batch_format=batch_format)
            producer.send(TOPIC, b"v").result(10)
        magics = [batch.header.magic for batch in link.batches[0]]
        assert magics == [MAGIC_COLUMNS, MAGIC_KAFKA, MAGIC_KAFKA, MAGIC_COLUMNS]


def test_a_sent_record_tells_its_sizes_in_each_form(monkeypatch: pytest.MonkeyPatch) -> None:
    with producer_of(monkeypatch, 1) as (producer, link):
        link.view = replace(link.view, batch_format="kafka")
        told = producer.send(TOPIC, b"value", key=b"key").result(10)
        assert (told.serialized_key_size, told.serialized_value_size) == (3, 5)
