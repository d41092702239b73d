"""The real sender before a simulated cluster of real brokers and replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

import pytest

from raylog.api.producer.buffer.record_accumulator import PartitionQueue
from raylog.api.producer.buffer.record_future import RecordFuture
from raylog.errors import DeliveryTimedOut, ProducerClosed
from raylog.storage.format.batch_codec import decode_batch
from raylog.storage.format.record_batch import split_batches
from tests.simulator.cluster.simulated_cluster import RunningReplica
from tests.unit.actors.link_world import TOPIC, LinkWorld, link_world
from tests.unit.api.producer_world import LoopProducer, outcomes


def is_up(leader: RunningReplica) -> bool:
    log = leader.log if leader.process.is_alive and leader.leads_epoch is not None else None
    return log is not None and log.high_watermark == log.log_end_offset


def values_in_log(world: LinkWorld, partition: int = 0) -> list[bytes | None]:
    world.until(lambda: is_up(world.replica_that_leads(partition)))
    log = world.replica_that_leads(partition).log
    assert log is not None
    found: list[bytes | None] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 1 << 20).data
        for batch in split_batches(data):
            decoded = decode_batch(batch)
            found += decoded.values
            offset = decoded.header.next_offset
    return found


async def make(world: LinkWorld, **options: object) -> LoopProducer:
    await world.link.find_topic(TOPIC, 10.0)
    return LoopProducer(world.link, **options)


def test_records_arrive_in_order_and_know_their_offsets() -> None:
    with link_world() as world:
        world.create_topic()

        async def main() -> list[int | Exception]:
            producer = await make(world)
            futures = [producer.send(TOPIC, 0, b"%d" % number) for number in range(1000)]
            await producer.flush()
            return list(outcomes(futures))

        assert world.do(main()) == list(range(1000))
        assert values_in_log(world) == [b"%d" % number for number in range(1000)]


@pytest.mark.parametrize("seed", range(8))
def test_leaders_that_are_killed_or_stopped_lose_repeat_and_reorder_nothing(seed: int) -> None:
    with link_world(seed) as world:
        world.create_topic()
        random = Random(seed)
        count = 600

        async def main() -> list[int | Exception]:
            producer = await make(world, batch_size=random.choice([400, 2_000, 20_000]), max_in_flight=1 + seed % 5)
            futures = []
            for number in range(count):
                futures.append(producer.send(TOPIC, 0, b"%d" % number))
                await asyncio.sleep(random.choice([0.0, 0.001, 0.02]))
            await producer.flush()
            return list(outcomes(futures))

        task = world.begin(main())
        for _ in range(3):
            world.world.run_until_idle_or(task.done, random.choice([0.3, 1.0, 2.0]))
            leader = world.replica_that_leads().process
            if random.random() < 0.5 or not leader.is_alive:
                leader.kill()
            else:
                leader.pause(random.choice([0.2, 1.0, 4.0]))
        world.until(task.done, 120.0)
        offsets = task.result()
        assert all(isinstance(offset, int) for offset in offsets), offsets
        log = values_in_log(world)
        assert [log[offset] for offset in offsets if isinstance(offset, int)] == [b"%d" % each for each in range(count)]
        assert len(log) == count, "something is there twice"
        assert offsets == sorted(offsets, key=int)  # type: ignore[arg-type]


def test_what_is_not_answered_in_time_fails_and_says_that_it_may_be_written() -> None:
    with link_world() as world:
        world.create_topic(replication=1)

        async def main() -> list[int | Exception]:
            producer = await make(world, delivery_timeout_ms=1000, max_in_flight=1, batch_size=300)
            producer.send(TOPIC, 0, b"opens the stream")
            await producer.flush()
            for replica in world.cluster.replicas:
                replica.process.pause()
            futures = [producer.send(TOPIC, 0, bytes(200)) for _ in range(3)]
            await producer.flush()
            return list(outcomes(futures))

        errors = world.do(main(), 20.0)
        assert all(isinstance(error, DeliveryTimedOut) for error in errors)
        assert [error.may_be_written for error in errors] == [True, False, False]  # type: ignore[union-attr]


def test_open_batches_of_many_partitions_grow_while_their_leaders_are_busy() -> None:
    """Each request costs as much as a thousand records: a record in each would keep everybody busy with requests."""
    partitions, rounds = 60, 40
    with link_world() as world:
        world.create_topic(partitions=partitions, replication=1)

        async def main() -> tuple[float, list[int | Exception]]:
            producer = await make(world)
            for number in range(partitions):
                producer.send(TOPIC, number, b"has an identity, and is known to its leader")
            await producer.flush()
            before = producer.metrics.read()["request-total"]
            hosts = {each.process for each in world.cluster.replicas}
            for host in hosts:
                host.pause(0.5)
            futures = []
            for each in range(rounds):
                futures += [producer.send(TOPIC, number, b"%d" % each) for number in range(partitions)]
                await asyncio.sleep(0.01)
            assert producer.metrics.read()["request-total"] - before <= 5 * len(hosts)
            await asyncio.sleep(1.0)
            await producer.flush()
            return producer.metrics.read()["request-total"] - before, list(outcomes(futures))

        requests, offsets = world.do(main())
        assert requests <= 2 * partitions
        assert offsets == [each + 1 for each in range(rounds) for _ in range(partitions)]


def test_a_leader_that_does_not_answer_holds_up_nobody_elses_open_batches() -> None:
    partitions = 60
    with link_world() as world:
        world.create_topic(partitions=partitions, replication=1)

        async def main() -> int:
            producer = await make(world)
            for number in range(partitions):
                producer.send(TOPIC, number, b"has an identity")
            await producer.flush()
            leaders = [world.link.leader(TOPIC, number) for number in range(partitions)]
            silent = leaders[0]
            assert silent is not None
            replica = next(each for each in world.cluster.replicas if each.spec.partition == 0)
            replica.process.pause()
            futures = {}
            for number in range(partitions):
                futures[number] = producer.send(TOPIC, number, b"late or not")
            await asyncio.sleep(0.5)
            others = [n for n, each in enumerate(leaders) if each is not None and each.endpoints != silent.endpoints]
            assert not futures[0].done()
            assert all(futures[number].done() for number in others)
            return len(others)

        assert world.do(main()) > 20


def test_closing_fails_what_is_left() -> None:
    with link_world() as world:
        world.create_topic()

        async def main() -> list[int | Exception]:
            producer = await make(world, linger_ms=1000)
            futures = [producer.send(TOPIC, 0, b"left")]
            await producer.sender.close()
            futures.append(producer.send(TOPIC, 0, b"later"))
            await asyncio.sleep(0.01)
            return list(outcomes(futures))

        assert [type(each) for each in world.do(main())] == [ProducerClosed, ProducerClosed]


@pytest.mark.parametrize("acks", [0, 1, "all"])
@pytest.mark.parametrize("codec", [None, "lz4"])
def test_acks_and_compression(acks: int | str, codec: str | None) -> None:
    with link_world() as world:
        world.create_topic()
        values = [b"%d" % number * 50 for number in range(3000)]

        async def main() -> None:
            producer = await make(world, acks=acks, compression_type=codec)
            for value in values:
                producer.send(TOPIC, 0, value)
            await producer.flush()
            await asyncio.sleep(1.0)

        world.do(main())
        assert values_in_log(world) == values


def test_a_batch_that_is_too_late_before_it_is_compressed_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with link_world() as world:
        world.create_topic()
        at_once = world.link.env.off_loop

        async def late(work: Callable[[], None]) -> None:
            await asyncio.sleep(3.0)
            await at_once(work)

        async def main() -> list[int | Exception]:
            producer = await make(
                world, compression_type="lz4", batch_size=1 << 20, linger_ms=0, request_timeout_ms=1000,
                delivery_timeout_ms=1000,
            )  # fmt: skip
            monkeypatch.setattr(world.link.env, "off_loop", late)
            first = producer.send(TOPIC, 0, b"x" * 200_000)
            await asyncio.sleep(5.0)
            monkeypatch.undo()
            second = producer.send(TOPIC, 0, b"y")
            await producer.flush()
            return list(outcomes([first, second]))

        first, second = world.do(main())
        assert isinstance(first, DeliveryTimedOut)
        assert isinstance(second, int)


def test_lingering_gathers_records() -> None:
    with link_world() as world:
        world.create_topic()

        async def main() -> float:
            producer = await make(world, linger_ms=100)
            futures = []
            for number in range(20):
                futures.append(producer.send(TOPIC, 0, b"%d" % number))
                await asyncio.sleep(0.001)
            await producer.flush()
            assert list(outcomes(futures)) == list(range(20))
            return producer.metrics.read()["request-total"]

        assert world.do(main()) == 1


def test_a_flush_in_the_moment_in_which_another_one_is_dealt_with_is_not_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with link_world() as world:
        world.create_topic()

        async def main() -> list[int | Exception]:
            producer = await make(world, linger_ms=60_000)
            seal_open = producer.accumulator.seal_open
            later: list[RecordFuture] = []

            def sealed_and_then_another_thread_flushes(queue: PartitionQueue) -> bool:
                is_sealed = seal_open(queue)
                if not later:
                    later.append(producer.send(TOPIC, 0, b"second"))
                    producer.accumulator.flush()
                return is_sealed

            monkeypatch.setattr(producer.accumulator, "seal_open", sealed_and_then_another_thread_flushes)
            first = producer.send(TOPIC, 0, b"first")
            await producer.flush()
            await asyncio.sleep(5.0)
            assert later[0].done(), "it lingers"
            return list(outcomes([first, *later]))

        assert world.do(main()) == [0, 1]


def test_a_producer_that_waits_for_replicas_says_so_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with link_world() as world:
        world.create_topic()

        async def main() -> None:
            producer = await make(world, delivery_timeout_ms=28_000, request_timeout_ms=15_000)
            producer.send(TOPIC, 0, b"delivered")
            await producer.flush()
            leader = world.replica_that_leads()
            for replica in world.cluster.replicas:
                if replica is not leader:
                    replica.process.machine.crash()
            producer.send(TOPIC, 0, b"waits")
            await producer.flush()
            await asyncio.sleep(20.0)

        world.do(main(), 60.0)
    told = [each.getMessage() for each in caplog.records if f"for {TOPIC}-0 to take records: " in each.getMessage()]
    assert [line.split(" for ")[0] for line in told] == ["Has waited 3 s", "Has waited 13 s", "Has waited 23 s"]
    assert told[0].endswith("there is no answer yet")
