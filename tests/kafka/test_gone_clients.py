"""Clients that close their connection as soon as they have sent what they wanted to send."""

from __future__ import annotations

from typing import Any, Final

import pytest

import raylog
from raylog.api.kafka.protocol.codecs import request_frame
from raylog.api.kafka.protocol.message_types import message_type
from raylog.api.kafka.rules.batch_conversion import as_kafka
from raylog.storage.format.batch_codec import encode_batch

pytest.importorskip("kafka", reason="the extra `kafka` is not installed")
pytest.importorskip("confluent_kafka", reason="the extra `bench` is not installed")

from tests.kafka.libraries import confluent
from tests.kafka.test_bad_clients import dial

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

_TOPIC: Final = "left-behind"
_CLIENTS: Final = 20
_BATCHES: Final = 5


def produced(value: bytes) -> dict[str, Any]:
    """Return a Produce of one record that wants no answer."""
    part, of_topic = (message_type("ProduceRequest", name) for name in ("PartitionProduceData", "TopicProduceData"))
    batch = bytes(as_kafka(encode_batch([value], timestamps=1_700_000_000_000)))
    return {"acks": 0, "timeout_ms": 5_000, "topic_data": [of_topic(_TOPIC, bytes(16), [part(0, batch)])]}


def test_what_is_sent_with_acks_0_is_appended_though_its_client_closes_at_once(cluster: raylog.Cluster) -> None:
    cluster.create_topic(_TOPIC, partitions=1)
    addresses = cluster.kafka_addresses()
    sent = [b"%d of client %d" % (number, client) for client in range(_CLIENTS) for number in range(_BATCHES)]
    message = message_type("ProduceRequest")
    frames = [b"".join(request_frame("Produce", 9, message(**produced(value)), correlation_id=1)) for value in sent]
    for client in range(_CLIENTS):
        with dial(addresses[client % len(addresses)]) as connection:
            connection.sendall(b"".join(frames[client * _BATCHES : (client + 1) * _BATCHES]))
    read = confluent.read(addresses[0], _TOPIC, 0, len(sent))
    assert sorted(each.value or b"" for each in read) == sorted(sent)
