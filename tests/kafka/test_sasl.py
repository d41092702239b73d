"""Kafka's clients say who they are, by each mechanism: those who know the password are served, and no others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import raylog

pytest.importorskip("kafka", reason="the extra `kafka` is not installed")
pytest.importorskip("confluent_kafka", reason="the extra `bench` is not installed")

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.errors

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_USER: Final = "ann.ü"  # kafka-python does not escape what RFC 5802 wants escaped
_PASSWORD: Final = "sécret, n=1"
_SECONDS: Final = 20.0


@pytest.fixture(scope="module")
def listeners(process_ray: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a cluster of one broker, with a user and a topic."""
    data = tmp_path_factory.mktemp("sasl")
    cluster = raylog.start(data, brokers=1, cluster="sasl", kafka="SASL_PLAINTEXT://127.0.0.1:0")
    cluster.create_topic("clicks", partitions=1)
    cluster.create_user(_USER, _PASSWORD)
    (address,) = cluster.kafka_addresses()
    yield address
    cluster.shutdown()


def by_confluent(address: str, mechanism: str, password: str) -> bool:
    settings = {
        "bootstrap.servers": address, "security.protocol": "sasl_plaintext", "sasl.mechanism": mechanism,
        "sasl.username": _USER, "sasl.password": password,
    }  # fmt: skip
    producer = confluent_kafka.Producer({**settings, "message.timeout.ms": 4_000})
    delivered: list[Any] = []
    producer.produce("clicks", b"confluent", on_delivery=lambda error, _: delivered.append(error))
    producer.flush(_SECONDS)
    return delivered == [None]


def by_kafka_python(address: str, mechanism: str, password: str) -> bool:
    try:
        producer = kafka.KafkaProducer(
            bootstrap_servers=address, security_protocol="SASL_PLAINTEXT", sasl_mechanism=mechanism,
            sasl_plain_username=_USER, sasl_plain_password=password, bootstrap_timeout_ms=4_000,
        )  # fmt: skip
    except kafka.errors.KafkaError:
        return False
    producer.send("clicks", b"kafka-python").get(_SECONDS)
    producer.close()
    return True


def by_aiokafka(address: str, mechanism: str, password: str) -> bool:
    async def ask() -> bool:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=address, security_protocol="SASL_PLAINTEXT", sasl_mechanism=mechanism,
            sasl_plain_username=_USER, sasl_plain_password=password,
        )  # fmt: skip
        try:
            await producer.start()
            await producer.send_and_wait("clicks", b"aiokafka")
        except aiokafka.errors.KafkaError:
            return False
        finally:
            await producer.stop()
        return True

    return asyncio.run(asyncio.wait_for(ask(), _SECONDS))


_CLIENTS: Final = (by_confluent, by_kafka_python, by_aiokafka)


@pytest.mark.parametrize("mechanism", _MECHANISMS)
@pytest.mark.parametrize("client", _CLIENTS)
def test_who_knows_the_password_is_served(
    listeners: str, client: Callable[[str, str, str], bool], mechanism: str
) -> None:
    assert client(listeners, mechanism, _PASSWORD)


def test_who_knows_another_one_is_not_served(listeners: str) -> None:
    """What the other clients make of it is in `tests/streams/test_sasl_clients.py`."""
    assert not by_aiokafka(listeners, "SCRAM-SHA-256", _PASSWORD + "!")


def test_who_does_not_say_who_he_is_is_not_served(listeners: str) -> None:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": listeners, "group.id": "g"})
    with pytest.raises(confluent_kafka.KafkaException):
        consumer.list_topics(timeout=3.0)
    consumer.close()
