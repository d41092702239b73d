"""A log is cut, or thrown away, beside the loop: what its replica does meanwhile, and what a crash leaves (rule 35)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from raylog.actors.protocol.replication_messages import DeleteRecords
from raylog.actors.replica.follower import FollowerRole
from raylog.actors.replica.leader import LeaderRole
from tests.simulator.world.machines import Process
from tests.simulator.world.world import World
from tests.unit.actors.disk_on_the_loop import DiskWork, watched
from tests.unit.actors.replica_trio import Trio

_SLOW = frozenset(("sync", "sync_directory", "remove", "truncate", "rename", "link", "list_directory"))
_LOST = 12


@pytest.fixture
def trio() -> Iterator[Trio]:
    with World(1) as world:
        yield Trio(world, {"replica.lag.time.max.ms": "2000", "segment.bytes": "300"})
        world.run_for(0.01)  # what has just been sent arrives


def slow(found: list[DiskWork]) -> list[DiskWork]:
    return [each for each in found if each.operation in _SLOW]


def process_of(trio: Trio, broker_id: int) -> Process:
    process = trio.members[broker_id].process
    assert process is not None
    return process


def to_be_cut(trio: Trio) -> None:
    """Broker 1 led alone for a while, and has several segments that broker 2, which leads now, lacks."""
    trio.start(1, 2, 3)
    trio.elect(1, (1, 2, 3))
    trio.world.run_for(1.0)
    for number in range(3):
        trio.offset_of(trio.append(1, b"kept %d" % number))
    one = trio.members[1].machine
    trio.world.network.partition([one], [trio.members[2].machine, trio.members[3].machine])
    for number in range(_LOST):
        trio.offset_of(trio.append(1, b"lost %d" % number, acks=1))
    trio.until(lambda: trio.log(1).log_end_offset == 3 + _LOST)
    trio.elect(2, (2, 3), 2, 3)
    trio.world.run_for(0.5)
    trio.offset_of(trio.append(2, b"new"))
    assert len(trio.log(1).segments) > 3
    trio.world.network.heal()


def to_start_over(trio: Trio) -> None:
    """Broker 3 comes back, and its leader has deleted all that it has."""
    trio.start(1, 2, 3)
    trio.elect(1, (1, 2, 3))
    trio.world.run_for(1.0)
    for number in range(12):
        trio.offset_of(trio.append(1, b"old %d" % number))
    process_of(trio, 3).kill()
    trio.world.run_for(0.1)
    trio.assign(isr=(1, 2))
    trio.world.run_for(0.1)
    for value in (b"b", b"c"):
        trio.offset_of(trio.append(1, value))
    trio.answer(trio.ask(1, DeleteRecords(14, 5_000)))
    trio.offset_of(trio.append(1, b"d"))
    trio.start(3)


def is_back(trio: Trio, broker_id: int) -> bool:
    return broker_id in trio.isr


def test_a_cut_does_nothing_slow_on_the_loop(trio: Trio) -> None:
    to_be_cut(trio)
    with watched(process_of(trio, 1)) as found:
        trio.tell(1)
        trio.until(lambda: is_back(trio, 1))
    assert slow(found) == []
    assert trio.values(1) == [b"kept 0", b"kept 1", b"kept 2", b"new"]


def test_starting_over_does_nothing_slow_on_the_loop(trio: Trio) -> None:
    to_start_over(trio)
    with watched(process_of(trio, 3)) as found:
        trio.assign()
        trio.until(lambda: is_back(trio, 3))
    assert slow(found) == []
    assert (trio.values(3), trio.log(3).log_start_offset) == ([b"d"], 14)


def test_the_watch_on_the_loop_sees_what_is_slow(trio: Trio) -> None:
    to_be_cut(trio)
    with watched(process_of(trio, 1)) as found:
        trio.log(1).truncate_to(3, 0)
    assert {each.operation for each in slow(found)} >= {"sync", "sync_directory", "remove", "truncate", "rename"}


def half_cut(trio: Trio) -> None:
    """Let broker 1 have cut its log in memory, and wait for its disk."""
    to_be_cut(trio)
    trio.members[1].machine.slow_disk(500.0)
    trio.tell(1)
    trio.until(lambda: trio.log(1).cut is not None, 60.0)


def test_whoever_is_elected_while_its_log_is_cut_leads_when_that_is_over(trio: Trio) -> None:
    half_cut(trio)
    log = trio.log(1)
    trio.elect(1, (1, 2, 3))
    waiting = trio.append(1, b"of the next epoch", timeout_ms=60_000)
    while log.cut is not None:
        replica = trio.members[1].replica
        assert replica is not None
        assert replica._replica is not None
        assert not isinstance(replica._replica._role, LeaderRole)
        assert log.log_end_offset == 3
        assert log.epochs.latest < trio.epoch
        trio.world.run_for(0.001)
    trio.members[1].machine.slow_disk(1.0)
    assert trio.offset_of(waiting) == 3
    trio.until(lambda: trio.isr == (1, 2, 3))
    for broker_id in (1, 2, 3):
        assert trio.values(broker_id) == [b"kept 0", b"kept 1", b"kept 2", b"of the next epoch"]


def test_a_cut_goes_on_without_the_role_that_asked_for_it(trio: Trio) -> None:
    half_cut(trio)
    trio.elect(3, (3, 2))
    with watched(process_of(trio, 1)) as found:
        trio.members[1].machine.slow_disk(1.0)
        trio.until(lambda: is_back(trio, 1))
    assert slow(found) == []
    assert trio.values(1) == trio.values(3)


def test_a_cut_is_given_up_where_another_role_comes_before_it_is_made(trio: Trio) -> None:
    to_be_cut(trio)
    trio.members[1].machine.slow_disk(500.0)
    trio.tell(1)
    shape = trio.log(1).shape

    def waits_for_the_cut() -> bool:
        replica = trio.members[1].replica
        assert replica is not None
        assert replica._hosted is not None
        assert replica._replica is not None
        return isinstance(replica._replica._role, FollowerRole) and bool(replica._hosted._works)

    trio.until(waits_for_the_cut, 60.0)
    trio.elect(1, (1,))  # as an unclean election would
    trio.members[1].machine.slow_disk(1.0)
    trio.world.run_for(3.0)
    assert trio.log(1).shape == shape
    assert trio.log(1).epochs.latest == trio.epoch
    assert trio.values(1)[:4] == [b"kept 0", b"kept 1", b"kept 2", b"lost 0"]


def test_what_a_replica_says_of_itself_while_its_log_is_cut_holds_afterwards(trio: Trio) -> None:
    half_cut(trio)
    replica = trio.members[1].replica
    assert replica is not None
    hello = replica.hello()
    assert (hello.last_epoch, hello.log_end_offset) == (0, 3)
    trio.members[1].machine.slow_disk(1.0)
    trio.until(lambda: trio.log(1).cut is None)
    assert replica.marks().log_end_offset >= 3


@pytest.mark.parametrize("with_machine", [False, True])
@pytest.mark.parametrize("operation", ["rename", "remove", "truncate", "sync_directory", "sync", "write_at"])
@pytest.mark.parametrize("prepare", [to_be_cut, to_start_over])
def test_a_crash_in_the_middle_leaves_a_log_that_comes_back(
    trio: Trio, prepare: Callable[[Trio], None], operation: str, with_machine: bool
) -> None:
    prepare(trio)
    broker_id = 1 if prepare is to_be_cut else 3
    process = process_of(trio, broker_id)
    trio.partition_epoch += 1
    trio.tell(broker_id) if prepare is to_be_cut else trio.assign()
    log = trio.log(broker_id)
    trio.until(lambda: log.cut is not None or is_back(trio, broker_id))
    process.kill_at_disk(operation, "topic-0", with_machine=with_machine)
    trio.world.run_for(2.0)
    member = trio.members[broker_id]
    if process.is_alive:
        process.kill()
    if not member.machine.is_up:
        member.machine.restart()
    trio.start(broker_id)
    trio.assign()
    trio.until(lambda: is_back(trio, broker_id))
    leader = trio.leader
    assert trio.values(broker_id)[-1:] == trio.values(leader)[-1:]
    assert trio.log(broker_id).log_end_offset == trio.log(leader).log_end_offset
