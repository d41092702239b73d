"""Which frames and options can be written with, and which are refused before anything is."""

from __future__ import annotations

import pytest

from raylog.errors import FrameNotWritable, InvalidConfig, UnknownSparkOption
from raylog.spark_bridge.writing.rules.sink_columns import columns_of_records
from raylog.spark_bridge.writing.rules.sink_options import SinkOptions

HEADERS = "array<struct<key:string,value:binary>>"
READ = [
    ("key", "binary"), ("value", "binary"), ("topic", "string"), ("partition", "int"), ("offset", "bigint"),
    ("timestamp", "timestamp"), ("timestampType", "int"), ("headers", HEADERS),
]  # fmt: skip


def test_what_was_read_can_be_written() -> None:
    assert columns_of_records(READ, None) == ["key", "value", "topic", "partition", "headers"]
    assert columns_of_records(READ, "out") == ["key", "value", "partition", "headers"]
    assert columns_of_records([("value", "string")], "out") == ["value"]


@pytest.mark.parametrize(
    ("columns", "topic", "reason"),
    [
        ([("key", "string")], "out", "no column 'value', but 'key'"),
        ([("value", "string")], None, "neither an option nor a column 'topic'"),
        ([("value", "int")], "out", "'value' is of type int, and not string or binary"),
        ([("value", "string"), ("key", "bigint")], "out", "'key' is of type bigint"),
        ([("value", "string"), ("topic", "binary")], None, "'topic' is of type binary, and not string"),
        ([("value", "string"), ("partition", "bigint")], "out", "'partition' is of type bigint, and not int"),
        ([("value", "string"), ("headers", "map<string,binary>")], "out", "'headers' is of type"),
        ([("value", "string"), ("value", "string")], "out", "2 columns 'value'"),
    ],
)
def test_other_frames_are_refused(columns: list[tuple[str, str]], topic: str | None, reason: str) -> None:
    with pytest.raises(FrameNotWritable, match=reason):
        columns_of_records(columns, topic)


def test_options_of_producers_go_by_two_names() -> None:
    options = SinkOptions.parse("out", {"kafka.compression.type": "lz4", "max_block_ms": 7000})
    assert options.of_tasks.producer == {"compression_type": "lz4", "max_block_ms": 7000}
    assert (options.topic, options.of_tasks.timeout_ms, options.of_tasks.max_block_ms) == ("out", 60_000, 7000)
    assert SinkOptions.parse(None, {"kafka.transaction.timeout.ms": 5000}).of_tasks.timeout_ms == 5000


@pytest.mark.parametrize("name", ["startingOffsets", "kafka.bootstrap.servers", "compression.type", "acks"])
def test_unknown_options_are_refused_with_those_there_are(name: str) -> None:
    with pytest.raises(UnknownSparkOption, match="compression_type, delivery_timeout_ms") as raised:
        SinkOptions.parse("out", {name: 1})
    assert raised.value.name == name


def test_wrong_values_are_refused() -> None:
    with pytest.raises(InvalidConfig):
        SinkOptions.parse("out", {"compression_type": "zip"})
    with pytest.raises(FrameNotWritable):
        SinkOptions.parse("", {})
