"""`python -m bench kafka --subject formats` on few records: it comes to its end, and says nothing at this size."""

from __future__ import annotations

import pytest

import raylog

pytest.importorskip("kafka", reason="the extra `kafka` is not installed")
pytest.importorskip("confluent_kafka", reason="the extra `bench` is not installed")

from bench.gateway import formats
from bench.gateway.comparing import RAYLOG, ROUNDS, Server
from bench.partitions.kafka import KafkaCluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


def test_each_form_is_written_and_read_by_both_clients(cluster: raylog.Cluster) -> None:
    address = ",".join(cluster.kafka_addresses())
    figures = list(formats.run([Server(RAYLOG, address, KafkaCluster(address))], records=5_000))
    names = {each.name for each in figures}
    forms = ("columns", "Kafka's form")
    written_in = [f"{form} of a {writer}" for writer in ("handle", "librdkafka") for form in forms]
    read = ("read by librdkafka for the first time", "read by librdkafka again", "read by a handle")
    assert names == {f"{each}, {what}" for each in written_in for what in ("written", *read)}
    assert all(len(each.rounds) == (1 if "first time" in each.name else ROUNDS) for each in figures)
    assert all(rate > 0 for each in figures for rate in each.rounds)
