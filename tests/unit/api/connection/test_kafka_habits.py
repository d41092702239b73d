"""What people who come from Kafka type first is answered with the sentence that helps, or just works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raylog.actors.protocol.actor_names import namespace
from raylog.api.connection.kafka_hints import PAGE
from raylog.api.consumer.async_consumer import AsyncConsumer
from raylog.api.consumer.consumer import Consumer
from raylog.api.consumer.rules.consumer_options import ConsumerOptions
from raylog.api.producer.async_producer import AsyncProducer
from raylog.api.producer.producer import Producer
from raylog.api.producer.rules.producer_options import ProducerOptions
from raylog.errors import InvalidConfig, UnknownConfig, UnknownSparkOption
from raylog.spark_bridge.reading.rules.read_options import ReadOptions
from raylog.spark_bridge.writing.rules.sink_options import SinkOptions


def test_the_page_that_is_pointed_to_is_there() -> None:
    assert (Path(__file__).parents[4] / PAGE).exists()


@pytest.mark.parametrize("options", [ProducerOptions, ConsumerOptions])
@pytest.mark.parametrize("name", ["bootstrap_servers", "bootstrap.servers", "metadata.broker.list"])
def test_addresses_of_brokers_are_not_wanted(options: Any, name: str) -> None:
    with pytest.raises(UnknownConfig, match=r"found through Ray.* leave it out, .*coming-from-kafka"):
        options.parse({name: "localhost:9092"})


@pytest.mark.parametrize("name", ["security_protocol", "sasl.mechanism", "ssl_cafile"])
def test_security_is_that_of_ray(name: str) -> None:
    with pytest.raises(UnknownConfig, match="admitted to Ray"):
        ConsumerOptions.parse({name: "x"})


def test_options_of_other_names_are_named() -> None:
    with pytest.raises(UnknownConfig, match="Did you mean 'max_in_flight'"):
        ProducerOptions.parse({"max.in.flight.requests.per.connection": 1})
    with pytest.raises(UnknownConfig, match="delivery_timeout_ms"):
        ProducerOptions.parse({"retries": 3})


@pytest.mark.parametrize("client", [Producer, AsyncProducer, Consumer, AsyncConsumer])
def test_a_dictionary_of_options_is_answered_with_how_it_goes(client: Any) -> None:
    with pytest.raises(TypeError, match=f"{client.__name__} takes its options as keywords.*found through Ray"):
        client({"bootstrap.servers": "localhost:9092"})


@pytest.mark.parametrize(("written", "meant"), [("-1", -1), ("0", 0), ("1", 1), (-1, -1), ("all", -1)])
def test_acks_may_be_written_as_in_a_file_of_properties(written: Any, meant: int) -> None:
    assert ProducerOptions.parse({"acks": written}).acks == meant


@pytest.mark.parametrize("written", ["2", "al", True, [], None])
def test_other_acks_are_refused(written: Any) -> None:
    with pytest.raises(InvalidConfig):
        ProducerOptions.parse({"acks": written})


def test_an_address_is_no_name_of_a_cluster() -> None:
    with pytest.raises(InvalidConfig, match="the name of a cluster and no address: brokers are found through Ray"):
        namespace("localhost:9092")


def test_spark_needs_no_addresses_either() -> None:
    given = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "clicks"}
    for parse in (ReadOptions.of_batch, ReadOptions.of_stream, lambda given: SinkOptions.parse("clicks", given)):
        with pytest.raises(UnknownSparkOption, match=r"'kafka.bootstrap.servers'.*found through Ray.*coming"):
            parse(given)
