"""The clients that users have, in a simulated cluster: the cores of producer and consumer at work under all faults.

    python -m tests.simulator.clients.real_clients 123      replays one seed

A producer sends numbered records to all partitions in bursts; a consumer reads all partitions, pauses some, and seeks
now and then. Each has a process and a link of its own. What they are told goes into the `PartitionHistory` of each
partition, which knows what has to be there then. Here nothing that was acknowledged may ever be lost, so the plans
leave out what may lose it.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, fields
from random import Random
from typing import Any, Final

from raylog.actors.kernel.environment import Environment
from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.link.questions import FindBrokers
from raylog.actors.protocol.endpoint import Endpoint
from raylog.api.connection.records import TopicPartition
from raylog.api.consumer.fetching.fetcher import Fetcher
from raylog.api.consumer.rules.consumer_options import ConsumerOptions
from raylog.api.consumer.rules.fetched import Item
from raylog.api.consumer.subscription_state import SubscriptionState
from raylog.api.producer.buffer.record_accumulator import BufferPool, Clocks, RecordAccumulator
from raylog.api.producer.buffer.record_future import RecordFuture
from raylog.api.producer.rules.producer_options import ProducerOptions
from raylog.api.producer.sending.sender import ProducerMetrics, Sender
from raylog.errors import OnlyCopyDamaged, RaylogError, RecordUnreadable
from tests.simulator.checks.history import PartitionHistory
from tests.simulator.cluster.operator import FormatChanger
from tests.simulator.cluster.simulated_cluster import SimulatedCluster
from tests.simulator.plan import TOPIC, Plan
from tests.simulator.scenario import Outcome, Scenario
from tests.simulator.world.world import World

_FIND_SECONDS: Final = 60.0
_BURSTS: Final = (1, 1, 2, 3, 8)
_HELD: Final = 60  # records that are not acknowledged: then it waits
_PAUSE_SECONDS: Final = 0.1
_DELIVERY_MS: Final = 300_000  # longer than any run: here no record may fail
_LOOK_SECONDS: Final = 0.02
_SEEKS: Final = 0.02
_PAUSES: Final = 0.05
_BESIDE_BROKER: Final = 0.7


@dataclass(frozen=True)
class PromisingPlan(Plan):
    """Nothing that was acknowledged may be lost."""

    @classmethod
    def of(cls, plan: Plan) -> PromisingPlan:
        values = {field.name: getattr(plan, field.name) for field in fields(Plan)}
        return cls(**{**values, "is_unclean": False, "may_delete": False})

    @property
    def may_crash_all_once(self) -> bool:
        return False

    @property
    def may_lose_last(self) -> bool:
        """Tell whether records may be lost by a person's choice: no real client here is told to go on without them."""
        return False


