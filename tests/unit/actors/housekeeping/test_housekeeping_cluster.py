"""A whole cluster with a compacted topic, while its processes are killed and stopped and machines lose their power."""

from __future__ import annotations

import asyncio

import pytest

from raylog.actors.kernel.environment import Environment
from raylog.actors.protocol.replication_messages import NO_EPOCH, Append
from raylog.errors import RaylogError
from raylog.storage.compaction import progress
from raylog.storage.format.batch_codec import decode_batch, encode_batch
from raylog.storage.format.record_batch import split_batches
from raylog.storage.log.partition_log import PartitionLog
from raylog.storage.log.reader import Isolation
from tests.simulator.clients.clients import PartitionClient
from tests.simulator.cluster.simulated_cluster import SimulatedCluster
from tests.simulator.world.world import World

TOPIC = "users"
SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "600",
    "min.cleanable.dirty.ratio": "0.1",
    "file.delete.delay.ms": "500",
    "producer.id.expiration.ms": "9000000000",
    "replica.lag.time.max.ms": "2000",
    "message.timestamp.after.max.ms": "9000000000",
}
KEYS = 6
WRITES_SECONDS = 45.0
PATIENCE = 20
SIZE_WITHOUT = 100_000


class KeyWriter:
    """Writes one key after the other, each until it is acknowledged."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.newest: dict[bytes, bytes] = {}
        self.is_over = False

    async def main(self, env: Environment) -> None:
        client = PartitionClient(env, self.cluster.broker_endpoints, TOPIC, 0)
        number = 0
        while not self.is_over:
            key, value = b"key-%d" % (number % KEYS), b"value %d" % number
            await self._write(client, env, number, key, value)
            self.newest[key] = value
            number += 1
            await asyncio.sleep(0.05)

    @staticmethod
    async def _write(client: PartitionClient, env: Environment, sequence: int, key: bytes, value: bytes) -> None:
        while True:
            data = encode_batch(
                [value], keys=[key], timestamps=env.wall_ms(), producer_id=7, producer_epoch=0, base_sequence=sequence
            )
            try:
                await client.request(await client.leader(), Append(NO_EPOCH, -1, 1_000), data)
                return
            except RaylogError:
                await client.forget()
                await asyncio.sleep(0.2)


def newest_in(log: PartitionLog) -> dict[bytes | None, bytes | None]:
    found: dict[bytes | None, bytes | None] = {}
    offset = log.log_start_offset
    while offset < log.high_watermark:
        read = log.read(offset, 1 << 20, Isolation.HIGH_WATERMARK)
        for batch in split_batches(read.data):
            records = decode_batch(batch)
            found.update(zip(records.keys, records.values, strict=True))
        offset = read.next_offset
    return found


class Plagues:
    """Now and then something happens to a process or a machine, one at a time, so that the data survives."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.is_over = False
        self._cluster = cluster

    def strike(self) -> None:
        if self.is_over:
            return
        world = self._cluster.world
        choice = world.random.random()
        processes = [each for each in self._cluster.processes() if not each.name.startswith("controller")]
        process = world.random.choice(processes)
        if choice < 0.15:
            self._cluster.crash_machine(world.random.choice(list(self._cluster.homes.values())))
        elif choice < 0.5:
            process.kill()
        elif choice < 0.8:
            process.kill_at_disk(world.random.choice(("rename", "sync_directory", "write_at", "remove")), "users-0")
        else:
            process.pause(world.random.uniform(0.2, 3.0))
        world.after(world.random.uniform(6.0, 10.0), self.strike)


def living(cluster: SimulatedCluster) -> list[PartitionLog]:
    logs = [running.log for running in cluster.replicas if running.process.is_alive]
    return [log for log in logs if log is not None and log.offline_because is None]


def agree(cluster: SimulatedCluster, writer: KeyWriter) -> bool:
    """All three replicas hold the same newest values, and each has been compacted."""
    logs = living(cluster)
    if len(logs) < 3 or any(log.high_watermark < log.log_end_offset for log in logs):
        return False
    return all(newest_in(log) == writer.newest and is_compacted(log) for log in logs)


def is_compacted(log: PartitionLog) -> bool:
    names = log.disk.list_directory(log.directory.path)
    return progress.FILE_NAME in names and log.size_bytes < SIZE_WITHOUT / 5


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(4))
def test_compaction_loses_nothing_whatever_happens_to_whom(seed: int) -> None:
    with World(seed) as world:
        cluster = SimulatedCluster(world, has_housekeepers=True)
        cluster.form(3)
        cluster.create_topic(TOPIC, 1, 3, SETTINGS)
        writer = KeyWriter(cluster)
        client = world.add_machine("client").start("client", writer.main)
        plagues = Plagues(cluster)
        world.after(10.0, plagues.strike)
        world.run_for(WRITES_SECONDS)
        writer.is_over = True
        plagues.is_over = True
        assert world.run_until_idle_or(lambda: not client.is_alive, 60.0), "the last write is not acknowledged"
        for _ in range(PATIENCE):
            world.run_for(5.0)
            if agree(cluster, writer):
                break
        else:
            pytest.fail("The replicas do not agree, or are not compacted.")
        cluster.is_over = True
