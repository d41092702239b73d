"""Requests are counted by their kind, with the errors that their answers say, wherever they say them."""

from __future__ import annotations

import pytest

pytest.importorskip("kafka", reason="the extra `kafka` is not installed")

from raylog.api.kafka.protocol.api_versions import SERVED
from raylog.api.kafka.protocol.error_codes import ErrorCode
from raylog.api.kafka.protocol.message_types import message_type
from raylog.api.kafka.request_counts import RequestCounts, error_codes

_PRODUCE = "ProduceResponse"


def test_errors_are_found_at_every_level() -> None:
    part, topic = (message_type(_PRODUCE, each) for each in ("PartitionProduceResponse", "TopicProduceResponse"))
    parts = [part(0, 6), part(1, 0), part(2, 19)]
    answer = message_type(_PRODUCE)([topic("a", partition_responses=parts), topic("b")])
    assert error_codes("Produce", answer) == [6, 19]
    of_topic = message_type("MetadataResponse", "MetadataResponseTopic")
    of_part = message_type("MetadataResponse", "MetadataResponsePartition")
    topics = [of_topic(error_code=3), of_topic(partitions=[of_part(error_code=5)])]
    assert error_codes("Metadata", message_type("MetadataResponse")(topics=topics, error_code=7)) == [7, 3, 5]
    assert error_codes("FindCoordinator", message_type("FindCoordinatorResponse")(error_code=15)) == [15]


@pytest.mark.parametrize("name", [api.name for api in SERVED.values()])
def test_an_answer_without_errors_counts_none(name: str) -> None:
    assert error_codes(name, message_type(f"{name}Response")()) == []


def test_readings_are_by_kind_of_request() -> None:
    counts = RequestCounts()
    for code in (0, 6):
        counts.request("Heartbeat", b"12345")
        counts.answered("Heartbeat", message_type("HeartbeatResponse")(error_code=code), [b"12", b"3"], 0.004)
    counts.request("Produce", b"1")
    found = {(each.metric.name, each.tags): each.value for each in counts.readings()}
    assert found["raylog_kafka_request_seconds_bucket", ("Heartbeat", "0.005")] == 2
    assert {key: value for key, value in found.items() if not key[0].endswith("_bucket")} == {
        ("raylog_kafka_requests", ("Heartbeat",)): 2,
        ("raylog_kafka_requests", ("Produce",)): 1,
        ("raylog_kafka_bytes_in", ("Heartbeat",)): 10,
        ("raylog_kafka_bytes_in", ("Produce",)): 1,
        ("raylog_kafka_bytes_out", ("Heartbeat",)): 6,
        ("raylog_kafka_errors", ("Heartbeat", ErrorCode(6).name)): 1,
        ("raylog_kafka_request_seconds_sum", ("Heartbeat",)): 0.008,
        ("raylog_kafka_request_seconds_count", ("Heartbeat",)): 2,
    }
