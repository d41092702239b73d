"""The options of consumers: kafka-python's defaults, and one list for people and type checkers."""

from __future__ import annotations

import dataclasses
import math

import pytest

from raylog.api.consumer.rules.consumer_options import ConsumerOptions, ConsumerSettings
from raylog.errors import InvalidConfig


def test_defaults_are_kafka_pythons() -> None:
    options = ConsumerOptions.parse({})
    assert (options.fetch_max_wait_ms, options.fetch_min_bytes, options.fetch_max_bytes) == (500, 1, 52_428_800)
    assert (options.max_partition_fetch_bytes, options.request_timeout_ms, options.retry_backoff_ms) == (
        1_048_576,
        30_000,
        100,
    )
    assert (options.auto_offset_reset, options.isolation_level) == ("latest", "read_uncommitted")
    assert (options.max_poll_records, options.consumer_timeout_ms) == (500, math.inf)
    assert (options.session_timeout_ms, options.heartbeat_interval_ms, options.max_poll_interval_ms) == (
        45_000,
        3_000,
        300_000,
    )
    assert (options.enable_auto_commit, options.auto_commit_interval_ms) == (True, 5_000)
    assert options.group_id is None


def test_type_checkers_know_the_same_options() -> None:
    assert set(ConsumerSettings.__annotations__) == {field.name for field in dataclasses.fields(ConsumerOptions)}


def test_both_kinds_of_deserializers_are_taken() -> None:
    class Json:
        def deserialize(self, topic: str, headers: object, data: bytes) -> tuple[str, bytes]:
            return topic, data

    options = ConsumerOptions.parse({"key_deserializer": bytes.decode, "value_deserializer": Json()})
    assert options.key_deserializer is not None
    assert options.value_deserializer is not None
    assert list(options.key_deserializer.over("t", [(), ()], [b"a", None])) == ["a", None]
    assert list(options.value_deserializer.over("t", [(), ()], [b"a", None])) == [("t", b"a"), None]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("auto_offset_reset", "smallest"),
        ("group_id", ""),
        ("key_deserializer", 5),
        ("interceptors", [5]),
        ("consumer_timeout_ms", -1),
        ("fetch_max_bytes", 0),
        ("max_poll_records", 0),
        ("heartbeat_interval_ms", 45_000),
    ],
)
def test_what_cannot_be_is_refused(name: str, value: object) -> None:
    with pytest.raises(InvalidConfig):
        ConsumerOptions.parse({name: value})
