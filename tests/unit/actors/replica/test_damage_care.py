"""Replicas whose copy is damaged: they hand over and are quarantined, or stay where nobody else has the records."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from raylog.actors.protocol.messages import Done
from raylog.actors.protocol.replication_messages import NO_EPOCH, SuspectBatch
from raylog.actors.replica.damage_care import DamageCare
from raylog.errors import (
    InspectionUnderWay,
    LogDamaged,
    NotLeader,
    OffsetOutOfRange,
    OnlyCopyDamaged,
    RaylogError,
    RemoteFailed,
)
from tests.simulator.clients.clients import records_of
from tests.simulator.world.world import World
from tests.unit.actors.replica.test_replica_faults import led_by_one, with_sealed_segments
from tests.unit.actors.replica_trio import Trio


@pytest.fixture
def trio() -> Iterator[Trio]:
    with World(1) as world:
        yield Trio(world)
        world.run_for(0.01)  # what has just been sent arrives


def flip(trio: Trio, broker_id: int, offset: int, *, in_header: bool = False) -> str:
    """A bit of the batch of `offset` on a broker's disk, in the payload or the length. Returns the file's path."""
    segment = trio.log(broker_id).segments.containing(offset)
    place = segment.locate(offset)
    end = segment.place_after(place).position
    path = segment.path(".log")
    trio.members[broker_id].machine.disk.flip_bit(path, 8 * (place.position + 11) if in_header else 8 * (end - 1))
    return str(path)


def refusal(trio: Trio, broker_id: int, message: object) -> RaylogError:
    task = trio.ask(broker_id, message)
    trio.until(task.done, 70.0)
    error = task.exception()
    assert isinstance(error, RemoteFailed)
    assert error.error is not None
    return error.error


def tell(trio: Trio, broker_id: int, offset: int) -> None:
    """As a reader does that met a wrong CRC, whatever it is answered."""
    task = trio.ask(broker_id, SuspectBatch(NO_EPOCH, offset))
    task.add_done_callback(lambda done: done.exception())


def care(trio: Trio, broker_id: int) -> DamageCare:
    replica = trio.members[broker_id].replica
    assert replica is not None
    return replica._care


def is_quarantined(trio: Trio, broker_id: int) -> bool:
    return trio.members[broker_id].machine.disk.exists("/data/topic-0/quarantine")


# --- a leader ---------------------------------------------------------------------------------------------------------


def test_a_leader_that_is_told_of_a_rotten_batch_hands_over_and_is_quarantined(trio: Trio) -> None:
    with_sealed_segments(trio, 2, 3)
    flip(trio, 1, 4)
    began = trio.world.now
    tell(trio, 1, 4)
    trio.until(lambda: trio.leader != 1)
    assert trio.world.now - began < 1.0
    trio.until(lambda: trio.members[1].ending is not None)
    assert is_quarantined(trio, 1)
    assert "damaged" in str(trio.members[1].ending)
    assert [(each.broker, each.is_damaged) for each in trio.stand_downs] == [(1, True)]
    read = trio.answer(trio.fetch(trio.leader, 4))
    assert records_of(read.payload)[0] == (4, b"4")


@pytest.mark.parametrize("in_header", [True, False])
def test_a_follower_that_pulls_a_rotten_batch_tells_the_leader(trio: Trio, in_header: bool) -> None:
    """It pulled it again and again, and no replica could ever join."""
    with_sealed_segments(trio, 2)
    trio.start(3)
    trio.tell(1, 2)
    flip(trio, 1, 4, in_header=in_header)
    trio.assign(isr=(1, 2))
    trio.until(lambda: trio.leader == 2)
    trio.until(lambda: trio.members[1].ending is not None)
    trio.have(20, 2, 3)
    assert trio.values(3) == trio.values(2)


def test_a_read_of_its_own_that_meets_damage_is_enough(trio: Trio) -> None:
    with_sealed_segments(trio, 2)
    flip(trio, 1, 4, in_header=True)
    assert isinstance(refusal_of_fetch(trio, 4), LogDamaged)
    trio.until(lambda: trio.leader == 2)
    trio.until(lambda: is_quarantined(trio, 1))


def refusal_of_fetch(trio: Trio, offset: int) -> RaylogError | None:
    task = trio.fetch(1, offset)
    trio.until(task.done)
    error = task.exception()
    return error.error if isinstance(error, RemoteFailed) else None


def test_the_growing_segment_is_looked_into_too(trio: Trio) -> None:
    led_by_one(trio, 2)
    for number in range(5):
        trio.offset_of(trio.append(1, b"%d" % number))
    flip(trio, 1, 3)
    tell(trio, 1, 3)
    trio.until(lambda: trio.leader == 2)
    trio.until(lambda: is_quarantined(trio, 1))


def test_a_sound_copy_is_said_to_be_sound_and_no_client_keeps_its_disk_busy(trio: Trio) -> None:
    with_sealed_segments(trio, 2)
    assert trio.answer(trio.ask(1, SuspectBatch(trio.epoch, 4))).message == Done()
    reads = 0
    inspect = care(trio, 1)._inspect

    async def counted(spot):  # type: ignore[no-untyped-def]
        nonlocal reads
        reads += 1
        return await inspect(spot)

    care(trio, 1)._inspect = counted  # type: ignore[method-assign]
    for _ in range(200):
        assert isinstance(refusal(trio, 1, SuspectBatch(trio.epoch, 4)), InspectionUnderWay)
    assert reads == 0
    trio.world.run_for(2.1)
    assert trio.answer(trio.ask(1, SuspectBatch(trio.epoch, 4))).message == Done()
    assert reads == 1
    assert not trio.stand_downs


def test_who_is_no_leader_says_so_and_what_is_not_there_is_out_of_range(trio: Trio) -> None:
    with_sealed_segments(trio, 2)
    assert isinstance(refusal(trio, 2, SuspectBatch(trio.epoch, 4)), NotLeader)
    assert isinstance(refusal(trio, 1, SuspectBatch(trio.epoch, 20)), OffsetOutOfRange)


# --- the only copy ----------------------------------------------------------------------------------------------------


def test_the_only_copy_stays_and_serves_all_but_what_is_damaged(trio: Trio) -> None:
    with_sealed_segments(trio)
    path = flip(trio, 1, 4)
    error = refusal(trio, 1, SuspectBatch(trio.epoch, 4))
    assert isinstance(error, OnlyCopyDamaged)
    assert (error.offset, error.next_offset, error.path) == (4, 5, path)
    assert "raylog topic trim" in str(error)
    assert isinstance(refusal_of_fetch(trio, 4), LogDamaged)
    assert records_of(trio.answer(trio.fetch(1, 5)).payload)[0] == (5, b"5")
    assert trio.offset_of(trio.append(1, b"more", timeout_ms=5_000)) == 20
    assert not is_quarantined(trio, 1)
    assert trio.members[1].ending is None


def test_the_only_copy_goes_as_soon_as_another_one_could_lead(trio: Trio) -> None:
    with_sealed_segments(trio, 2)
    assert trio.members[2].process is not None
    trio.members[2].process.kill()
    trio.assign(isr=(1, 2))  # nobody has noticed
    flip(trio, 1, 4)
    assert isinstance(refusal(trio, 1, SuspectBatch(trio.epoch, 4)), OnlyCopyDamaged)
    assert not is_quarantined(trio, 1)
    trio.start(2)
    trio.until(lambda: trio.leader == 2)
    trio.until(lambda: is_quarantined(trio, 1))


# --- a follower -------------------------------------------------------------------------------------------------------


def test_a_follower_that_is_damaged_leaves_without_a_change_of_leaders(trio: Trio) -> None:
    with_sealed_segments(trio, 2)
    flip(trio, 2, 4)
    tell(trio, 2, 4)
    trio.until(lambda: is_quarantined(trio, 2) and trio.isr == (1,))
    assert trio.leader == 1


def test_of_two_damaged_replicas_one_stays(trio: Trio) -> None:
    with_sealed_segments(trio, 2)
    flip(trio, 1, 4)
    flip(trio, 2, 9)
    tell(trio, 1, 4)
    tell(trio, 2, 9)
    trio.world.run_for(3.0)
    assert [is_quarantined(trio, each) for each in (1, 2)].count(True) == 1
    assert not is_quarantined(trio, trio.leader)
