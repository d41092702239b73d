"""Fetcher, positions and handing out against a model log, with failures from a seed: each record once, in order."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from raylog.api.connection.records import ConsumerRecord, TopicPartition
from raylog.storage.format.control_records import MarkerType
from tests.unit.api.consumer_world import Consuming, consuming
from tests.unit.api.fake_link import NODE, Faults, ModelLog

PARTITIONS = 3


class Writers:
    """Appends to the model logs, changes leaders, and knows what readers have to get."""

    def __init__(self, c: Consuming, random: Random) -> None:
        self.random = random
        self.link = c.link
        self.logs = c.link.add_topic("t", PARTITIONS)
        self.wanted: list[list[tuple[int, bytes]]] = [[] for _ in self.logs]
        self._count = 0

    def step(self) -> None:
        number = self.random.randrange(PARTITIONS)
        log, kind = self.logs[number], self.random.random()
        if kind < 0.08:
            log.new_epoch()
            if self.random.random() < 0.5:
                self.link.publish()
        elif kind < 0.15:
            log.add_filler(self.random.randint(1, 5))
        elif kind < 0.25:
            self._transaction(number, log)
        else:
            self._append(number, log, is_seen=True)

    def _append(self, number: int, log: ModelLog, *, is_seen: bool, producer_id: int = -1) -> None:
        values = [
            b"%d" % (self._count + each) * self.random.randint(1, 30) for each in range(self.random.randint(1, 9))
        ]
        self._count += len(values)
        if is_seen:
            self.wanted[number] += list(enumerate(values, log.end))
        log.append(*values, producer_id=producer_id)

    def _transaction(self, number: int, log: ModelLog) -> None:
        producer_id, aborts, first = self.random.randint(1, 3), self.random.random() < 0.5, log.end
        for _ in range(self.random.randint(1, 3)):
            self._append(number, log, is_seen=not aborts, producer_id=producer_id)
            if self.random.random() < 0.5:
                self._append(number, log, is_seen=True)
        if aborts:
            log.aborted.append((producer_id, first, log.end))
        log.end_transaction(producer_id, MarkerType.ABORT if aborts else MarkerType.COMMIT)


class Reader:
    """Does all that a program may do, and checks what it gets."""

    def __init__(self, c: Consuming, wanted: list[list[tuple[int, bytes]]], random: Random) -> None:
        self.c = c
        self.wanted = wanted
        self.random = random
        self.next = [0] * PARTITIONS  # offsets

    async def step(self) -> None:
        kind = self.random.random()
        partition = TopicPartition("t", self.random.randrange(PARTITIONS))
        if kind < 0.05:
            self.seek(partition)
        elif kind < 0.15:
            self.c.subscriptions.pause([partition])
        elif kind < 0.35:
            self.c.subscriptions.resume([partition])
        elif kind < 0.45:
            await self.c.wait(0.01)
            for batch in self.c.subscriptions.collector.poll_batches(self.random.choice([1, 100, 10_000])):
                self.take(batch.partition, list(zip(batch.offsets, batch.values, strict=True)))
        elif kind < 0.65:
            await self.iterate()
        else:
            for records in (await self.c.poll(0.02, self.random.choice([1, 3, 500]))).values():
                self.take_records(records)
        for number in range(PARTITIONS):
            self.check_position(number)

    def seek(self, partition: TopicPartition) -> None:
        offsets = [offset for offset, _ in self.wanted[partition.partition]]
        if offsets:
            offset = self.random.choice(offsets)
            self.c.subscriptions.seek(partition, offset)
            self.next[partition.partition] = offset

    async def iterate(self) -> None:
        """Take some records of a piece, and leave the rest."""
        await self.c.wait(0.01)
        piece = self.c.subscriptions.collector.next_piece()
        if piece is None:
            return
        for _ in range(self.random.choice([0, 1, 2, 100])):
            record = next(piece.records, None)
            if record is None:
                break
            self.take_records([record])
            self.check_position(record.partition)
        if self.random.random() < 0.3:
            self.c.subscriptions.collector.cut()  # as a wake-up from another thread does
            assert next(piece.records, None) is None

    def take_records(self, records: list[ConsumerRecord]) -> None:
        self.take(records[0].partition, [(record.offset, record.value) for record in records])

    def take(self, number: int, got: list[tuple[int, bytes | None]]) -> None:
        assert not self.c.subscriptions.positions[TopicPartition("t", number)].is_paused
        rest = [each for each in self.wanted[number] if each[0] >= self.next[number]]
        assert got == rest[: len(got)]
        self.next[number] = got[-1][0] + 1

    def check_position(self, number: int) -> None:
        position = self.c.subscriptions.collector.position(TopicPartition("t", number))
        if position >= 0:
            assert position >= self.next[number]
            assert not [offset for offset, _ in self.wanted[number] if self.next[number] <= offset < position]

    async def finish(self) -> None:
        self.c.link.faults = Faults()
        self.c.subscriptions.resume(list(self.c.subscriptions.positions))
        deadline = asyncio.get_running_loop().time() + 120.0
        while self.left() and asyncio.get_running_loop().time() < deadline:
            for records in (await self.c.poll(0.5)).values():
                self.take_records(records)
        assert not self.left()

    def left(self) -> int:
        return sum(
            1 for number in range(PARTITIONS) for offset, _ in self.wanted[number] if offset >= self.next[number]
        )


@pytest.mark.parametrize("node_id", ["", NODE])
@pytest.mark.parametrize("seed", range(12))
def test_each_record_comes_once_and_in_order(seed: int, node_id: str) -> None:
    random = Random(seed)

    async def main(c: Consuming) -> None:
        c.link.faults = Faults(*(random.choice([0.0, 0.05, 0.3]) for _ in range(4)))
        c.link.faults.silence /= 10
        writers = Writers(c, random)
        c.subscriptions.assign([TopicPartition("t", number) for number in range(PARTITIONS)])
        reader = Reader(c, writers.wanted, random)
        for _ in range(200):
            for _ in range(random.randrange(3)):
                writers.step()
            await reader.step()
        await reader.finish()

    options = {
        "isolation_level": "read_committed",
        "max_partition_fetch_bytes": random.choice([1024, 4096]),
        "fetch_max_bytes": random.choice([2048, 100_000]),
        "fetch_min_bytes": random.choice([1, 1000]),
        "request_timeout_ms": 3000,
    }
    if random.random() < 0.3:
        options |= {"value_deserializer": bytes, "interceptors": [lambda records: records]}
    consuming(main, seed, node_id, 3600.0, **options)
