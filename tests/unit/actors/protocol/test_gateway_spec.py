"""Addresses for Kafka clients: what is taken, which port each broker gets, and what clients are told."""

from __future__ import annotations

import pytest

from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.gateway_spec import SASL_PLAINTEXT, GatewaySpec, HostPort, KafkaListeners, kafka_listeners
from raylog.errors import InvalidConfig


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9092", HostPort("127.0.0.1", 9092)),
        ("kafka.example.org:0", HostPort("kafka.example.org", 0)),
        ("[::1]:9092", HostPort("::1", 9092)),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, address: HostPort) -> None:
    assert HostPort.parse(text) == address
    assert str(address) == text


@pytest.mark.parametrize("text", ["", "9092", "host", ":9092", "host:", "host:x", "host:65536", "host:-1", "::1:9092"])
def test_anything_else_is_refused_by_the_name_of_its_setting(text: str) -> None:
    with pytest.raises(InvalidConfig, match="'kafka_advertised' cannot be"):
        HostPort.parse(text, "kafka_advertised")


def test_brokers_of_one_node_take_consecutive_ports() -> None:
    listeners = KafkaListeners(HostPort("127.0.0.1", 9092), None)
    assert [listeners.of_broker(place).listen.port for place in range(3)] == [9092, 9093, 9094]
    free = KafkaListeners(HostPort("127.0.0.1", 0), None)
    assert free.of_broker(2) == free
    with pytest.raises(InvalidConfig, match="2 free ports above it"):
        KafkaListeners(HostPort("127.0.0.1", 65_534), None).of_broker(2)


def test_nothing_is_served_unless_it_is_asked_for() -> None:
    assert kafka_listeners(None, None) is None
    with pytest.raises(InvalidConfig):
        kafka_listeners(None, "kafka.example.org:9092")
    both = kafka_listeners("0.0.0.0:9092", "kafka.example.org:9192")
    assert str(both) == "0.0.0.0:9092 (advertised as kafka.example.org:9192)"
    assert str(kafka_listeners("0.0.0.0:9092", None)) == "0.0.0.0:9092"


def test_a_listener_says_whether_clients_say_who_they_are() -> None:
    asking = kafka_listeners("SASL_PLAINTEXT://[::1]:9092", None)
    assert asking is not None
    assert (asking.listen, asking.protocol) == (HostPort("::1", 9092), SASL_PLAINTEXT)
    assert str(asking.of_broker(1)) == "SASL_PLAINTEXT://[::1]:9093"
    assert kafka_listeners("PLAINTEXT://127.0.0.1:9092", None) == kafka_listeners("127.0.0.1:9092", None) != asking


@pytest.mark.parametrize("protocol", ["", "SSL", "SASL_SSL", "sasl_plaintext", "http"])
def test_no_other_protocol_is_taken(protocol: str) -> None:
    with pytest.raises(InvalidConfig, match="PLAINTEXT or SASL_PLAINTEXT"):
        kafka_listeners(f"{protocol}://127.0.0.1:9092", None)


@pytest.mark.parametrize(
    ("listen", "advertised", "told"),
    [
        ("127.0.0.1", None, "127.0.0.1:9092"),
        ("0.0.0.0", None, "10.0.0.7:9092"),  # nobody can dial that: the address of its node stands in
        ("::", None, "10.0.0.7:9092"),
        ("0.0.0.0", HostPort("kafka.example.org", 443), "kafka.example.org:443"),
    ],
)
def test_clients_are_told_an_address_that_they_can_dial(
    listen: str, advertised: HostPort | None, told: str
) -> None:
    broker = Endpoint(path="/run/broker-1")
    spec = GatewaySpec("default", 1, broker, "node", "10.0.0.7", HostPort(listen, 0), advertised)
    assert str(spec.address(9092)) == told
