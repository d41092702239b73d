"""A cluster in memory with what the command line asks of one, and a way to run commands on it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from click.testing import CliRunner, Result

from raylog.actors.cluster.copies import CopyDescription, PartitionCopies, SetAsideDescription, SetAsideListing
from raylog.actors.cluster.descriptions import (
    BrokerDescription,
    ClusterDescription,
    CoordinatorDescription,
    PartitionDescription,
    ReplicaDescription,
    TopicDescription,
)
from raylog.actors.on_ray.runtime.control_store import MEMORY
from raylog.api.admin.rules.group_descriptions import (
    GroupDescription,
    GroupListing,
    GroupPartition,
    MemberDescription,
)
from raylog.api.admin.rules.pool_descriptions import PoolActorDescription, PoolDescription, PoolEvent
from raylog.api.admin.rules.transaction_descriptions import (
    HangingTransaction,
    HangingTransactions,
    TransactionDescription,
    TransactionListing,
)
from raylog.api.cli.program import program
from raylog.api.cli.session.session import Session
from raylog.api.connection.records import (
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    RecordMetadata,
    TopicPartition,
)
from raylog.api.workloads.driver import RAYLOG, Target
from raylog.errors import (
    ClusterNotFound,
    LossNotAccepted,
    RaylogError,
    SetAsideUnknown,
    TopicExists,
    UnknownGroup,
    UnknownPool,
    UnknownTopic,
)

Headers = Any
ASIDE = "clicks-0@set-aside-1700000000000-damaged"


class FakeCluster:
    """Topics with their records, and committed offsets of groups."""

    def __init__(self, brokers: int = 3) -> None:
        self.brokers = brokers
        self.logs: dict[TopicPartition, list[ConsumerRecord]] = {}
        self.settings: dict[str, dict[str, Any]] = {}
        self.replicas: dict[TopicPartition, tuple[int, ...]] = {}
        self.committed: dict[str, dict[TopicPartition, int]] = {}
        self.states: dict[str, str] = {}
        self.owners: dict[TopicPartition, str] = {}  # ids of members
        self.members: dict[str, dict[str, MemberDescription]] = {}
        self.calls: list[tuple[str, Any]] = []
        self.failure: RaylogError | None = None
        self.unusable = "it is damaged"  # the log that is set aside
        self.kafka = ""
        self.coordinators: tuple[CoordinatorDescription, ...] = ()
        self.starts: dict[TopicPartition, int] = {}
        self.fake_pools: dict[str, FakePool] = {}
        self.hanging = HangingTransactions(
            [HangingTransaction(TopicPartition("clicks", 1), 9, 2, 40, 1_700_000_000_000, -1)]
        )

    def fill(self, topic: str, partitions: int, records: int, size: int = 1) -> None:
        self.create_topic(topic, partitions, min(3, self.brokers), {})
        for number in range(records):
            self.append(topic, b"%d" % number * size, None, [], number % partitions, 1000 + number)

    def append(
        self, topic: str, value: bytes | None, key: bytes | None, headers: Headers, partition: int, timestamp: int
    ) -> RecordMetadata:
        log = self.logs[TopicPartition(topic, partition)]
        log.append(ConsumerRecord(topic, partition, len(log), timestamp, 0, key, value, headers, 0))
        return RecordMetadata(topic, partition, len(log) - 1, timestamp)

    def join(self, group: str, client_id: str) -> None:
        """A member that is given nothing."""
        self.committed.setdefault(group, {})
        none = frozenset[TopicPartition]()
        self.members.setdefault(group, {})[client_id] = MemberDescription(
            f"id of {client_id}", "", client_id, "here", 3, none, none, none, 0
        )

    # --- what Cluster has -----------------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int | None,
        replication_factor: int | None,
        config: Mapping[str, Any],
        timeout: float = 1,
    ) -> TopicDescription:
        self._may_fail()
        if name in self.settings:
            raise TopicExists(name)
        self.settings[name] = dict(config)
        factor = replication_factor or min(3, self.brokers)
        for number in range(partitions or 1):
            each = TopicPartition(name, number)
            self.logs[each] = []
            self.replicas[each] = tuple((number + place) % self.brokers for place in range(factor))
        return self.describe_topic(name)

    def list_topics(self, *, internal: bool = False, timeout: float = 1) -> tuple[str, ...]:
        self._may_fail()
        return tuple(sorted(name for name in self.settings if internal or not name.startswith("__")))

    def describe_topic(self, name: str, *, timeout: float = 1) -> TopicDescription:
        self._may_fail()
        if name not in self.settings:
            raise UnknownTopic(name)
        partitions = tuple(self._partition(each) for each in sorted(self.logs) if each.topic == name)
        factor = len(partitions[0].replicas)
        return TopicDescription(
            name, b"\1" * 16, name.startswith("__"), factor, tuple(self.settings[name].items()), partitions
        )

    def describe_replicas(self, name: str, *, timeout: float = 1) -> tuple[ReplicaDescription, ...]:
        return tuple(
            ReplicaDescription(name, each.partition, broker, "node", 1, 1, "leader", True, 0, 0, 0, 2048, 0, "own")
            for each in sorted(self.logs)
            if each.topic == name
            for broker in self.replicas[each]
        )

    def describe_topic_config(self, name: str, *, timeout: float = 1) -> dict[str, Any]:
        return {"retention.ms": 604800000, **self.settings[name]}

    def alter_topic_config(self, name: str, config: Mapping[str, Any], *, timeout: float = 1) -> None:
        self.describe_topic(name)
        self.calls.append(("alter", dict(config)))

    def change_replication_factor(self, name: str, factor: int, *, timeout: float = 1) -> None:
        self.calls.append(("replicas", (name, factor)))

    def describe_copies(self, topic: str, partition: int, *, timeout: float = 1) -> PartitionCopies:
        self.describe_topic(topic)
        live = CopyDescription(1, "live", False, False, 3, 70, 30, 2048, "", -1, "", "")
        blank = CopyDescription(0, "blank", False, False, -1, 0, 100, 0, "", -1, "it came back without its log", "")
        damaged = dataclasses.replace(live, broker=0, state="damaged", log_end_offset=100, missing=0, name=ASIDE,
                                      at_ms=1_700_000_000_000, why="damaged", unusable=self.unusable)  # fmt: skip
        waits = "no copy is left that surely holds what was acknowledged"
        return PartitionCopies(topic, partition, -1, waits, (blank, live, damaged), (2,))

    def recover_partition(
        self,
        topic: str,
        partition: int,
        *,
        from_broker: int,
        accept_loss: bool = False,
        aside: str = "",
        timeout: float = 1,
    ) -> PartitionCopies:
        if not accept_loss:
            raise LossNotAccepted(topic, partition, from_broker, "30 records from offset 70 on")
        self.calls.append(("recover", (topic, partition, from_broker, aside)))
        copies = self.describe_copies(topic, partition)
        return dataclasses.replace(copies, leader=from_broker, waits="")

    def list_set_aside(self, *, timeout: float = 1) -> SetAsideListing:
        log = SetAsideDescription(0, ASIDE, "clicks", 0, 1_700_000_000_000, "damaged", 3, 0, 100, 4096, "it is damaged")
        return SetAsideListing((log,), (2,))

    def drop_set_aside(self, name: str, *, broker: int | None = None, timeout: float = 1) -> int:
        if name != ASIDE:
            raise SetAsideUnknown(name)
        self.calls.append(("drop", (name, broker)))
        return 0

    def create_partitions(self, name: str, total: int, *, timeout: float = 1) -> None:
        self.calls.append(("partitions", (name, total)))

    def delete_topic(self, name: str, *, timeout: float = 1) -> None:
        del self.settings[name]

    def delete_records(
        self, before: Mapping[tuple[str, int], int], *, timeout: float = 1
    ) -> dict[tuple[str, int], int]:
        ends = {each: len(self.logs[TopicPartition(*each)]) for each in before}
        self.starts = {TopicPartition(*each): ends[each] if to < 0 else to for each, to in before.items()}
        return {(each.topic, each.partition): at for each, at in self.starts.items()}

    def describe_cluster(self, *, timeout: float = 1) -> ClusterDescription:
        self._may_fail()
        brokers = tuple(
            BrokerDescription(number, f"node{number}", "10.0.0.1", "", (), f"/data/broker-{number}", 1, True, False,
                              sum(number in held for held in self.replicas.values()), 0, 1 << 30, 1 << 31,
                              self.kafka)
            for number in range(self.brokers)
        )  # fmt: skip
        topics, partitions = len(self.settings), len(self.logs)
        return ClusterDescription(
            "id", 0, 9, 1, (0,), brokers, topics, partitions, 0, (), 0, 0, 0, self.coordinators, MEMORY
        )

    def reassign_partitions(
        self, targets: Mapping[tuple[str, int], Any], *, throttle: int | None, timeout: float
    ) -> None:
        if throttle is not None:
            self.calls.append(("throttle", throttle))
        self.replicas.update({TopicPartition(*each): tuple(to) for each, to in targets.items()})

    def list_reassignments(self, *, timeout: float = 1) -> tuple[PartitionDescription, ...]:
        return ()

    def elect_leaders(self, kind: str, *, timeout: float = 1) -> dict[tuple[str, int], RaylogError]:
        self.calls.append(("elect", kind))
        return {}

    def drain_broker(self, broker: int, *, force: bool, wait: bool, timeout: float = 1) -> None:
        self.calls.append(("drain", (broker, force)))
        self.replicas = {each: tuple(b for b in held if b != broker) for each, held in self.replicas.items()}

    def undrain_broker(self, broker: int, *, timeout: float = 1) -> None:
        self.calls.append(("undrain", broker))

    def remove_broker(self, broker: int, *, timeout: float = 1) -> None:
        self.calls.append(("remove", broker))

    def rotate_secrets(self, *, grace: float, timeout: float = 1) -> None:
        self.calls.append(("rotate", grace))

    def list_groups(self, *, timeout: float = 1) -> tuple[GroupListing, ...]:
        return tuple(GroupListing(name, "Empty", 0) for name in sorted(self.committed))

    def describe_group(self, name: str, *, timeout: float = 1) -> GroupDescription:
        if name not in self.committed:
            raise UnknownGroup(name)
        partitions = tuple(
            GroupPartition(
                each, self.owners.get(each, ""), OffsetAndMetadata(at), len(self.logs[each]), len(self.logs[each]) - at
            )
            for each, at in sorted(self.committed[name].items())
        )
        members = tuple(self.members.get(name, {}).values())
        state = self.states.get(name, "Empty")
        return GroupDescription(name, state, 3, "range", "", "", members, partitions)

    def list_group_offsets(self, name: str, *, timeout: float = 1) -> dict[TopicPartition, OffsetAndMetadata]:
        if name not in self.committed:
            raise UnknownGroup(name)
        return {each: OffsetAndMetadata(at) for each, at in self.committed[name].items()}

    def reset_group_offsets(self, name: str, to: str | None = None, **how: Any) -> dict[TopicPartition, int]:
        self.calls.append(("reset", {"to": to, **how}))
        return dict.fromkeys(self.committed.get(name, {}), 0)

    def delete_group(self, name: str, *, timeout: float = 1) -> None:
        del self.committed[name]

    def list_transactions(self, *, timeout: float = 1) -> tuple[TransactionListing, ...]:
        return (TransactionListing("transfers", "Ongoing", 7, 3, 1_700_000_000_000),)

    def describe_transaction(self, name: str, *, timeout: float = 1) -> TransactionDescription:
        partitions = (TopicPartition("clicks", 0),)
        return TransactionDescription(
            name, "Ongoing", 7, 3, 60_000, 1_700_000_000_000, 1_700_000_000_500, partitions, ()
        )

    def find_hanging_transactions(self, *, timeout: float = 1) -> HangingTransactions:
        return self.hanging

    def abort_transaction(self, transaction: str | HangingTransaction, *, timeout: float = 1) -> None:
        self.calls.append(("abort", transaction))

    def pools(self) -> tuple[FakePool, ...]:
        return tuple(self.fake_pools.values())

    def pool(self, group_id: str, timeout: float = 1) -> FakePool:
        if group_id not in self.fake_pools:
            raise UnknownPool(group_id)
        return self.fake_pools[group_id]

    def _may_fail(self) -> None:
        if self.failure is not None:
            raise self.failure

    def _partition(self, each: TopicPartition) -> PartitionDescription:
        replicas, end = self.replicas[each], len(self.logs[each])
        leader = replicas[0] if replicas else -1
        return PartitionDescription(
            each.topic, each.partition, leader, 0, 0, replicas, replicas, (), (), (), 1, "", 0, end, end
        )


class FakePool:
    """A pool with one actor."""

    def __init__(self, group_id: str, problem: str = "") -> None:
        self.group_id = group_id
        self.problem = problem
        self.bounds = (0, 10)
        self.is_stopped = False
        self.has_ended = False

    def describe(self, timeout: float = 1) -> PoolDescription:
        if self.has_ended:
            raise UnknownPool(self.group_id)
        actor = PoolActorDescription(f"{self.group_id}-0123abcd", "running", 3, "0af3", 4711, 2, 1_000, "")
        return PoolDescription(
            self.group_id, ("clicks",), "running", *self.bounds, 2, "why", 5, 1.5, None, 3, 1_000, 2, 1, 0,
            self.problem, (actor,), (PoolEvent(1_700_000_000.0, "2 actors are wanted"),),
        )  # fmt: skip

    def scale(self, least: int, most: int, timeout: float = 1) -> None:
        self.bounds = least, most

    def stop(self, timeout: float = 1) -> None:
        self.is_stopped = True


class FakeProducer:
    def __init__(self, cluster: FakeCluster, options: dict[str, Any]) -> None:
        self._cluster = cluster
        self.options = options
        self.columns_sent: list[int] = []

    def __enter__(self) -> FakeProducer:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def send(
        self, topic: str, value: Any, key: Any, headers: Headers, partition: int | None, timestamp_ms: int | None
    ) -> FakeFuture:
        return FakeFuture(self._cluster.append(topic, value, key, headers or [], partition or 0, timestamp_ms or 5))


    def send_many(
        self, topic: str, values: Any, keys: Any, timestamps: Any, headers: Any, partition: int | None
    ) -> FakeFuture:
        count = len(values)
        rows = [each or [None] * count for each in (keys, headers, timestamps)]
        self.columns_sent.append(count)
        for value, key, pairs, timestamp in zip(values, *rows, strict=True):
            sent = self.send(topic, value, key, pairs, partition, timestamp)
        return sent


class FakeFuture:
    def __init__(self, metadata: RecordMetadata) -> None:
        self._metadata = metadata

    def done(self) -> bool:
        return True

    def result(self, timeout: float | None = None) -> RecordMetadata:
        return self._metadata


class FakeConsumer:
    """Hands out what there is, one partition a poll."""

    def __init__(self, cluster: FakeCluster, options: dict[str, Any]) -> None:
        self._cluster = cluster
        self.options = options
        self._positions: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()

    def __enter__(self) -> FakeConsumer:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return {each.partition for each in self._cluster.logs if each.topic == topic} or None

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {each: self._cluster.starts.get(each, 0) for each in partitions}

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {each: len(self._cluster.logs[each]) for each in partitions}

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        for each, at in times.items():
            later = [record for record in self._cluster.logs[each] if record.timestamp >= at]
            found[each] = OffsetAndTimestamp(later[0].offset, later[0].timestamp) if later else None
        return found

    def subscribe(self, topics: Iterable[str]) -> None:
        committed = self._cluster.committed.setdefault(self.options.get("group_id", ""), {})
        wanted = set(topics)
        self._positions = {each: committed.get(each, 0) for each in self._cluster.logs if each.topic in wanted}

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self._positions = dict.fromkeys(partitions, 0)

    def assignment(self) -> set[TopicPartition]:
        return set(self._positions)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._positions[partition] = offset

    def position(self, partition: TopicPartition) -> int:
        return self._positions[partition]

    def pause(self, partition: TopicPartition) -> None:
        self._paused.add(partition)

    def poll(self, _timeout: float, most: int) -> dict[TopicPartition, list[ConsumerRecord]]:
        for each, position in sorted(self._positions.items()):
            records = self._cluster.logs[each][position : position + most]
            if records and each not in self._paused:
                self._positions[each] = records[-1].offset + 1
                return {each: records}
        raise KeyboardInterrupt  # nothing more will come: what a person would do

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._cluster.committed[self.options["group_id"]].update(offsets)


class FakeSession(Session):
    def __init__(self, cluster: FakeCluster) -> None:
        super().__init__()
        self.fake = cluster
        self.producers: list[FakeProducer] = []
        self.started: list[tuple[Any, ...]] = []
        self.others: list[str] = []

    @property
    def cluster(self) -> Any:
        if self.name != "default":
            raise ClusterNotFound(self.name, "it is not there")
        return self.fake

    def producer(self, **options: Any) -> Any:
        self.producers.append(FakeProducer(self.fake, options))
        return self.producers[-1]

    def consumer(self, *topics: str, **options: Any) -> Any:
        return FakeConsumer(self.fake, options)

    @contextmanager
    def bench_target(self, own: int | None) -> Iterator[Target]:
        yield Target(RAYLOG, None)

    def cluster_names(self) -> list[str]:
        return ["default", *self.others]

    def start_ray(self, *how: Any) -> bool:
        self.started.append(("ray", *how))
        return True

    def start_cluster(self, *how: Any) -> ClusterDescription:
        self.started.append(("cluster", *how))
        return self.fake.describe_cluster()

    def ray_address(self) -> str:
        return "10.0.0.1:6379"

    def stop_cluster(self, timeout: float, *, must_run: bool) -> bool:
        self.started.append(("stop", must_run))
        return True

    def stop_ray(self) -> None:
        self.started.append(("stop ray",))


Run = Callable[..., Result]


def run(cluster: FakeCluster, *arguments: str, stdin: bytes = b"", session: FakeSession | None = None) -> Result:
    return CliRunner().invoke(program, arguments, input=stdin, obj=session or FakeSession(cluster), prog_name="raylog")


def run_json(cluster: FakeCluster, *arguments: str) -> Any:
    result = run(cluster, *arguments, "--format", "json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def aged(description: ClusterDescription, **changes: Any) -> ClusterDescription:
    return dataclasses.replace(description, **changes)