class SimulatedProducer:
    """One real producer, whose program sends to all partitions. `acknowledged` counts its records."""

    def __init__(self, producer_id: int, env: Environment, histories: Sequence[PartitionHistory]) -> None:
        self.producer_id = producer_id
        self.is_stopped = False
        self.acknowledged = 0
        self.last_error = ""
        self._env = env
        self._histories = histories
        self._number = 0
        self._held: deque[tuple[PartitionHistory, bytes, RecordFuture]] = deque()

    @property
    def unresolved(self) -> int:
        return len(self._held)

    async def run(self, bootstrap: Sequence[Endpoint], cluster: SimulatedCluster) -> None:
        link = ClusterLink(self._env, bootstrap, "", _finder(cluster))
        await link.find_topic(TOPIC, _FIND_SECONDS)
        options, pool = _options(self._env.random.choice), BufferPool(1 << 20)
        loop = asyncio.get_running_loop()
        clocks = Clocks(lambda: self._env.wall_ms() / 1000, loop.time, _never)
        woken: list[Sender] = []

        def wake() -> None:
            loop.call_soon(woken[0].drain)

        accumulator = RecordAccumulator(pool, options.batch_size, options.delivery_timeout_ms / 1000, clocks, wake)
        sender = Sender(link, accumulator, options, ProducerMetrics(pool))
        woken.append(sender)
        while not (self.is_stopped and not self._held):
            if not self.is_stopped and len(self._held) < _HELD:
                self._send_burst(accumulator)
            await asyncio.sleep(_PAUSE_SECONDS * self._env.random.random())
            self._look()
        await sender.close()
        await link.close()

    def _send_burst(self, accumulator: RecordAccumulator) -> None:
        for _ in range(self._env.random.choice(_BURSTS)):
            partition = self._env.random.randrange(len(self._histories))
            history = self._histories[partition]
            value = b"%d-%d" % (self.producer_id, self._number)
            self._number += 1
            history.will_send(b"%d" % self.producer_id, [value], ordered=True)
            future = accumulator.append(accumulator.queue(TOPIC, partition), None, value)
            assert future is not None, "the buffer has room for all that is held"
            self._held.append((history, value, future))

    def _look(self) -> None:
        """Look at what has become of each record that is held."""
        held, self._held = self._held, deque()
        for history, value, future in held:
            if not future.done():
                self._held.append((history, value, future))
                continue
            history.was_acknowledged([value], future.result(0).offset)
            self.acknowledged += 1


class SimulatedConsumer:
    """One real consumer of all partitions. For `Scenario` it stands for the reader of the first."""

    def __init__(self, env: Environment, histories: Sequence[PartitionHistory], node_id: str) -> None:
        self.is_stopped = False
        self.read = 0
        self._node_id = node_id
        self._env = env
        self._histories = histories
        self._partitions = [TopicPartition(TOPIC, number) for number in range(len(histories))]
        self._expected: dict[TopicPartition, int] = dict.fromkeys(self._partitions, 0)

    @property
    def history(self) -> PartitionHistory:
        return self._histories[0]

    def loses_from(self, offset: int) -> None:
        raise AssertionError("Nothing is lost here.")

    async def run(self, bootstrap: Sequence[Endpoint], cluster: SimulatedCluster) -> None:
        link = ClusterLink(self._env, bootstrap, self._node_id, _finder(cluster))
        fetcher = Fetcher(link, options := _consumer_options(self._env.random.choice))
        subscriptions = SubscriptionState(options, lambda order: order(fetcher))
        subscriptions.assign(self._partitions)
        for partition in self._partitions:  # with `auto_offset_reset` it would not say where a log has changed
            subscriptions.seek(partition, 0)
        taking: asyncio.Task[list[Item]] = asyncio.ensure_future(fetcher.take())
        while not self.is_stopped:
            await asyncio.wait([taking], timeout=_LOOK_SECONDS if subscriptions.collector.has_any else _PAUSE_SECONDS)
            if taking.done():
                subscriptions.receive(taking.result())
                taking = asyncio.ensure_future(fetcher.take())
            self._poll(subscriptions)
            self._do_something(subscriptions)
        taking.cancel()
        await fetcher.close()
        await link.close()

    def _poll(self, subscriptions: SubscriptionState) -> None:
        try:
            polled = subscriptions.collector.poll(self._env.random.choice((1, 5, 500)))
        except RaylogError as error:
            if isinstance(error, RecordUnreadable) and isinstance(error.__cause__, OnlyCopyDamaged):
                self._read_again(subscriptions, TopicPartition(error.topic, error.partition))
            elif not error.retriable:  # nothing else happened that a consumer has to be told of
                raise
            return  # the cluster cannot be reached, or no leader
        for partition, records in polled.items():
            history = self._histories[partition.partition]
            for record in records:
                if record.offset != self._expected[partition]:
                    history.was_out_of_order(self._expected[partition], record.offset)
                history.was_read(record.offset, record.value)
                self._expected[partition] = record.offset + 1
            assert subscriptions.collector.position(partition) == self._expected[partition]
            self.read += len(records)

    def _read_again(self, subscriptions: SubscriptionState, partition: TopicPartition) -> None:
        """A replica that has these records sound comes back, and the leader hands over to it: nothing is skipped."""
        subscriptions.seek(partition, self._expected[partition])

    def _do_something(self, subscriptions: SubscriptionState) -> None:
        """Do now and then something that programs do."""
        random = self._env.random
        partition = random.choice(self._partitions)
        if random.random() < _SEEKS:
            offset = random.randint(0, self._expected[partition])
            subscriptions.seek(partition, offset)
            self._expected[partition] = offset
        if random.random() < _PAUSES:
            (subscriptions.resume if subscriptions.positions[partition].is_paused else subscriptions.pause)([partition])


