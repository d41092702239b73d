"""A client of Kafka's protocol that administers a simulated cluster, through a gateway."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from raylog.actors.cluster.admin_requests import AlterClusterSettings
from raylog.actors.cluster.descriptions import TopicDescription
from raylog.actors.controller.controller import Controller
from raylog.api.kafka.protocol.message_types import message_type
from raylog.config import ConfigValue
from tests.simulator.clients.kafka_clients import gateways_beside
from tests.simulator.cluster.simulated_cluster import SimulatedCluster
from tests.simulator.world.world import World

_MAKING: Final = ("Topic", "ReplicaAssignment", "TopicConfig")
_GROWTH: Final = ("Topic", "Assignment")


class AdministeredCluster:
    """A cluster of three brokers, and a gateway."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.cluster = SimulatedCluster(world)
        self.cluster.form(3)
        self.gateway, *_ = gateways_beside(self.cluster, *self.cluster.homes)
        self.client = self.gateway.client()

    def ask(self, name: str, version: int, **fields: Any) -> Any:
        return self.gateway.run(self.client.ask(name, version, **fields))

    def create(self, *topics: Any, version: int = 7, validate_only: bool = False, timeout_ms: int = 60_000) -> Any:
        answer = self.ask(
            "CreateTopics", version, topics=list(topics), timeout_ms=timeout_ms, validate_only=validate_only
        )
        return answer.topics

    def delete(self, *names: str, version: int = 5) -> list[int]:
        of_topic = message_type("DeleteTopicsRequest", "DeleteTopicState")
        answer = self.ask(
            "DeleteTopics", version, topics=[of_topic(each) for each in names], topic_names=names, timeout_ms=60_000
        )
        return [each.error_code for each in answer.responses]

    def grow(self, topic: str, count: int, assignments: Any = None, *, version: int = 3, check: bool = False) -> Any:
        of_topic, of_part = (message_type("CreatePartitionsRequest", f"CreatePartitions{each}") for each in _GROWTH)
        parts = None if assignments is None else [of_part(each) for each in assignments]
        (result,) = self.ask(
            "CreatePartitions", version, topics=[of_topic(topic, count, parts)], timeout_ms=60_000, validate_only=check
        ).results
        return result

    def alter_cluster(self, settings: Mapping[str, ConfigValue]) -> None:
        self.gateway.run(self.gateway.administration.ask(AlterClusterSettings(settings), 30.0))

    def lose_controller(self, after: float, *, is_stopped: bool = False) -> None:
        def lose() -> None:
            for running in self.cluster.controllers:
                if is_stopped:
                    running.process.pause()
                    self.world.after(8.0, running.process.kill)
                else:
                    running.process.kill()

        self.world.after(after, lose)

    @property
    def controller(self) -> Controller:
        """The controller, once there is one."""
        assert self.world.run_until_idle_or(lambda: self.cluster.serving() is not None, 60.0)
        serving = self.cluster.serving()
        assert serving is not None
        return serving

    def described(self, topic: str) -> TopicDescription:
        return self.controller.admin.describe_topic(topic)


def topic(
    name: str,
    partitions: int = -1,
    replicas: int = -1,
    *,
    assigned: dict[int, list[int]] | None = None,
    settings: dict[str, str | None] | None = None,
) -> Any:
    of_topic, of_part, of_setting = (message_type("CreateTopicsRequest", f"Creatable{each}") for each in _MAKING)
    parts = [of_part(number, brokers) for number, brokers in (assigned or {}).items()]
    return of_topic(name, partitions, replicas, parts, [of_setting(*each) for each in (settings or {}).items()])
