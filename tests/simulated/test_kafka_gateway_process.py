"""A gateway as a process beside a broker runs it, with a listener that a test stands in for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("kafka", reason="the extra `kafka` is not installed")

from raylog.actors.protocol.admin_messages import Administer, Administered
from raylog.actors.protocol.gateway_spec import HostPort
from raylog.actors.protocol.names import OFFSETS_TOPIC
from raylog.actors.protocol.replication_messages import Append, Appended
from raylog.api.kafka.protocol.error_codes import ErrorCode
from raylog.api.kafka.protocol.message_types import message_type
from raylog.api.kafka.rules.batch_conversion import as_kafka
from raylog.errors import InternalOnly, InternalTopic
from raylog.groups.coordinator.process import make
from raylog.storage.format.batch_codec import encode_batch
from raylog.storage.format.record_batch import with_producer
from tests.simulated.test_kafka_gateway import outcome, produced
from tests.simulated.test_kafka_groups import Member
from tests.simulator.clients.kafka_clients import GATEWAY_PORT, BesideBroker, Listener, gateways_beside
from tests.simulator.cluster.simulated_cluster import SimulatedCluster
from tests.simulator.world.world import World
from tests.unit.actors.link_world import CALM


@pytest.fixture
def cluster() -> Iterator[SimulatedCluster]:
    with World(5, settings=CALM) as world:
        cluster = SimulatedCluster(world, coordinator_makers={OFFSETS_TOPIC: make})
        cluster.form(3)
        yield cluster
        cluster.is_over = True


def test_gateways_tell_their_clients_of_each_other(cluster: SimulatedCluster) -> None:
    numbers = sorted(cluster.homes)[:2]
    gateways = [BesideBroker(cluster, number) for number in numbers]
    assert cluster.world.run_until_idle_or(lambda: all(each.address is not None for each in gateways), 30.0)
    assert gateways[0].address == HostPort(f"10.0.0.{numbers[0]}", GATEWAY_PORT)
    cluster.world.run_for(5.0)
    expected = [(number, f"10.0.0.{number}", GATEWAY_PORT) for number in numbers]
    assert [each.brokers() for each in gateways] == [expected, expected]
    assert gateways[0].core is not None
    read = {(each.metric.name, each.tags): each.value for each in gateways[0].core.readings()}
    assert read["raylog_kafka_connections", ()] == 7
    assert read["raylog_kafka_requests", ("Metadata",)] == 1
    assert 10 < read["raylog_kafka_bytes_in", ("Metadata",)] < read["raylog_kafka_bytes_out", ("Metadata",)]
    assert read["raylog_kafka_request_seconds_count", ("Metadata",)] == 1
    assert not any(name == "raylog_kafka_errors" for name, _ in read)


def test_a_port_that_is_taken_is_said_as_what_it_is(cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Listener, "is_taken", True)
    gateway = BesideBroker(cluster, 1)
    assert cluster.world.run_until_idle_or(lambda: gateway.problem is not None, 30.0)
    assert str(gateway.problem).startswith("The gateway of broker 1 cannot listen at 0.0.0.0:9092: Address already")


def test_it_serves_on_without_its_broker_and_ends_when_that_does_not_come_back(cluster: SimulatedCluster) -> None:
    gateway = BesideBroker(cluster, 1)
    assert cluster.world.run_until_idle_or(lambda: gateway.address is not None, 30.0)
    cluster.world.run_for(5.0)
    cluster.is_over = True  # nobody starts the broker again
    home = cluster.homes[1]
    assert home.process is not None
    home.process.kill()
    cluster.world.run_for(30.0)
    assert gateway.listener is not None
    assert gateway.listener.is_open
    assert gateway.brokers() == [(1, "10.0.0.1", GATEWAY_PORT)]
    assert cluster.world.run_until_idle_or(lambda: gateway.reason is not None, 60.0)
    assert (gateway.reason, gateway.listener.is_open) == ("its broker is gone", False)


def forged_claim() -> bytes:
    """A coordinator's claim under the highest epoch, which would fence every real one (rule 25)."""
    claim = encode_batch([b"32767"], keys=[b"\x00claim"], timestamps=1_800_000_000_000)
    return bytes(with_producer(claim, 987_654, 0, 0))


def test_no_kafka_client_writes_to_an_internal_topic(cluster: SimulatedCluster) -> None:
    (gateway,) = gateways_beside(cluster, 1)
    gateway.run(Member(gateway.client()).settle())

    def produce(acks: int) -> list[tuple[int, int]]:
        sent = produced({0: bytes(as_kafka(forged_claim()))}, acks=acks, topic=OFFSETS_TOPIC)
        return outcome(gateway.run(gateway.client().ask("Produce", 9, **sent)))

    assert [produce(acks)[0][0] for acks in (-1, 1)] == [ErrorCode.INVALID_TOPIC_EXCEPTION] * 2
    with pytest.raises(InternalTopic):
        produce(0)


def test_what_a_gateway_asks_for_its_clients_has_no_more_rights_than_a_client(cluster: SimulatedCluster) -> None:
    """Produce has a door of its own against that. A door may be missing; the secret is asked for everywhere."""
    (gateway,) = gateways_beside(cluster, 1)
    gateway.run(Member(gateway.client()).settle())
    leader = gateway.link.leader(OFFSETS_TOPIC, 0)
    assert leader is not None
    append = Append(leader.epoch, -1, 1_000)
    with pytest.raises(InternalTopic):
        gateway.run(gateway.link.ask(leader, append, forged_claim(), expect=Appended, timeout=5.0))
    with pytest.raises(InternalOnly):
        gateway.run(gateway.link.ask(leader, Administer("list_topics", (), 1, 0), expect=Administered, timeout=5.0))


def test_a_gateway_follows_the_secrets_of_its_broker(cluster: SimulatedCluster) -> None:
    """The streams of its link and those for administration: all are dialled anew, with secrets that are valid."""
    cluster.create_topic("clicks", 1, 3, {})
    (gateway,) = gateways_beside(cluster, 1)
    controller, running = cluster.serving(), cluster.controllers[-1].process
    assert controller is not None
    rotated = running.run(controller.rotate_secrets(0.0, 20.0))
    assert cluster.world.run_until_idle_or(rotated.done, 30.0)
    cluster.world.run_for(10.0)  # the former are not valid any more
    network = cluster.world.network
    for stream in [each for each in network.streams() if each.loop is gateway.process.loop]:
        network.cut(stream)
    cluster.world.run_for(3.0)
    batch = encode_batch([b"x"], timestamps=cluster.homes[1].machine.wall_ms())
    client = gateway.client()
    told = gateway.run(client.ask("Produce", 9, **produced({0: bytes(as_kafka(batch))})))
    assert outcome(told)[0] == (0, 0)
    of_topic = message_type("DeleteTopicsRequest", "DeleteTopicState")
    gone = gateway.run(client.ask("DeleteTopics", 6, topics=[of_topic("clicks")], timeout_ms=30_000))
    assert gone.responses[0].error_code == 0