@dataclass
class RealClients(Scenario):
    """A scenario whose writers are real producers."""

    changes_format: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.plan = PromisingPlan.of(self.plan)

    def _start_clients(self) -> None:
        if self.changes_format:
            FormatChanger(self.cluster, Random(f"formats of {self.world.seed}"), self.plan).begin()
        self.histories = [PartitionHistory(f"{TOPIC}-{number}") for number in range(self.plan.partitions)]
        machine = self.world.add_machine("clients")
        for number in range(self.random.choice((1, 2, 3))):
            machine.start(f"producer-{number}", self._produce, 100 + number)
        machine.start("consumer", self._consume, "")
        if self.random.random() < _BESIDE_BROKER:  # which reads the files of leaders there, and dies with the machine
            home = self.random.choice(list(self.cluster.homes.values()))
            home.machine.start("consumer-there", self._consume, f"node-{home.machine.name}")

    async def _consume(self, env: Environment, node_id: str) -> None:
        consumer = SimulatedConsumer(env, self.histories, node_id)
        self.readers.append(consumer)
        await consumer.run(self.cluster.broker_endpoints(), self.cluster)

    async def _produce(self, env: Environment, producer_id: int) -> None:
        producer = SimulatedProducer(producer_id, env, self.histories)
        self.writers.append(producer)
        await producer.run(self.cluster.broker_endpoints(), self.cluster)


def _finder(cluster: SimulatedCluster) -> FindBrokers:
    async def find() -> list[Endpoint]:
        return cluster.broker_endpoints()

    return find


def _consumer_options(choose: Any) -> ConsumerOptions:
    return ConsumerOptions.parse(
        {
            "auto_offset_reset": "none",
            "fetch_max_wait_ms": choose((0, 50, 500)),
            "fetch_max_bytes": choose((2_000, 50_000, 50_000_000)),
            "max_partition_fetch_bytes": choose((1_024, 10_000)),
            "request_timeout_ms": choose((1_000, 3_000)),
            "retry_backoff_ms": choose((20, 100)),
        }
    )


def _options(choose: Any) -> ProducerOptions:
    return ProducerOptions.parse(
        {
            "batch_size": choose((300, 1_000, 100_000)),
            "max_in_flight": choose((1, 2, 5)),
            "linger_ms": choose((0, 0, 5)),
            "compression_type": choose((None, None, "lz4")),
            "request_timeout_ms": choose((1_000, 3_000)),
            "retry_backoff_max_ms": 500,
            "delivery_timeout_ms": _DELIVERY_MS,
        }
    )


def _never(seconds: float) -> None:
    raise AssertionError("Nothing waits for another thread where there is none.")


def run_seed(seed: int, *, changes_format: bool = False, trace_lines: int = 200) -> Outcome:
    """Raises what was found. `changes_format`: somebody changes `batch.format` all the time."""
    with World(seed, trace_lines=trace_lines) as world:
        scenario = RealClients(world, changes_format=changes_format)
        try:
            return scenario.run()
        except AssertionError:
            world.trace("state: {}", scenario._state())
            raise


if __name__ == "__main__":
    sys.stdout.write(f"{run_seed(int(sys.argv[1]), trace_lines=1_000_000)}\n")
