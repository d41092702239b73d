"""Batches between raylog's columns and Kafka's own records: one core, 110-byte records, 5,000 to a batch.

Seconds are those of the processor.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import process_time

from bench.batches import NOW_MS, records
from bench.measuring import Figure, rate_of, rounds_of
from raylog.api.kafka.rules.batch_conversion import as_columns, as_kafka
from raylog.api.producer.rules.producer_batch import NOBODY, Columns
from raylog.storage.format.batch_codec import PLAIN_COLUMNS, decode_checked, encode_batch, read_checked
from raylog.storage.format.record_batch import MAGIC_KAFKA, NO_SEQUENCE, read_header

_COUNT = 5000
_MILLION = 1_000_000


def run() -> Iterator[Figure]:
    keys, values, timestamps = records(_COUNT)
    varied = [value[: 60 + n % 40] for n, value in enumerate(values)]
    headers = [[("trace", b"%08d" % number)] for number in range(_COUNT)]
    stored = {
        "even lengths, one time": encode_batch(values, keys=keys, timestamps=NOW_MS),
        "even lengths": encode_batch(values, keys=keys, timestamps=timestamps),
        "values of 60 to 99 B": encode_batch(varied, keys=keys, timestamps=timestamps),
        "with a header each": encode_batch(values, keys=keys, timestamps=NOW_MS, headers=headers),
    }
    new = {
        "even lengths, one time": Columns(keys, values, None, NOW_MS),
        "even lengths": Columns(keys, values, None, timestamps),
        "values of 60 to 99 B": Columns(keys, varied, None, timestamps),
        "with a header each": Columns(keys, values, headers, NOW_MS),
    }
    goals = {"even lengths, one time": 8.0, "values of 60 to 99 B": 3.0, "with a header each": 1.4}
    for what, batch in stored.items():
        yield _figure(f"columns to Kafka's, {what}", lambda: as_kafka(batch), goals.get(what))  # noqa: B023 (called at once)
    for what, content in new.items():
        for form in (PLAIN_COLUMNS, PLAIN_COLUMNS._replace(magic=MAGIC_KAFKA)):
            name = "Kafka's" if form.magic == MAGIC_KAFKA else "columns"
            yield _figure(f"{name} of new records, {what}", lambda: content.encode(form, NOBODY, NO_SEQUENCE))  # noqa: B023
    for what, batch in stored.items():
        kafka = bytes(as_kafka(batch))
        yield _figure(f"Kafka's to columns, {what}", lambda: as_columns(kafka))  # noqa: B023
    for what, batch in stored.items():
        kafka = bytes(as_kafka(batch))
        header = read_header(kafka)
        goal = None if "header" in what else 4.0
        yield _figure(f"read Kafka's, {what}", lambda: read_checked(header, kafka), goal)  # noqa: B023
        yield _figure(f"read Kafka's in Python, {what}", lambda: decode_checked(header, kafka))  # noqa: B023


def _figure(title: str, action: object, goal: float | None = None) -> Figure:
    assert callable(action)
    return Figure(title, rounds_of(rate_of(action, _COUNT / _MILLION, clock=process_time)), "M records/s", goal)
