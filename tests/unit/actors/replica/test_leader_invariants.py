"""What a leader says of itself when something in it is broken, and that it says nothing when all is well."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from raylog.actors.replica.leader import LeaderRole
from raylog.actors.replica.rules.replication import Leadership, RecordedPartition
from tests.simulator.world.world import World
from tests.unit.actors.replica_trio import Trio

ME, SECOND, THIRD = (1, 10), (2, 20), (3, 30)


def leadership(*isr: tuple[int, int]) -> Leadership:
    lead = Leadership(ME, RecordedPartition(5, 7, isr or (ME, SECOND, THIRD), (ME, SECOND, THIRD), 2), 0, 0)
    lead.follower_holds(SECOND, 8, 10, 1)
    lead.follower_holds(THIRD, 6, 10, 1)
    return lead


def test_a_leadership_waits_for_the_maximal_isr() -> None:
    lead = leadership(ME, SECOND)
    lead.propose((ME, SECOND, THIRD))
    assert list(lead.broken_invariants()) == []
    lead._waits_for = (SECOND,)
    assert "the high watermark waits for" in "; ".join(lead.broken_invariants())


def test_a_leadership_goes_by_the_progress_of_present_incarnations() -> None:
    lead = leadership()
    present = lead._awaited
    newer = replace(lead.recorded, partition_epoch=8, incarnations=(ME, SECOND, (3, 31)))
    lead.record(newer, 2)
    assert list(lead.broken_invariants()) == []
    assert lead.high_watermark(0, 10) == 0  # nothing is known of the new one
    lead._awaited = present
    assert "goes by the progress of others" in "; ".join(lead.broken_invariants())


def test_a_leadership_knows_whether_its_recorded_isr_is_too_small() -> None:
    lead = leadership()
    lead.record(replace(lead.recorded, isr=(ME,), partition_epoch=8), 2)
    assert (lead.is_under_min_isr, list(lead.broken_invariants())) == (True, [])
    lead.is_under_min_isr = False
    assert "is too small" in "; ".join(lead.broken_invariants())


def test_a_leader_is_in_its_recorded_isr() -> None:
    assert "is not in the recorded ISR" in "; ".join(leadership(SECOND, THIRD).broken_invariants())


def test_a_high_watermark_is_covered_by_all_that_it_waits_for() -> None:
    lead = leadership()
    assert [lead.is_covered(offset, 10) for offset in (6, 7)] == [True, False]
    assert not lead.is_covered(6, 5)
    lead.recorded = replace(lead.recorded, min_insync=4)
    assert not lead.is_covered(6, 10)


@pytest.fixture
def leader() -> Iterator[LeaderRole]:
    """With an append that waits."""
    with World(1) as world:
        trio = Trio(world)
        trio.start(1, 2)
        trio.elect(1, (1, 2))
        world.run_for(1.0)
        trio.offset_of(trio.append(1, b"a"))
        process = trio.members[2].process
        assert process is not None
        process.pause()
        trio.append(1, b"b")
        replica = trio.members[1].replica
        assert replica is not None
        assert replica._replica is not None
        role = replica._replica._role
        assert isinstance(role, LeaderRole)
        trio.until(lambda: len(role._appends) == 1)
        yield role


def test_a_sound_leader_has_nothing_to_say(leader: LeaderRole) -> None:
    assert list(leader.broken_invariants()) == []
    assert leader.may_stand_at(1)
    assert not leader.may_stand_at(2)


def high_watermark_passes_a_waiting_append(role: LeaderRole) -> None:
    role._marks.high_watermark = 2


def bytes_of_nothing(role: LeaderRole) -> None:
    role._appends._heap = []


def other_epoch_recorded(role: LeaderRole) -> None:
    role._leadership.recorded = replace(role._leadership.recorded, leader_epoch=role.epoch + 1)


def other_epoch_written_down(role: LeaderRole) -> None:
    role._log.begin_epoch(role.epoch + 1)


def ended_and_still_waited_at(role: LeaderRole) -> None:
    role._ended = True


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (high_watermark_passes_a_waiting_append, "an append up to 2 waits, and the high watermark is 2"),
        (bytes_of_nothing, "are counted as waiting"),
        (other_epoch_recorded, "recorded is 1"),
        (other_epoch_written_down, "written down is 1"),
        (ended_and_still_waited_at, "1 appends and 0 fetches wait"),
    ],
)
def test_a_broken_leader_says_what_is_broken(
    leader: LeaderRole, break_it: Callable[[LeaderRole], None], said: str
) -> None:
    break_it(leader)
    assert said in "; ".join(leader.broken_invariants())
