"""Clients of Kafka's protocol in a simulated cluster, each behind a gateway of its own, at work under all faults.

    python -m tests.simulator.clients.kafka_scenario 123      replays one seed

A producer is idempotent, as those of Kafka are: batches of a partition are numbered, several are in flight, and what is
refused or has no known outcome is sent again, unchanged and in order. A consumer reads all partitions in a session, and
knows the epoch of what it has read (KIP-320). What they are told goes into the `PartitionHistory` of each partition.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

from raylog.actors.kernel.environment import Environment
from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.protocol.endpoint import Endpoint
from raylog.api.kafka.gateway import Gateway
from raylog.api.kafka.protocol.error_codes import ErrorCode
from raylog.api.kafka.protocol.message_types import message_type
from raylog.api.kafka.rules.batch_conversion import as_kafka
from raylog.api.kafka.rules.named_brokers import GatewayAddress, Gateways
from raylog.config import BATCHES_OF_COLUMNS
from raylog.errors import RaylogError
from raylog.storage.format.batch_codec import encode_batch
from raylog.storage.format.record_batch import MAGIC_KAFKA, check_batch, split_batches
from tests.simulator.checks.history import InvariantBroken, PartitionHistory
from tests.simulator.clients.clients import records_of
from tests.simulator.clients.kafka_clients import KafkaClient
from tests.simulator.clients.real_clients import PromisingPlan
from tests.simulator.cluster.operator import FormatChanger
from tests.simulator.cluster.simulated_cluster import SimulatedCluster
from tests.simulator.plan import TOPIC
from tests.simulator.scenario import Outcome, Scenario
from tests.simulator.world.world import World

_PAUSE_SECONDS: Final = 0.15
_IN_FLIGHT: Final = (1, 2, 3, 5)
_COUNTS: Final = (1, 1, 2, 5)
_PRODUCE: Final = (7, 9, 10, 12)
_FETCH: Final = (7, 11, 12)  # a session's topics are all named, or have ids
_PARTITION_BYTES: Final = (300, 2_000, 1_000_000)
_READING_CODES: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)  # that all clients go on after


async def gateway_of(env: Environment, cluster: SimulatedCluster) -> KafkaClient:
    """Return a client at a gateway of its own, once that has begun."""

    async def find() -> list[Endpoint]:
        return cluster.broker_endpoints()

    link = ClusterLink(env, cluster.broker_endpoints(), "", find)

    def named() -> Gateways:
        return Gateways(GatewayAddress(each, f"machine-{each}", 9092) for each in cluster.homes)

    gateway = Gateway(link, named, lambda: env.random.getrandbits(31))
    while True:
        try:
            await gateway.start()
        except RaylogError:
            await asyncio.sleep(_PAUSE_SECONDS)
        else:
            return KafkaClient(gateway.connection())


@dataclass(eq=False)
class _Sent:
    """A batch that is not acknowledged."""

    values: list[bytes]
    data: bytes
    answer: asyncio.Task[tuple[int, int]] | None = None  # (error, base offset)


@dataclass(eq=False)
class _Lane:
    """One partition, as a producer sees it."""

    partition: int
    history: PartitionHistory
    sequence: int = 0
    batches: deque[_Sent] = field(default_factory=deque)


class KafkaProducer:
    """An idempotent producer. `acknowledged` counts its records."""

    def __init__(self, producer_id: int, env: Environment, histories: Sequence[PartitionHistory]) -> None:
        self.producer_id = producer_id  # in its values
        self.is_stopped = False
        self.acknowledged = 0
        self.last_error = ""
        self._env = env
        self._identity = -1
        self._lanes = [_Lane(number, history) for number, history in enumerate(histories)]

    @property
    def unresolved(self) -> int:
        return sum(len(lane.batches) for lane in self._lanes)

    async def run(self, cluster: SimulatedCluster) -> None:
        client = await gateway_of(self._env, cluster)
        while self._identity < 0:
            told = await client.ask("InitProducerId", 4, transactional_id=None, transaction_timeout_ms=0)
            self._identity = told.producer_id
        random = self._env.random
        while not (self.is_stopped and not self.unresolved):
            for lane in self._lanes:
                self._send(client, lane)
            await asyncio.sleep(_PAUSE_SECONDS * random.random())
            for lane in self._lanes:
                await self._resolve(lane)

    def _send(self, client: KafkaClient, lane: _Lane) -> None:
        random = self._env.random
        most = random.choice(_IN_FLIGHT)  # from the first batch on, as Kafka's producers do it
        while not self.is_stopped and len(lane.batches) < most:
            lane.batches.append(self._next(lane))
        for each in lane.batches:
            if each.answer is None:
                each.answer = asyncio.ensure_future(self._ask(client, lane, each.data))

    def _next(self, lane: _Lane) -> _Sent:
        count = self._env.random.choice(_COUNTS)
        values = [b"%d-%d" % (self.producer_id, lane.sequence + number) for number in range(count)]
        lane.history.will_send(b"%d" % self.producer_id, values, ordered=True)
        batch = encode_batch(
            values, timestamps=self._env.wall_ms(), producer_id=self._identity, producer_epoch=0,
            base_sequence=lane.sequence,
        )  # fmt: skip
        lane.sequence += count
        return _Sent(values, bytes(as_kafka(batch)))

    async def _ask(self, client: KafkaClient, lane: _Lane, data: bytes) -> tuple[int, int]:
        part, topic = (message_type("ProduceRequest", name) for name in ("PartitionProduceData", "TopicProduceData"))
        version = self._env.random.choice(_PRODUCE)
        topics = [topic(TOPIC, partition_data=[part(lane.partition, data)])]
        answer = await client.ask("Produce", version, acks=-1, timeout_ms=1_000, topic_data=topics)
        ((told,),) = [each.partition_responses for each in answer.responses]
        self.last_error = told.error_message or self.last_error
        return told.error_code, told.base_offset

    async def _resolve(self, lane: _Lane) -> None:
        """Take what has been answered. After an error all that is in flight is awaited, and sent again in order."""
        while lane.batches and lane.batches[0].answer is not None and lane.batches[0].answer.done():
            code, offset = lane.batches[0].answer.result()
            if code != ErrorCode.NONE:
                await asyncio.wait([each.answer for each in lane.batches if each.answer is not None])
                for each in lane.batches:
                    each.answer = None
                return
            values = lane.batches.popleft().values
            lane.history.was_acknowledged(values, offset)
            self.acknowledged += len(values)


class KafkaConsumer:
    """A consumer of all partitions. For `Scenario` it stands for the reader of the first."""

    def __init__(self, env: Environment, histories: Sequence[PartitionHistory]) -> None:
        self.is_stopped = False
        self.read = 0
        self._env = env
        self._histories = histories
        self._positions = dict.fromkeys(range(len(histories)), 0)
        self._epochs = dict.fromkeys(range(len(histories)), -1)  # of the last batch that was read
        self._session = (0, 0)  # id and epoch
        self._told: dict[int, Any] = {}  # what the session knows

    @property
    def history(self) -> PartitionHistory:
        return self._histories[0]

    def loses_from(self, offset: int) -> None:
        raise AssertionError("Nothing is lost here.")

    async def run(self, cluster: SimulatedCluster) -> None:
        client = await gateway_of(self._env, cluster)
        while not self.is_stopped:
            version = self._env.random.choice(_FETCH)
            answer = await client.ask("Fetch", version, **self._request(version))
            if answer.error_code != ErrorCode.NONE:
                self._session, self._told = (0, 0), {}
                continue
            self._session = (answer.session_id, self._session[1] + 1) if answer.session_id else (0, 0)
            if not answer.session_id:
                self._told = {}
            for topic in answer.responses:
                for part in topic.partitions:
                    await self._take(part)

    def _request(self, version: int) -> dict[str, Any]:
        part, topic = (message_type("FetchRequest", name) for name in ("FetchPartition", "FetchTopic"))
        random = self._env.random
        most = random.choice(_PARTITION_BYTES)
        asked = {
            number: part(
                number, fetch_offset=offset, partition_max_bytes=most,
                last_fetched_epoch=self._epochs[number] if version >= 12 else -1,
            )
            for number, offset in self._positions.items()
        }  # fmt: skip
        changed = [each for number, each in asked.items() if self._told.get(number) != each]
        self._told = asked
        return {
            "max_wait_ms": random.choice((0, 50, 500)),
            "min_bytes": random.choice((1, 1, 500)),
            "max_bytes": random.choice((400, 50_000, 50_000_000)),
            "session_id": self._session[0],
            "session_epoch": self._session[1],
            "topics": [topic(TOPIC, partitions=changed)] if changed else [],
        }

    async def _take(self, part: Any) -> None:
        number, history = part.partition_index, self._histories[part.partition_index]
        position = self._positions[number]
        if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            history.was_out_of_range(position)
        if part.error_code not in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
            if part.error_code not in _READING_CODES:
                raise InvariantBroken(f"{history.name}: a reader hears {part.error_code}, and would give up")
            await asyncio.sleep(_PAUSE_SECONDS * self._env.random.random())
        if part.diverging_epoch is not None:
            history.has_diverged(position)
        for batch in split_batches(part.records) if part.records else ():
            header = check_batch(batch)
            if header.magic != MAGIC_KAFKA:
                raise InvariantBroken(f"{history.name}: a reader got a batch of magic {header.magic}")
            self._read_batch(number, batch)
            self._positions[number], self._epochs[number] = header.next_offset, header.leader_epoch

    def _read_batch(self, number: int, batch: memoryview) -> None:
        history, expected = self._histories[number], self._positions[number]
        for offset, value in records_of(batch):
            if offset < self._positions[number]:
                continue
            if offset != expected:
                history.was_out_of_order(expected, offset)
            history.was_read(offset, value)
            expected = offset + 1
            self.read += 1


@dataclass
class KafkaClients(Scenario):
    """A scenario whose clients speak Kafka's protocol."""

    changes_format: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.plan = PromisingPlan.of(self.plan)
        if self.changes_format:  # what the first batch of a producer may be is the leader's to find out
            settings = {**self.plan.other_settings, "batch.format": BATCHES_OF_COLUMNS}
            self.plan = replace(self.plan, other_settings=settings)

    def _start_clients(self) -> None:
        if self.changes_format:
            FormatChanger(self.cluster, Random(f"formats of {self.world.seed}"), self.plan).begin()
        self.histories = [PartitionHistory(f"{TOPIC}-{number}") for number in range(self.plan.partitions)]
        machine = self.world.add_machine("clients")
        for number in range(self.random.choice((1, 2, 3))):
            machine.start(f"producer-{number}", self._produce, 100 + number)
        machine.start("consumer", self._consume)

    async def _consume(self, env: Environment) -> None:
        consumer = KafkaConsumer(env, self.histories)
        self.readers.append(consumer)
        await consumer.run(self.cluster)

    async def _produce(self, env: Environment, producer_id: int) -> None:
        producer = KafkaProducer(producer_id, env, self.histories)
        self.writers.append(producer)
        await producer.run(self.cluster)


def run_seed(seed: int, *, changes_format: bool = False, trace_lines: int = 200) -> Outcome:
    """Raises what was found. `changes_format`: somebody changes `batch.format` all the time."""
    with World(seed, trace_lines=trace_lines) as world:
        scenario = KafkaClients(world, changes_format=changes_format)
        try:
            return scenario.run()
        except AssertionError:
            world.trace("state: {}", scenario._state())
            raise


if __name__ == "__main__":
    sys.stdout.write(f"{run_seed(int(sys.argv[1]), trace_lines=1_000_000)}\n")
