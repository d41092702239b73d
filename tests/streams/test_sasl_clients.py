"""Clients of three libraries say who they are over real sockets, to a listener that knows no more than SASL."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pytest
import uvloop

pytest.importorskip("kafka", reason="the extra `kafka` is not installed")
pytest.importorskip("confluent_kafka", reason="the extra `bench` is not installed")

import aiokafka.admin
import aiokafka.errors
import confluent_kafka.admin
import kafka
import kafka.errors

from raylog.actors.broker.users_passed_on import UsersPassedOn
from raylog.actors.protocol.security_names import SCRAM_MECHANISMS
from raylog.actors.security.security_state import SecurityState
from raylog.api.kafka.listener import KafkaListener
from raylog.api.kafka.protocol.api_versions import api_versions_answer, served
from raylog.api.kafka.protocol.codecs import RequestHeader, answer_frame, decoder
from raylog.api.kafka.protocol.message_types import message_type
from raylog.api.kafka.rules.known_users import KnownUsers
from raylog.api.kafka.rules.memory_budget import MemoryBudget
from raylog.api.kafka.sasl_session import AUTHENTICATE_KEY, HANDSHAKE_KEY, Sasl, SaslSession
from raylog.errors import NotAuthenticated
from raylog.storage.format.record_batch import Bytes
from tests.unit.actors.security.examples import credential

_USER: Final = "ann.ü"  # kafka-python does not escape what RFC 5802 wants escaped
_PASSWORD: Final = "sécret, n=1"
_SECONDS: Final = 20.0
_APIS: Final = (0, 1, 3, 10, HANDSHAKE_KEY, 18, AUTHENTICATE_KEY)


class Side:
    """Serves SASL and, behind that, Metadata of a broker without topics."""

    def __init__(self, budget: MemoryBudget, sasl: Sasl, port: Callable[[], int]) -> None:
        self.account = budget.account()
        self._admission = SaslSession(sasl)
        self._port = port

    @property
    def is_admitted(self) -> bool:
        return self._admission.user is not None

    def close(self) -> None:
        self.account.close()

    async def serve(self, header: RequestHeader, frame: Bytes) -> Sequence[Bytes] | None:
        if header.api_key == 18:
            version, versions = api_versions_answer(header.api_version, 1, apis=_APIS)
            return answer_frame("ApiVersions", version, versions, header.correlation_id)
        api = served(header.api_key, header.api_version)
        if not self._admission.may_ask(api.key):
            raise NotAuthenticated(api.name)
        request = decoder(f"{api.name}Request", header.api_version)(frame, header.end)
        if api.key == HANDSHAKE_KEY:
            answer = await self._admission.handshake(request)
        elif api.key == AUTHENTICATE_KEY:
            answer = await self._admission.authenticate(request)
        else:
            broker = message_type("MetadataResponse", "MetadataResponseBroker")(1, "127.0.0.1", self._port())
            answer = message_type("MetadataResponse")(brokers=[broker], cluster_id="c", controller_id=1, topics=[])
        return answer_frame(api.name, header.api_version, answer, header.correlation_id)


async def _off_loop(work: Callable[[], None]) -> None:
    await asyncio.get_running_loop().run_in_executor(None, work)


async def _listen(opened: Callable[[int], None], over: asyncio.Event) -> None:
    sasl = Sasl(KnownUsers(lambda: b"secret"), _off_loop, lambda: secrets.randbits(31))
    state = SecurityState()
    for mechanism in SCRAM_MECHANISMS:
        state.apply(credential(_USER, mechanism, _PASSWORD))
    for told in UsersPassedOn().news(state):
        sasl.apply(told)
    budget, ports = MemoryBudget(), [0]
    listener = KafkaListener(lambda: Side(budget, sasl, lambda: ports[0]), budget)
    ports[0] = await listener.open("127.0.0.1", 0)
    opened(ports[0])
    await over.wait()
    await listener.close()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    loop, over, ports = uvloop.new_event_loop(), asyncio.Event(), list[int]()
    is_open = threading.Event()

    def opened(port: int) -> None:
        ports.append(port)
        is_open.set()

    thread = threading.Thread(target=lambda: loop.run_until_complete(_listen(opened, over)))
    thread.start()
    assert is_open.wait(_SECONDS)
    yield f"127.0.0.1:{ports[0]}"
    loop.call_soon_threadsafe(over.set)
    thread.join(_SECONDS)
    loop.close()


def by_confluent(address: str, mechanism: str, password: str) -> bool:
    refused: list[int] = []
    admin = confluent_kafka.admin.AdminClient({
        "bootstrap.servers": address, "security.protocol": "sasl_plaintext", "sasl.mechanism": mechanism,
        "sasl.username": _USER, "sasl.password": password, "log_level": 0,
        "error_cb": lambda error: refused.append(error.code()),
    })  # fmt: skip
    try:
        return [*admin.list_topics(timeout=4.0).brokers] == [1]
    except confluent_kafka.KafkaException:
        admin.poll(0.1)
        assert confluent_kafka.KafkaError._AUTHENTICATION in refused
        return False


def by_kafka_python(address: str, mechanism: str, password: str) -> bool:
    try:
        kafka.KafkaAdminClient(
            bootstrap_servers=address, security_protocol="SASL_PLAINTEXT", sasl_mechanism=mechanism,
            sasl_plain_username=_USER, sasl_plain_password=password, bootstrap_timeout_ms=4_000,
        ).close()  # fmt: skip
    except kafka.errors.KafkaError:
        return False
    return True


def by_aiokafka(address: str, mechanism: str, password: str) -> bool:
    async def ask() -> bool:
        admin = aiokafka.admin.AIOKafkaAdminClient(
            bootstrap_servers=address, security_protocol="SASL_PLAINTEXT", sasl_mechanism=mechanism,
            sasl_plain_username=_USER, sasl_plain_password=password,
        )  # fmt: skip
        try:
            await admin.start()
        except aiokafka.errors.KafkaError:
            return False
        finally:
            await admin.close()
        return True

    return asyncio.run(asyncio.wait_for(ask(), _SECONDS))


_CLIENTS: Final = (by_confluent, by_kafka_python, by_aiokafka)


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAM_MECHANISMS])
@pytest.mark.parametrize("client", _CLIENTS)
def test_who_knows_the_password_is_admitted(
    address: str, client: Callable[[str, str, str], bool], mechanism: str
) -> None:
    assert client(address, mechanism, _PASSWORD)


@pytest.mark.parametrize("client", _CLIENTS)
def test_who_knows_another_one_is_not(address: str, client: Callable[[str, str, str], bool]) -> None:
    assert not client(address, "SCRAM-SHA-256", _PASSWORD + "!")
