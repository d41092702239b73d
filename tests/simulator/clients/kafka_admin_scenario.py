"""An administrator of Kafka's protocol at work under all faults, beside producers and a consumer.

    python -m tests.simulator.clients.kafka_admin_scenario 123      replays one seed

It makes topics, lets them grow, changes their settings and deletes them. Each name is used once, by this client only.
So a name that it has never asked for is not taken, what it was told to be there is there, and what is gone stays gone:
whatever it hears otherwise comes of a request that was done twice, or not at all.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from typing import Any, Final

from raylog.actors.kernel.environment import Environment
from raylog.api.kafka.protocol.error_codes import ErrorCode
from raylog.api.kafka.protocol.message_types import message_type
from tests.simulator.checks.history import InvariantBroken
from tests.simulator.clients.kafka_administrators import topic
from tests.simulator.clients.kafka_clients import KafkaClient
from tests.simulator.clients.kafka_scenario import KafkaClients, gateway_of
from tests.simulator.cluster.simulated_cluster import SimulatedCluster
from tests.simulator.scenario import Outcome
from tests.simulator.world.world import World

_PAUSE_SECONDS: Final = 1.0
_MOST_TOPICS: Final = 3
_SEGMENT_BYTES: Final = "segment.bytes"
_NOT_KNOWN: Final = ErrorCode.REQUEST_TIMED_OUT  # it may have been done
_NOT_DONE: Final = frozenset({ErrorCode.INVALID_REPLICATION_FACTOR})  # too few brokers are there just now


@dataclass
class MadeTopic:
    """A topic as the administrator knows it. None: not known."""

    name: str
    exists: bool | None
    partitions: int | None = 1
    segment_bytes: int | None = None


class Administrator:
    """Stands for a writer in a `Scenario`: `acknowledged` counts what it was told to be done."""

    def __init__(self, env: Environment) -> None:
        self.producer_id = 0
        self.is_stopped = False
        self.acknowledged = 0
        self.unresolved = 0
        self.last_error = ""
        self.topics: list[MadeTopic] = []
        self._env = env
        self._made = 0

    async def run(self, cluster: SimulatedCluster) -> None:
        client = await gateway_of(self._env, cluster)
        while not self.is_stopped:
            self.unresolved = 1
            await self._act(client)
            self.unresolved = 0
            await asyncio.sleep(_PAUSE_SECONDS * self._env.random.random())

    async def _act(self, client: KafkaClient) -> None:
        there = [each for each in self.topics if each.exists]
        if len(there) < _MOST_TOPICS and self._env.random.random() < 0.5:
            await self._create(client)
        elif there:
            chosen = self._env.random.choice(there)
            await self._env.random.choice((self._delete, self._grow, self._change))(client, chosen)

    async def _create(self, client: KafkaClient) -> None:
        made = MadeTopic(f"made-{self._made}", None)
        self._made += 1
        self.topics.append(made)
        answer = await client.ask("CreateTopics", 7, topics=[topic(made.name, 1)], timeout_ms=20_000)
        code = self._heard(answer.topics[0], f"creating {made.name}", _NOT_DONE)
        made.exists = True if code == ErrorCode.NONE else None if code == _NOT_KNOWN else False

    async def _delete(self, client: KafkaClient, chosen: MadeTopic) -> None:
        chosen.exists = None
        answer = await client.ask("DeleteTopics", 5, topic_names=[chosen.name], timeout_ms=20_000)
        if self._heard(answer.responses[0], f"deleting {chosen.name}") == ErrorCode.NONE:
            chosen.exists = False

    async def _grow(self, client: KafkaClient, chosen: MadeTopic) -> None:
        if chosen.partitions is None or chosen.partitions > 1:
            return
        of_topic = message_type("CreatePartitionsRequest", "CreatePartitionsTopic")
        chosen.partitions = None
        topics = [of_topic(chosen.name, 2, None)]
        answer = await client.ask("CreatePartitions", 3, topics=topics, timeout_ms=20_000)
        code = self._heard(answer.results[0], f"adding to {chosen.name}", _NOT_DONE)
        chosen.partitions = 2 if code == ErrorCode.NONE else None if code == _NOT_KNOWN else 1

    async def _change(self, client: KafkaClient, chosen: MadeTopic) -> None:
        of_resource, of_config = (
            message_type("IncrementalAlterConfigsRequest", each) for each in ("AlterConfigsResource", "AlterableConfig")
        )
        wanted = self._env.random.randrange(1_000, 100_000)
        chosen.segment_bytes = None
        edits = [of_config(_SEGMENT_BYTES, 0, str(wanted))]
        answer = await client.ask("IncrementalAlterConfigs", 1, resources=[of_resource(2, chosen.name, edits)])
        if self._heard(answer.responses[0], f"changing {chosen.name}") == ErrorCode.NONE:
            chosen.segment_bytes = wanted

    def _heard(self, told: Any, what: str, also: frozenset[ErrorCode] = frozenset()) -> ErrorCode:
        code = ErrorCode(told.error_code)
        if code not in (ErrorCode.NONE, _NOT_KNOWN) and code not in also:
            raise InvariantBroken(f"{what}: an administrator hears {code.name}: {told.error_message}")
        self.acknowledged += code == ErrorCode.NONE
        self.last_error = told.error_message or self.last_error
        return code


@dataclass
class KafkaAdministrators(KafkaClients):
    """A scenario with an administrator beside its clients."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.administrators: list[Administrator] = []

    def _start_clients(self) -> None:
        super()._start_clients()
        self.world.add_machine("beside-a-broker").start("administrator", self._administer)

    async def _administer(self, env: Environment) -> None:
        administrator = Administrator(env)
        self.administrators.append(administrator)
        self.writers.append(administrator)
        await administrator.run(self.cluster)

    def _reckon(self) -> None:
        super()._reckon()
        controller = self.cluster.serving()
        assert controller is not None
        there = controller.admin.list_topics()
        for each in (each for administrator in self.administrators for each in administrator.topics):
            if each.exists is not None and each.exists != (each.name in there):
                raise InvariantBroken(f"{each} was told, and there are {there}")
            if each.exists:
                self._compare_topic(each, controller.admin.describe_topic(each.name))

    def _compare_topic(self, told: MadeTopic, found: Any) -> None:
        settings = dict(found.settings)
        if told.partitions not in (None, len(found.partitions)):
            raise InvariantBroken(f"{told} was told, and it has {len(found.partitions)} partitions")
        if told.segment_bytes is not None and settings.get(_SEGMENT_BYTES) != str(told.segment_bytes):
            raise InvariantBroken(f"{told} was told, and it has {settings}")


def run_seed(seed: int, *, trace_lines: int = 200) -> Outcome:
    """Raises what was found."""
    with World(seed, trace_lines=trace_lines) as world:
        scenario = KafkaAdministrators(world)
        try:
            outcome = scenario.run()
        except AssertionError:
            world.trace("state: {}", scenario._state())
            raise
        outcome.faults["administered"] = sum(each.acknowledged for each in scenario.administrators)
        return outcome


if __name__ == "__main__":
    sys.stdout.write(f"{run_seed(int(sys.argv[1]), trace_lines=1_000_000)}\n")
