"""Costs of one admitted client to all others: at each process it may talk to, for each message it may send.

Each message is sent in all the ways of `hostile/messages.py`, with the payloads of `hostile/batches.py` where it has
one, alone and many at once. The table names the worst of each (rule 34): the longest stall of the process's loop, and
the most memory above what it had before. `python -m bench hostile`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

import raylog
from bench.hostile.batches import batches
from bench.hostile.client import HostileClient, StreamClosed
from bench.hostile.kinds import BROKERS, GROUPS, LEADERS, TRANSACTIONS
from bench.hostile.messages import largest, malformed
from bench.loop_watch import LoopWatch, ProcessEnded
from bench.measuring import Figure
from bench.real_cluster import actor_pids, coordinator_pid, real_cluster
from raylog.actors.protocol.cluster_secrets import Key
from raylog.actors.protocol.control_messages import GetMetadata, Metadata
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.messages import (
    CLIENT_MESSAGE_BYTES,
    NO_PARTITION,
    NO_TOPIC,
    Message,
    numbers_of,
    pack,
)
from raylog.actors.protocol.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from raylog.actors.protocol.replication_messages import (
    NO_EPOCH,
    Append,
    AppendTransactional,
    Fetch,
)
from raylog.api.admin.cluster import Cluster
from raylog.config import MIB

STALL_MS: Final = 50.0  # rule 34
MEMORY_MIB: Final = 64.0
_FLOOD: Final = 4_000
_UNREAD: Final = 64  # of 8 MiB each
_UNREAD_SECONDS: Final = 2.0
_BATCH_LIMIT: Final = 1 << 20
_BACK_SECONDS: Final = 60.0
_ENDED: Final = 60_000.0  # ms: the process did not live through it
_NAME: Final = "hostile"
_KNOWN: Final[Mapping[str, object]] = {
    "group": _NAME, "member": "m", "timeout_ms": 100, "max_wait_ms": 10, "acks": -1, "leader_epoch": -1,
    "transactional_id": _NAME, "sequence": 1,
}  # fmt: skip


class Process(NamedTuple):
    """A process of the cluster: where it is now, and what its streams carry."""

    pid: int
    endpoint: Endpoint
    topic_id: bytes = NO_TOPIC
    partition: int = NO_PARTITION


class Target(NamedTuple):
    name: str
    kinds: tuple[type[Message], ...]
    find: Callable[[], Process]  # anew after each attack that it did not live through


class Attack(NamedTuple):
    kind: type[Message]
    how: str
    body: bytes
    payload: bytes = b""
    copies: int = 1
    is_read: bool = True


class Cost(NamedTuple):
    stall_ms: float
    memory_mib: float
    how: str


def run() -> Iterator[Figure]:
    with hostile_cluster() as (targets, key):
        for target in targets:
            for kind in target.kinds:
                costs = list(costs_of(target, kind, key))
                stall, memory = max(costs, key=lambda cost: cost.stall_ms), max(costs, key=lambda cost: cost.memory_mib)
                name = f"{target.name}: {kind.__name__}"
                yield Figure(name, [stall.stall_ms], "ms", STALL_MS, smaller_is_better=True, note=stall.how)
                yield Figure(name, [memory.memory_mib], "MiB", MEMORY_MIB, smaller_is_better=True, note=memory.how)


@contextmanager
def hostile_cluster() -> Iterator[tuple[list[Target], Key]]:
    """A cluster whose every kind of process has something to do; and the key of clients."""
    with real_cluster(brokers=1) as cluster:
        cluster.create_topic("plain", 1, 1)
        cluster.create_topic("compacted", 1, 1, config={"cleanup.policy": "compact"})
        with raylog.Consumer(cluster=cluster, group_id=_NAME) as consumer:
            consumer.committed(raylog.TopicPartition("plain", 0))
        with raylog.Producer(cluster=cluster, transactional_id=_NAME) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            for _ in range(_UNREAD):
                producer.send("plain", os.urandom(MIB // 2))
            producer.commit_transaction()
        key = cluster.access().secrets.own_keys[0]
        yield _targets(cluster, key), key


def costs_of(target: Target, kind: type[Message], key: Key) -> Iterator[Cost]:
    """Yield the costs of every attack with this message."""
    process = target.find()
    for attack in attacks_with(kind):
        try:
            cost = _cost(process, key, attack)
        except (ProcessEnded, StreamClosed):
            cost = Cost(_ENDED, 0.0, f"{attack.how}: it did not live through this")
            process = _found_again(target)
        if cost.stall_ms > STALL_MS or cost.memory_mib > MEMORY_MIB:
            print(f"{target.name}: {kind.__name__}, {cost.how}: {cost.stall_ms:.1f} ms, {cost.memory_mib:.1f} MiB",
                  file=sys.stderr, flush=True)  # fmt: skip
        yield cost


def attacks_with(kind: type[Message]) -> Iterator[Attack]:
    limit = CLIENT_MESSAGE_BYTES
    bodies = list(largest(kind, limit, _KNOWN))
    for body in (*bodies, *malformed(limit)):
        yield Attack(kind, body.name, body.data)
    yield Attack(kind, f"{_FLOOD:,} small ones at once", bodies[0].data, copies=_FLOOD)
    if kind in (Append, AppendTransactional):
        for batch in batches(_BATCH_LIMIT):
            yield Attack(kind, batch.name, bodies[0].data, batch.data)
    if kind is Fetch:
        fetch = pack(Fetch(0, NO_EPOCH, NO_EPOCH, 1, 8 * MIB, 0, False, ""))[2]
        yield Attack(kind, f"{_UNREAD} answers of 8 MiB that nobody reads", fetch, copies=_UNREAD, is_read=False)


def _cost(process: Process, key: Key, attack: Attack) -> Cost:
    watch = LoopWatch(process.pid, lambda: HostileClient(process.endpoint, key))
    try:
        client = HostileClient(process.endpoint, key)
        numbers = numbers_of(attack.kind)
        with suppress(StreamClosed, TimeoutError):
            for _ in range(attack.copies):
                client.send(
                    numbers.kind, numbers.version, attack.body, attack.payload, process.topic_id, process.partition
                )
            for _ in range(attack.copies if attack.is_read else 0):
                client.answer()
            if not attack.is_read:
                time.sleep(_UNREAD_SECONDS)
        client.close()
    finally:
        stall, memory = watch.end()
    return Cost(stall, memory, attack.how)


def _found_again(target: Target) -> Process:
    deadline = time.monotonic() + _BACK_SECONDS
    while True:
        try:
            return target.find()
        except (LookupError, OSError, StreamClosed, raylog.errors.RaylogError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def _targets(cluster: Cluster, key: Key) -> list[Target]:
    broker = Endpoint.parse(next(iter(cluster.access().brokers.values())).endpoints[0])

    def metadata() -> Metadata:
        client = HostileClient(broker, key)
        known = client.ask(GetMetadata((), -1, 0)).message
        client.close()
        assert isinstance(known, Metadata)
        return known

    def leader(topic: str) -> Process:
        told = next(each for each in metadata().topics if each.name == topic)
        first = told.partitions[0]
        pid = next(each.pid for each in cluster.describe_replicas(topic) if each.partition == first.partition)
        return Process(pid, Endpoint.parse(first.endpoints[0]), told.topic_id, first.partition)

    def coordinator(topic: str) -> Process:
        serving = [each for each in metadata().coordinators if each.topic == topic and each.endpoints]
        first, told = serving[0], next(each for each in metadata().topics if each.name == topic)
        pid = coordinator_pid(cluster, first.partition, topic)
        assert pid is not None
        return Process(pid, Endpoint.parse(first.endpoints[0]), told.topic_id, first.partition)

    return [
        Target("broker", BROKERS, lambda: Process(actor_pids("broker-")[0], broker)),
        *(Target(f"leader of {name}", LEADERS, lambda name=name: leader(name))  # type: ignore[misc]
          for name in ("plain", "compacted", OFFSETS_TOPIC, TRANSACTIONS_TOPIC)),
        Target("coordinator of groups", GROUPS, lambda: coordinator(OFFSETS_TOPIC)),
        Target("coordinator of transactions", TRANSACTIONS, lambda: coordinator(TRANSACTIONS_TOPIC)),
    ]  # fmt: skip
