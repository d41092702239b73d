"""Compaction beside the replicas: what comes of it, and that its end at any moment costs nothing but time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from raylog.actors.housekeeping import calls
from raylog.actors.housekeeping.compaction_messages import compact_log, log_compacted, plan_of, report_of
from raylog.actors.housekeeping.housekeeper import MAX_WAITING
from raylog.actors.kernel.stream_interface import Response
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.housekeeping_messages import CompactLog, LogCompacted
from raylog.actors.protocol.messages import pack, unpack
from raylog.errors import RemoteFailed
from raylog.storage.compaction import plan_files
from raylog.storage.compaction.cleaner import CompactionReport, run_compaction
from raylog.storage.compaction.key_map import MemoryBudget
from raylog.storage.compaction.last_writes import LastWriteRows
from raylog.storage.compaction.plan import CompactionPlan
from raylog.storage.segment.producer_state import ProducerEntry
from tests.simulator.clients.clients import refuse
from tests.simulator.world.machines import Process
from tests.simulator.world.world import World
from tests.unit.actors.tidy_trio import REPLICA_DIRECTORY, TidyTrio

ALL = (1, 2, 3)
ROUNDS = 15
RECORDS = 4 * ROUNDS


@pytest.fixture
def trio() -> Iterator[TidyTrio]:
    with World(1) as world:
        yield TidyTrio(world)
        world.run_for(0.01)


def led_by_one(trio: TidyTrio) -> TidyTrio:
    trio.start(*ALL)
    trio.elect(1, ALL)
    trio.world.run_for(1.0)
    return trio


def is_compacted(trio: TidyTrio, *brokers: int) -> bool:
    """What is left is the newest values, in the growing segment and in the last that was compacted."""
    return all(len(trio.records(each)) <= 12 for each in brokers)


# --- what comes of it -------------------------------------------------------------------------------------------------


def test_every_replica_is_compacted_and_all_agree(trio: TidyTrio) -> None:
    led_by_one(trio)
    for each in ALL:
        trio.start_housekeeper(each)
    newest = trio.put_rounds(1, ROUNDS)
    before = trio.log(1).size_bytes
    trio.until(lambda: is_compacted(trio, *ALL), 120.0)
    trio.world.run_for(10.0)
    for each in ALL:
        assert trio.newest(each) == newest
        assert trio.log(each).log_end_offset == RECORDS
        assert trio.log(each).size_bytes < before / 2
        assert not trio.files(each, ".cleaned")
        assert not trio.files(each, ".swap")
        assert not trio.files(each, ".deleted")


def test_a_log_that_is_not_compacted_is_left_alone(trio: TidyTrio) -> None:
    trio.settings["cleanup.policy"] = "delete"
    led_by_one(trio)
    trio.start_housekeeper(1)
    trio.put_rounds(1, ROUNDS)
    trio.world.run_for(120.0)
    assert len(trio.records(1)) == RECORDS


def test_without_a_housekeeper_a_log_waits_for_one(trio: TidyTrio) -> None:
    led_by_one(trio)
    newest = trio.put_rounds(1, ROUNDS)
    trio.world.run_for(60.0)
    assert len(trio.records(1)) == RECORDS
    trio.start_housekeeper(1)
    trio.until(lambda: is_compacted(trio, 1), 1_500.0)
    assert trio.newest(1) == newest


def test_records_that_are_too_young_wait(trio: TidyTrio) -> None:
    trio.settings["min.compaction.lag.ms"] = "120000"
    led_by_one(trio)
    trio.start_housekeeper(1)
    trio.put_rounds(1, ROUNDS)
    trio.world.run_for(60.0)
    assert len(trio.records(1)) == RECORDS
    trio.until(lambda: is_compacted(trio, 1), 200.0)


# --- ends at any moment -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", [".log.", ".index.", ".txnindex."])
def test_a_housekeeper_that_dies_half_way_costs_time_only(trio: TidyTrio, part: str) -> None:
    led_by_one(trio)
    first = trio.start_housekeeper(1)
    first.kill_at_disk("write_at", part, skip=1)
    newest = trio.put_rounds(1, ROUNDS)
    trio.until(lambda: not first.is_alive, 120.0)
    trio.world.run_for(5.0)
    assert trio.newest(1) == newest
    assert not trio.files(1, ".cleaned")
    trio.start_housekeeper(1)
    trio.until(lambda: is_compacted(trio, 1), 300.0)
    assert trio.newest(1) == newest


@pytest.mark.parametrize("operation", ["rename", "sync_directory"])
@pytest.mark.parametrize("skip", [0, 2, 5, 9])
@pytest.mark.parametrize("with_machine", [False, True])
def test_a_replica_that_dies_while_it_installs_opens_again(
    trio: TidyTrio, operation: str, skip: int, with_machine: bool
) -> None:
    led_by_one(trio)
    newest = trio.put_rounds(1, ROUNDS)
    trio.start_housekeeper(2)
    member = trio.members[2]
    assert member.process is not None
    member.process.kill_at_disk(operation, REPLICA_DIRECTORY, skip=skip, with_machine=with_machine)
    died = member.process
    trio.until(lambda: not died.is_alive, 200.0)
    trio.world.run_for(0.5)
    if with_machine:
        member.machine.restart()
    trio.start(2)
    trio.assign()
    trio.have(RECORDS, 2)
    assert trio.newest(2) == newest
    assert not trio.files(2, ".swap")
    if not with_machine:
        trio.until(lambda: is_compacted(trio, 2), 300.0)
        assert trio.newest(2) == newest


def test_one_that_goes_on_for_an_earlier_incarnation_is_harmless(
    trio: TidyTrio, monkeypatch: pytest.MonkeyPatch
) -> None:
    led_by_one(trio)
    newest = trio.put_rounds(1, ROUNDS)
    late = trio.start_housekeeper(2)
    begun: list[object] = []
    off_loop = late.off_loop

    def note(work: Callable[[], object]) -> asyncio.Future[object]:
        begun.append(work)
        return off_loop(work)

    monkeypatch.setattr(late, "off_loop", note)
    trio.members[2].machine.slow_disk(1_000.0)
    trio.until(lambda: bool(begun), 100.0)
    late.pause()
    trio.members[2].machine.slow_disk(1.0)
    replica = trio.members[2].process
    assert replica is not None
    replica.kill()
    trio.start(2)
    trio.assign()
    trio.watches[2]._process._pid = None  # nobody kills the old one: its broker has forgotten it
    trio.start_housekeeper(2)
    late.resume()
    trio.until(lambda: is_compacted(trio, 2), 300.0)
    trio.world.run_for(30.0)
    assert trio.newest(2) == newest


def test_damage_that_the_log_confirms_takes_it_offline(trio: TidyTrio) -> None:
    led_by_one(trio)
    trio.put_rounds(1, ROUNDS)
    path = f"{REPLICA_DIRECTORY}/{trio.files(2, '.log')[1]}"
    trio.members[2].machine.disk.flip_bit(path, 8 * 400)
    trio.start_housekeeper(2)
    trio.until(lambda: trio.members[2].ending is not None, 200.0)
    ending = trio.members[2].ending
    assert ending is not None
    assert "damaged" in ending
    assert trio.files(2, "quarantine")


# --- what it is asked -------------------------------------------------------------------------------------------------


def plan_from(trio: TidyTrio, broker_id: int) -> CompactLog:
    log = trio.log(broker_id)
    plan = log.plan_compaction(trio.members[broker_id].machine.wall_ms(), force=True)
    assert plan is not None
    plan_files.save(log.disk, plan, LastWriteRows())
    return compact_log(plan)


def ask(trio: TidyTrio, housekeeper: Process, message: CompactLog, times: int = 1) -> list[object]:
    """As a replica does, but as often as one likes."""
    endpoints = trio.watches[1]._endpoints
    client = trio.members[1].machine.start("asking", _idle)

    async def request() -> list[object]:
        stream = await client.environment.dial(Endpoint.parse(endpoints[0]), "replica", refuse)
        asked = [stream.request(message, timeout=60) for _ in range(times)]
        return [await _outcome(each) for each in asked]

    task = client.run(request())
    trio.until(task.done, 70.0)
    return task.result()


async def _outcome(answer: asyncio.Future[Response]) -> object:
    try:
        return (await answer).message
    except RemoteFailed as failed:
        return failed.name


async def _idle(_: object) -> None:
    await asyncio.Event().wait()


def test_a_directory_that_is_not_its_brokers_is_refused(trio: TidyTrio) -> None:
    led_by_one(trio)
    housekeeper = trio.start_housekeeper(1)
    trio.put_rounds(1, ROUNDS)
    message = plan_from(trio, 1)
    for directory in ("/etc/topic-0", "/data", "/data/../etc"):
        assert ask(trio, housekeeper, replace(message, directory=directory)) == ["InvalidRequest"]


def test_more_than_it_can_hold_is_refused_and_the_rest_is_done(trio: TidyTrio) -> None:
    led_by_one(trio)
    housekeeper = trio.start_housekeeper(1)
    trio.put_rounds(1, ROUNDS)
    trio.members[1].machine.slow_disk(100.0)
    outcomes = ask(trio, housekeeper, plan_from(trio, 1), MAX_WAITING + 10)
    assert 5 <= outcomes.count("HousekeeperBusy") <= 10  # one or more have been taken up meanwhile
    assert len([each for each in outcomes if isinstance(each, LogCompacted)]) >= MAX_WAITING


def test_plan_and_report_travel_unchanged(trio: TidyTrio) -> None:
    led_by_one(trio)
    trio.put_rounds(1, ROUNDS)
    log = trio.log(1)
    plan = log.plan_compaction(0, force=True)
    assert plan is not None
    asked = unpack(*pack(compact_log(plan)))
    assert isinstance(asked, CompactLog)
    assert plan_of(asked, plan.aborted_later, plan.last_writes) == plan
    report = run_compaction(log.disk, plan, MemoryBudget())
    answered = unpack(*pack(log_compacted(report)))
    assert isinstance(answered, LogCompacted)
    assert report_of(answered, plan) == report
    assert isinstance(report, CompactionReport)


def test_a_plan_whose_files_are_gone_is_outdated(trio: TidyTrio) -> None:
    led_by_one(trio)
    housekeeper = trio.start_housekeeper(1)
    trio.put_rounds(1, ROUNDS)
    message = plan_from(trio, 1)
    for path in [path for path in trio.members[1].machine.disk.files() if message.run in path]:
        trio.members[1].machine.disk.remove(path)
    assert ask(trio, housekeeper, message) == ["CompactionOutdated"]
    assert ask(trio, housekeeper, replace(message, segments=())) == ["InvalidRequest"]
    assert ask(trio, housekeeper, replace(message, run="../x")) == ["InvalidRequest"]


@pytest.mark.timeout(300)
def test_a_log_that_knows_a_million_producers_is_compacted(trio: TidyTrio, monkeypatch: pytest.MonkeyPatch) -> None:
    """All were named in the message, which passed 16 MiB near a million: that log was never compacted again."""
    led_by_one(trio)
    sent: list[int] = []

    def note(plan: CompactionPlan) -> CompactLog:
        message = compact_log(plan)
        sent.append(len(pack(message)[2]))
        return message

    monkeypatch.setattr(calls, "compact_log", note)
    newest = trio.put_rounds(1, ROUNDS)
    log, idle = trio.log(1), ProducerEntry(0, trio.members[1].machine.wall_ms())
    log.producers._producers.update(dict.fromkeys(range(10**6, 2 * 10**6), idle))
    before = log.size_bytes
    trio.start_housekeeper(1)
    trio.until(lambda: trio.log(1).size_bytes < before / 2, 300.0)
    assert trio.newest(1) == newest
    assert sent
    assert max(sent) < 10_000
    trio.until(lambda: not trio.files(1, ".cleaned"), 30.0)


# --- the broker's watch -----------------------------------------------------------------------------------------------


def test_one_that_does_not_turn_is_killed_and_one_that_was_replaced_too(trio: TidyTrio) -> None:
    led_by_one(trio)
    stopped = trio.start_housekeeper(1)
    stopped.pause()
    trio.until(lambda: not stopped.is_alive, 30.0)
    trio.world.run_for(0.1)
    assert not trio.watches[1]._found().message.endpoints  # type: ignore[attr-defined]
    second = trio.start_housekeeper(1)
    third = trio.start_housekeeper(1)
    assert not second.is_alive
    assert third.is_alive


def test_one_that_is_started_on_demand_ends_when_it_has_nothing_to_do(trio: TidyTrio) -> None:
    trio.idle_seconds = 20.0
    led_by_one(trio)
    asked = _asked_for(trio)
    trio.world.run_for(60.0)
    assert not asked.done(), "there is nothing to compact"
    newest = trio.put_rounds(1, ROUNDS)
    trio.until(asked.done, 60.0)
    assert asked.result()
    first = trio.start_housekeeper(1)  # the log that has asked still waits for it
    trio.until(lambda: is_compacted(trio, 1), 60.0)
    assert trio.newest(1) == newest
    trio.until(lambda: not first.is_alive, 60.0)
    again = _asked_for(trio)
    trio.world.run_for(60.0)
    assert not again.done()


def _asked_for(trio: TidyTrio) -> asyncio.Task[bool]:
    """Ask at the first broker as what starts the process does."""
    broker = trio.members[1].broker
    assert broker is not None
    return broker.run(trio.watches[1].wanted(600.0))


def test_it_ends_when_it_is_told_to_and_when_it_has_no_broker_for_long(trio: TidyTrio) -> None:
    led_by_one(trio)
    first = trio.start_housekeeper(1)
    broker = trio.members[1].broker
    assert broker is not None
    broker.run(trio.watches[1].stop())
    trio.until(lambda: not first.is_alive, 5.0)
    second = trio.start_housekeeper(1)
    broker.kill()
    trio.world.run_for(50.0)
    assert second.is_alive
    trio.until(lambda: not second.is_alive, 30.0)
