"""Kafka clients that have to say who they are: real gateways, brokers and controller, in a simulated world."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

pytest.importorskip("kafka", reason="the extra `kafka` is not installed")

from raylog.actors.protocol.gateway_spec import SASL_PLAINTEXT
from raylog.actors.protocol.security_names import SCRAM_MECHANISMS
from raylog.actors.security.scram_credentials import SALT_BYTES, new_credential
from raylog.api.kafka.protocol.api_versions import SERVED
from raylog.api.kafka.protocol.error_codes import ErrorCode
from raylog.errors import KafkaProtocolError
from tests.simulator.clients.kafka_clients import BesideBroker, KafkaClient
from tests.simulator.cluster.simulated_cluster import SimulatedCluster
from tests.simulator.world.world import World
from tests.unit.actors.link_world import CALM
from tests.unit.actors.security.examples import credential
from tests.unit.api.kafka.rules.test_scram_exchange import Client as ScramClient

_FREE = (17, 18, 36)


@pytest.fixture
def cluster() -> Iterator[SimulatedCluster]:
    with World(5, settings=CALM) as world:
        cluster = SimulatedCluster(world)
        cluster.form(3)
        yield cluster
        cluster.is_over = True


@pytest.fixture
def gateway(cluster: SimulatedCluster) -> BesideBroker:
    change(cluster, "create_user", "ann", [credential("ann", each, "secret") for each in SCRAM_MECHANISMS])
    gateway = BesideBroker(cluster, 1, SASL_PLAINTEXT)
    assert cluster.world.run_until_idle_or(lambda: gateway.address is not None, 30.0)
    return gateway


def change(cluster: SimulatedCluster, call: str, *arguments: Any) -> None:
    """Have the controller carry out a change of users."""
    controller, process = cluster.serving(), cluster.controllers[-1].process
    assert controller is not None
    done = process.run(getattr(controller.admin.security, call)(*arguments))
    assert cluster.world.run_until_idle_or(done.done, 30.0)
    done.result()
    cluster.world.run_for(1.0)


def begun(gateway: BesideBroker, mechanism: str) -> KafkaClient:
    client = gateway.client()
    answer = gateway.run(client.ask("SaslHandshake", 1, mechanism=mechanism))
    assert (answer.error_code, answer.mechanisms) == (ErrorCode.NONE, [*SCRAM_MECHANISMS, "PLAIN"])
    return client


def authenticate(gateway: BesideBroker, client: KafkaClient, message: bytes) -> Any:
    return gateway.run(client.ask("SaslAuthenticate", 2, auth_bytes=message))


def by_scram(gateway: BesideBroker, mechanism: str, user: str, password: str) -> tuple[KafkaClient, int]:
    """Return the client, and how its last message was answered."""
    client, proof = begun(gateway, mechanism), ScramClient(mechanism, user, password)
    challenge = authenticate(gateway, client, proof.first)
    assert challenge.error_code == ErrorCode.NONE, challenge.error_message
    answer = authenticate(gateway, client, proof.final(bytes(challenge.auth_bytes)))
    if answer.error_code == ErrorCode.NONE:
        proof.check(bytes(answer.auth_bytes))
    return client, answer.error_code


def is_served(gateway: BesideBroker, client: KafkaClient) -> bool:
    try:
        gateway.run(client.ask("Metadata", 12, topics=[]))
    except KafkaProtocolError:
        return False
    return True


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS)
def test_who_proves_his_password_is_served_and_nobody_else(gateway: BesideBroker, mechanism: str) -> None:
    client, code = by_scram(gateway, mechanism, "ann", "secret")
    assert (code, is_served(gateway, client)) == (ErrorCode.NONE, True)
    for user, password in (("ann", "Secret"), ("eve", "secret")):
        client, code = by_scram(gateway, mechanism, user, password)
        assert (code, is_served(gateway, client)) == (ErrorCode.SASL_AUTHENTICATION_FAILED, False)


def test_a_password_may_be_told(gateway: BesideBroker) -> None:
    client = begun(gateway, "PLAIN")
    assert authenticate(gateway, client, b"\0ann\0secret").error_code == ErrorCode.NONE
    assert is_served(gateway, client)
    refusals = set()
    for message in (b"\0ann\0Secret", b"\0eve\0secret"):
        client = begun(gateway, "PLAIN")
        answer = authenticate(gateway, client, message)
        refusals.add((answer.error_code, answer.error_message))
        assert not is_served(gateway, client)
    assert refusals == {
        (ErrorCode.SASL_AUTHENTICATION_FAILED, "Authentication failed: the user is unknown, or the password is wrong.")
    }


def test_nothing_else_is_served_before_that(gateway: BesideBroker) -> None:
    """Not one request, whatever has been said so far."""

    def halfway() -> KafkaClient:
        client = begun(gateway, "SCRAM-SHA-256")
        authenticate(gateway, client, b"n,,n=ann,r=theirs")
        return client

    closed = [each for each in SERVED.values() if each.key not in _FREE]
    assert len(closed) > 25
    for client, api in product((gateway.client(), begun(gateway, "PLAIN"), halfway()), closed):
        assert not client.connection.is_admitted
        with pytest.raises(KafkaProtocolError, match="has not said who it is"):
            gateway.run(client.ask(api.name, api.versions[-1]))


def test_versions_are_told_to_all(gateway: BesideBroker, cluster: SimulatedCluster) -> None:
    told = {each.api_key for each in gateway.run(gateway.client().ask("ApiVersions", 3)).api_keys}
    assert told >= {0, 1, 3, *_FREE}
    other = BesideBroker(cluster, 2)
    assert cluster.world.run_until_idle_or(lambda: other.address is not None, 30.0)
    assert not {17, 36} & {each.api_key for each in other.run(other.client().ask("ApiVersions", 3)).api_keys}
    with pytest.raises(KafkaProtocolError):
        other.run(other.client().ask("SaslHandshake", 1, mechanism="PLAIN"))


def test_each_step_comes_once_and_in_its_turn(gateway: BesideBroker) -> None:
    early = gateway.client()
    assert authenticate(gateway, early, b"\0ann\0secret").error_code == ErrorCode.ILLEGAL_SASL_STATE
    unknown = gateway.client()
    refused = gateway.run(unknown.ask("SaslHandshake", 1, mechanism="GSSAPI"))
    assert refused.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    twice = begun(gateway, "PLAIN")
    again = gateway.run(twice.ask("SaslHandshake", 1, mechanism="PLAIN"))
    assert again.error_code == ErrorCode.ILLEGAL_SASL_STATE
    replayed, _ = by_scram(gateway, "SCRAM-SHA-256", "eve", "secret")
    for client in (early, unknown, twice, replayed):
        with pytest.raises(KafkaProtocolError):
            authenticate(gateway, client, b"\0ann\0secret")


def test_users_come_change_and_go_while_it_serves(gateway: BesideBroker, cluster: SimulatedCluster) -> None:
    change(cluster, "create_user", "bob", [credential("bob", password="one")])
    before, code = by_scram(gateway, "SCRAM-SHA-256", "bob", "one")
    assert code == ErrorCode.NONE
    change(cluster, "alter_user", "bob", [credential("bob", password="two")])
    assert by_scram(gateway, "SCRAM-SHA-256", "bob", "one")[1] == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert by_scram(gateway, "SCRAM-SHA-256", "bob", "two")[1] == ErrorCode.NONE
    assert not is_served(gateway, before)
    told, again = begun(gateway, "PLAIN"), begun(gateway, "PLAIN")
    for client in (told, again):
        assert authenticate(gateway, client, b"\0bob\0two").error_code == ErrorCode.NONE
    assert is_served(gateway, told)
    change(cluster, "delete_user", "bob")
    assert not is_served(gateway, told)
    assert by_scram(gateway, "SCRAM-SHA-256", "bob", "two")[1] == ErrorCode.SASL_AUTHENTICATION_FAILED
    change(cluster, "create_user", "bob", [new_credential("bob", "SCRAM-SHA-256", "two", b"t" * SALT_BYTES, 4096)])
    assert not is_served(gateway, again)


def test_another_process_in_its_place_hears_of_all_users(gateway: BesideBroker, cluster: SimulatedCluster) -> None:
    gateway.process.kill()
    change(cluster, "create_user", "bob", [credential("bob", password="one")])
    second = BesideBroker(cluster, 1, SASL_PLAINTEXT)
    assert cluster.world.run_until_idle_or(lambda: second.address is not None, 30.0)
    for user, password in (("ann", "secret"), ("bob", "one")):
        assert by_scram(second, "SCRAM-SHA-256", user, password)[1] == ErrorCode.NONE


def test_a_gateway_that_knows_no_users_yet_says_so(cluster: SimulatedCluster) -> None:
    gateway = BesideBroker(cluster, 1, SASL_PLAINTEXT)
    assert cluster.world.run_until_idle_or(lambda: gateway.address is not None, 30.0)
    cluster.world.run_for(5.0)
    assert gateway.core is not None
    assert gateway.core._sasl is not None
    gateway.core._sasl.known.clear()
    answer = authenticate(gateway, begun(gateway, "PLAIN"), b"\0ann\0secret")
    assert "does not know the users yet" in answer.error_message


