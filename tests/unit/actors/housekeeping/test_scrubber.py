"""The scrubber reads every sealed segment now and then, as fast as it may, and what has rotted is dealt with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from raylog.actors.housekeeping.scrubber import PROGRESS_FILE, Scrubber
from raylog.actors.kernel.metrics import SCRUB_AGE_SECONDS, SCRUB_BYTES, SCRUB_SUSPECTS, Metric
from raylog.config import DAY_MS, TopicConfig
from raylog.errors import InspectionUnderWay, OnlyCopyDamaged
from raylog.storage.directory.partition_directory import PartitionIdentity
from raylog.storage.log.partition_log import PartitionLog
from tests.simulator.cluster.simulated_cluster import SimulatedCluster
from tests.simulator.world.machines import Machine, Process, SimEnvironment
from tests.simulator.world.world import World
from tests.unit.actors.housekeeping.test_housekeeping_cluster import KeyWriter
from tests.unit.storage.small_log import DIRECTORY, NOW_MS, PARENT, append

TOPIC_ID = b"sixteen bytes id"
SLOW = 1_000  # bytes a second
SETTINGS: dict[str, str | int] = {"segment.bytes": 1_000, "scrub.bytes.per.second": SLOW}


@dataclass
class Shop:
    """One log on one machine, and a scrubber."""

    world: World
    machine: Machine = field(init=False)
    told: list[tuple[bytes, int, int]] = field(default_factory=list)
    refusals: list[Exception] = field(default_factory=list)
    scrubber: Scrubber | None = None
    process: Process | None = None

    def __post_init__(self) -> None:
        self.machine = self.world.add_machine("one")
        self.machine.disk.make_directory(PARENT)

    def fill(self, settings: dict[str, str | int] = SETTINGS) -> PartitionLog:
        log = self.open(settings)
        log.begin_epoch(log.epochs.latest + 1)
        for number in range(40):
            append(log, b"value %d" % number)
        return log

    def open(self, settings: dict[str, str | int]) -> PartitionLog:
        identity = PartitionIdentity("cluster", "orders", TOPIC_ID.hex(), 0)
        return PartitionLog.open(DIRECTORY, identity, settings, now_ms=NOW_MS, disk=self.machine.disk)

    def begin(self) -> None:
        async def main(env: SimEnvironment) -> None:
            self.scrubber = Scrubber(env, PARENT, self._tell)
            await self.scrubber.run()

        self.process = self.machine.start("scrubber", main)

    async def _tell(self, topic_id: bytes, partition: int, offset: int) -> None:
        self.told.append((topic_id, partition, offset))
        if self.refusals:
            raise self.refusals.pop(0)

    def reading(self, metric: Metric) -> float:
        assert self.scrubber is not None
        return next(each.value for each in self.scrubber.readings() if each.metric is metric)


@pytest.fixture
def shop() -> Iterator[Shop]:
    with World(1) as world:
        made = Shop(world)
        yield made
        if made.process is not None:
            made.process.kill()


def flip(shop: Shop, log: PartitionLog, offset: int) -> None:
    segment = log.segments.containing(offset)
    place = segment.locate(offset)
    shop.machine.disk.flip_bit(segment.path(".log"), 8 * segment.place_after(place).position - 1)


def sealed_bytes(log: PartitionLog) -> int:
    return sum(segment.size for segment in log.segments.sealed)


def test_all_that_is_sealed_is_read_once_and_no_faster_than_allowed(shop: Shop) -> None:
    log = shop.fill()
    seconds = sealed_bytes(log) / SLOW
    assert seconds > 3.0
    shop.begin()
    shop.world.run_for(0.5 * seconds)
    assert 0 < shop.reading(SCRUB_BYTES) < sealed_bytes(log)
    shop.world.run_for(1.5 * seconds + 10.0)
    assert shop.reading(SCRUB_BYTES) == sealed_bytes(log)
    shop.world.run_for(3_000.0)
    assert shop.reading(SCRUB_BYTES) == sealed_bytes(log), "it is not due again for a week"
    assert shop.reading(SCRUB_AGE_SECONDS) == pytest.approx(3_000.0, rel=0.1)
    assert not shop.told


def test_what_has_rotted_is_told_with_its_offset(shop: Shop) -> None:
    log = shop.fill()
    flip(shop, log, 13)
    shop.refusals = [InspectionUnderWay("orders", 0), OnlyCopyDamaged("orders", 0, 13, 14, "a.log", 0, "rot")]
    shop.begin()
    shop.world.run_for(60.0)
    assert shop.told == [(TOPIC_ID, 0, 13)] * 2  # asked again while the replica was busy
    assert shop.reading(SCRUB_SUSPECTS) == 1


def test_the_growing_segment_is_left_alone(shop: Shop) -> None:
    log = shop.fill()
    flip(shop, log, log.log_end_offset - 1)
    shop.begin()
    shop.world.run_for(60.0)
    assert not shop.told


def test_a_process_that_is_killed_again_and_again_gets_through(shop: Shop) -> None:
    log = shop.fill()
    flip(shop, log, log.segments.sealed[-1].base_offset)
    for _ in range(60):
        shop.begin()
        shop.world.run_for(2.5)  # enough for one segment or two
        assert shop.process is not None
        shop.process.kill()
    assert len(shop.told) == 1
    shop.machine.disk.write_file(f"{PARENT}/{PROGRESS_FILE}", b"nonsense")
    shop.begin()
    shop.world.run_for(60.0)
    assert len(shop.told) == 2


def test_it_begins_again_when_the_interval_is_over_and_never_if_so_set(shop: Shop) -> None:
    log = shop.fill({**SETTINGS, "scrub.interval.ms": 100_000})
    shop.begin()
    shop.world.run_for(60.0)
    flip(shop, log, 13)
    shop.world.run_for(30.0)
    assert not shop.told
    shop.world.run_for(200.0)
    assert shop.told
    log.close()
    never = shop.open({**SETTINGS, "scrub.interval.ms": -1})
    shop.told.clear()
    shop.world.run_for(1_000.0)
    assert not shop.told
    never.close()


def test_segments_that_go_while_they_are_read_are_no_damage(shop: Shop) -> None:
    log = shop.fill()
    shop.begin()
    shop.world.run_for(2.0)
    for segment in log.segments.sealed:
        shop.machine.disk.remove(segment.path(".log"))
    shop.world.run_for(60.0)
    for name in shop.machine.disk.list_directory(DIRECTORY):
        shop.machine.disk.remove(f"{DIRECTORY}/{name}")
    shop.machine.disk.remove_directory(DIRECTORY)
    shop.world.run_for(600.0)
    assert not shop.told


def test_a_week_is_the_default() -> None:
    assert TopicConfig().scrub_interval_ms == 7 * DAY_MS


@pytest.mark.parametrize("of_leader", [False, True])
def test_rot_that_nobody_reads_is_found_and_the_replica_is_fetched_anew(of_leader: bool) -> None:
    """In a whole cluster: housekeeping process, broker, replica, controller."""
    with World(3) as world:
        cluster = SimulatedCluster(world, has_housekeepers=True)
        cluster.form(3)
        settings = {"segment.bytes": "600", "scrub.interval.ms": "20000", "producer.id.expiration.ms": "9000000000"}
        cluster.create_topic("users", 1, 3, settings)
        writer = KeyWriter(cluster)
        client = world.add_machine("client").start("client", writer.main)
        world.run_for(15.0)
        writer.is_over = True
        assert world.run_until_idle_or(lambda: not client.is_alive, 60.0)
        victim = next(each for each in cluster.replicas if (each.leads_epoch is not None) == of_leader)
        assert victim.log is not None
        segment = victim.log.segments.sealed[1]
        cluster.homes[victim.spec.broker_id].machine.disk.flip_bit(segment.path(".log"), 8 * segment.size - 1)
        incarnation = victim.spec.incarnation

        def is_fetched_anew() -> bool:
            now = [each for each in cluster.replicas if each.spec.broker_id == victim.spec.broker_id]
            controller = cluster.serving()
            if not now or now[0].spec.incarnation == incarnation or controller is None:
                return False
            return all(len(each.isr) == 3 for each in controller.reign.changes.state.partitions.values())

        assert world.run_until_idle_or(is_fetched_anew, 300.0)
        cluster.is_over = True
