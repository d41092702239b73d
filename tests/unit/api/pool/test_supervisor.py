"""The supervisor with actors in memory: what it makes of reports, deaths, offsets and requests."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest

from raylog.api.connection.records import TopicPartition
from raylog.api.consumer.rules.consumer_options import ConsumerSettings
from raylog.api.pool.rules.fleet import ANSWER_SECONDS, FAILED_STARTS, Phase
from raylog.api.pool.rules.load import WorkDone
from raylog.api.pool.rules.pool_options import OURS, PoolOptions, PoolSettings, PoolSpec, parse
from raylog.api.pool.supervisor import Gone, Offsets, Supervisor
from raylog.api.pool.work_meter import WorkCounts
from raylog.api.pool.worker import Orders, WorkerReport
from raylog.errors import InvalidConfig, RaylogError, RequestTimedOut, UnknownConfig

PLACES = [TopicPartition("t", number) for number in range(8)]


class FakeStore:
    def __init__(self, spec: PoolSpec) -> None:
        self.spec: PoolSpec | None = spec

    def load(self) -> PoolSpec | None:
        return self.spec

    def save(self, spec: PoolSpec) -> None:
        self.spec = spec

    def clear(self) -> None:
        self.spec = None


class FakeActors:
    """Actors that come up with the next step, and do `speed` records a second each, all partitions alike."""

    def __init__(self) -> None:
        self.there: dict[str, WorkerReport] = {}
        self.dead: dict[str, str] = {}
        self.bad: set[bytes] = set()
        self.silent: set[str] = set()
        self.stopped: list[str] = []
        self.killed: list[str] = []
        self.orders = Orders()
        self.wanted: list[int] = []
        self.buried: list[str] = []
        self.lag = 0
        self.speed = 10

    def names(self) -> Collection[str]:
        return list(self.there)

    def start(self, name: str, spec: PoolSpec, orders: Orders) -> None:
        assert orders is not None
        if spec.code in self.bad:
            self.dead[name] = "no model"
        self.there[name] = WorkerReport(name, spec.version, Phase.STARTING, WorkCounts())

    def ask(self, names: Collection[str], orders: Orders) -> Mapping[str, WorkerReport | Gone]:
        self.orders = orders
        found: dict[str, WorkerReport | Gone] = {}
        for name in set(names) - self.silent:
            if name in self.dead:
                self.there.pop(name, None)
                found[name] = Gone(self.dead[name])
                continue
            found[name] = self.there[name] = self._worked(self.there[name])
        return found

    def _worked(self, report: WorkerReport) -> WorkerReport:
        if report.phase is Phase.STOPPING:
            return replace(report, phase=Phase.ENDED)
        if report.phase is not Phase.RUNNING:
            after = Phase.RUNNING if report.phase is Phase.STARTING else report.phase
            return replace(report, phase=after, came_up=True)
        count = min(self.speed, self.lag)
        self.lag -= count
        done = report.counts.done
        if count:
            done = WorkDone(done.full_records + count, done.full_seconds + 1, 1)
        counts = replace(report.counts, handled=report.counts.handled + count, done=done, partitions=1)
        return replace(report, counts=counts)

    def stop(self, name: str) -> None:
        self.stopped.append(name)
        self.there[name] = replace(self.there[name], phase=Phase.STOPPING)

    def bury(self, name: str, spec: PoolSpec) -> None:
        assert name not in self.there, "it lives"
        self.buried.append(name)

    def kill(self, name: str) -> None:
        self.killed.append(name)
        self.there.pop(name, None)

    def want(self, count: int, spec: PoolSpec) -> None:
        self.wanted.append(count)


class World:
    def __init__(self, fakes: FakeActors | None = None, **options: Any) -> None:
        chosen = PoolOptions.parse({"down_after_seconds": 6, **options})
        self.fakes = fakes or FakeActors()
        self.store = FakeStore(PoolSpec("c", "g", ("t",), chosen, b"first"))
        self.now = 0.0
        self.trouble: RaylogError | None = None
        self.supervisor = self.begin()

    def begin(self) -> Supervisor:
        spec = self.store.load()
        assert spec is not None
        return Supervisor(spec, self.fakes, self.look, self.store, lambda: self.now, lambda: self.now)

    def look(self) -> Offsets:
        if self.trouble is not None:
            raise self.trouble
        ends = dict.fromkeys(PLACES, 10**6)
        lags = [(self.fakes.lag + number) // len(PLACES) for number in range(len(PLACES))]
        return Offsets({}, ends, {place: ends[place] - lag for place, lag in zip(PLACES, reversed(lags), strict=True)})

    def run(self, seconds: int = 10) -> None:
        for _ in range(seconds):
            self.now += 1
            self.supervisor.step()

    @property
    def phases(self) -> list[Phase]:
        return [each.phase for each in self.fakes.there.values()]


def test_a_backlog_makes_it_grow_and_the_end_of_it_shrink_to_none() -> None:
    world = World(max_actors=5)
    world.run()
    assert (world.fakes.there, world.supervisor.describe().state) == ({}, "idle")
    world.fakes.lag = 2_000
    world.run(20)
    assert world.phases == [Phase.RUNNING] * 5
    assert max(world.fakes.wanted) == 5, "nodes are asked for"
    world.run(80)
    told = world.supervisor.describe()
    assert (told.state, told.wanted, told.lag, told.handled, told.deaths) == ("idle", 0, 0, 2_000, 0)
    assert world.fakes.there == {}


def test_actors_that_die_are_replaced_and_counted() -> None:
    world = World(min_actors=3)
    world.run()
    world.fakes.dead[next(iter(world.fakes.there))] = "killed"
    world.run(5)
    told = world.supervisor.describe()
    assert (told.running, told.deaths) == (3, 1)
    assert world.fakes.buried == list(world.fakes.dead)
    assert any("has died: killed" in each.text for each in told.events)


def test_a_record_that_two_careful_actors_died_with_is_poison() -> None:
    world = World(min_actors=1, max_actors=1)
    world.fakes.lag = 10**5
    for deaths in range(4):
        world.run(20)
        (name,) = [each for each in world.fakes.there if each not in world.fakes.dead][:1]
        assert world.fakes.orders.is_careful == (deaths in (2, 3)), deaths
        if world.fakes.orders.is_careful:
            world.supervisor.note(name, ("t", 0, 10**6 - 1))
        world.fakes.dead[name] = "segmentation fault"
        world.run(1)
    world.run(3)
    assert world.fakes.orders.poison == {("t", 0, 10**6 - 1)}
    world.supervisor = world.begin()
    world.run(2)
    assert world.fakes.orders.poison == {("t", 0, 10**6 - 1)}, "a supervisor that begins again knows of it"
    world.fakes.lag = 0
    world.run(3)
    assert world.fakes.orders.poison == set(), "it is committed"


def test_a_handler_that_gives_up_halts_the_pool_until_there_is_another() -> None:
    world = World(min_actors=2)
    world.run()
    name = next(iter(world.fakes.there))
    world.fakes.there[name] = replace(world.fakes.there[name], phase=Phase.HALTED, error="HandlerFailed: bad")
    world.run()
    told = world.supervisor.describe()
    assert (told.state, told.problem, told.actors, told.deaths) == ("halted", "HandlerFailed: bad", (), 0)
    assert world.supervisor.update(b"second") == 2
    world.run()
    told = world.supervisor.describe()
    assert (told.state, told.problem, told.running, told.version) == ("running", "", 2, 2)


def test_a_handler_is_rolled_out_and_one_that_never_comes_up_is_taken_back() -> None:
    world = World(min_actors=3)
    world.run()
    world.supervisor.update(b"second")
    for _ in range(30):
        world.run(1)
        assert world.phases.count(Phase.RUNNING) >= 3 or Phase.STOPPING in world.phases
    assert {each.version for each in world.supervisor.describe().actors} == {2}
    world.fakes.bad.add(b"third")
    world.supervisor.update(b"third")
    for _ in range(60):
        world.run(1)
        assert world.phases.count(Phase.RUNNING) >= 2
    told = world.supervisor.describe()
    assert (told.version, told.running, {each.version for each in told.actors}) == (4, 3, {4})
    assert "version 3 of the handler was taken back" in told.problem
    assert world.store.spec is not None
    assert (world.store.spec.code, world.store.spec.version) == (b"second", 4)


def failing_starts(world: World, count: int) -> None:
    """Let so many actors of the newest version die before they come up."""
    died = world.supervisor.describe().deaths
    while world.supervisor.describe().deaths < died + count:
        world.run(1)
        assert world.now < 1_000


def test_starts_that_failed_before_an_update_do_not_count_against_it() -> None:
    world = World(min_actors=2)
    world.run()
    world.fakes.bad |= {b"second", b"third"}
    world.supervisor.update(b"second")
    failing_starts(world, FAILED_STARTS - 1)
    assert world.supervisor.update(b"third") == 3
    failing_starts(world, FAILED_STARTS - 1)
    assert world.supervisor.describe().version == 3, "it has failed twice itself"
    failing_starts(world, 1)
    world.run(60)
    told = world.supervisor.describe()
    assert (told.version, told.running) == (4, 2)
    assert world.store.spec is not None
    assert world.store.spec.code == b"first", "which has worked; the second has not"


def test_a_handler_that_has_worked_is_never_taken_back() -> None:
    world = World(min_actors=1)
    world.run()
    world.supervisor.update(b"second")
    world.run(20)
    assert world.store.spec is not None
    assert (world.store.spec.is_proven, world.store.spec.former_code) == (True, None)
    world.fakes.bad.add(b"second")  # what it needs is away
    world.fakes.dead[next(iter(world.fakes.there))] = "its node"
    failing_starts(world, FAILED_STARTS + 2)
    told = world.supervisor.describe()
    assert (told.version, world.store.spec.code) == (2, b"second")


def test_a_halt_and_a_stop_outlive_the_supervisor() -> None:
    world = World(min_actors=2)
    world.run()
    name = next(iter(world.fakes.there))
    world.fakes.there[name] = replace(world.fakes.there[name], phase=Phase.HALTED, error="HandlerFailed: bad")
    world.run()
    world.supervisor = world.begin()
    world.run()
    told = world.supervisor.describe()
    assert (told.state, told.problem, told.actors) == ("halted", "HandlerFailed: bad", ())
    world.supervisor.scale(1, 2)
    world.supervisor = world.begin()
    world.run()
    assert world.supervisor.describe().running == 1, "it goes on"
    world.supervisor.stop()
    world.supervisor = world.begin()
    world.run()
    assert bool(world.supervisor.is_over)
    assert (world.fakes.there, world.store.spec) == ({}, None)


def test_a_stop_of_which_nobody_is_left_clears_the_store_all_the_same() -> None:
    world = World()
    world.supervisor.stop()
    world.supervisor = world.begin()
    assert bool(world.supervisor.is_over) is False, "the store is not cleared yet"
    world.run(1)
    assert bool(world.supervisor.is_over)
    assert world.store.spec is None


def test_actors_lost_or_killed_while_they_stop_are_removed_from_their_group() -> None:
    world = World(min_actors=3, stop_timeout_seconds=5.0)
    world.run()
    lost, stuck, ending = world.fakes.there
    world.supervisor.stop()
    world.run(1)
    world.fakes.dead[lost] = "its node"
    world.fakes.silent.add(stuck)
    world.run(20)
    assert bool(world.supervisor.is_over)
    assert stuck in world.fakes.killed
    assert sorted(world.fakes.buried) == sorted([lost, stuck])
    assert ending not in world.fakes.buried, "it has left by itself"
    assert world.supervisor.describe().deaths == 0


def test_an_actor_that_ended_itself_over_a_stuck_handler_is_removed_once_it_is_killed() -> None:
    world = World(min_actors=1)
    world.run()
    (name,) = world.fakes.there
    error = "TimeoutError: its handler has not returned for 300 s"
    world.fakes.there[name] = replace(world.fakes.there[name], phase=Phase.ENDED, error=error)
    world.run()
    assert world.fakes.buried == [name]
    assert (world.supervisor.describe().running, world.supervisor.describe().deaths) == (1, 1)


def test_a_found_actor_that_misses_the_first_question_is_stopped_and_not_killed() -> None:
    world = World(min_actors=3)
    world.run()
    world.fakes.silent.update(world.fakes.there)
    world.supervisor.scale(0, 1)
    world.supervisor = world.begin()
    world.run(1)
    world.supervisor.stop()
    world.run(1)
    assert (len(world.fakes.stopped), world.fakes.killed) == (3, [])
    world.fakes.silent.clear()
    world.run()
    assert bool(world.supervisor.is_over)
    assert world.fakes.buried == []


def test_a_found_actor_that_never_answers_is_replaced() -> None:
    world = World(min_actors=2)
    world.run()
    silent = next(iter(world.fakes.there))
    world.fakes.silent.add(silent)
    world.supervisor = world.begin()
    world.run(int(ANSWER_SECONDS) - 1)
    assert world.fakes.killed == []
    world.run(10)
    assert (world.fakes.killed, world.fakes.buried) == ([silent], [silent])
    assert world.supervisor.describe().running == 2


def test_a_supervisor_that_begins_again_goes_on_with_what_there_is() -> None:
    world = World()
    world.fakes.lag = 3_000
    world.run(12)
    before = set(world.fakes.there)
    world.supervisor.update(b"second")
    world.supervisor = world.begin()
    world.run(2)
    assert before <= set(world.fakes.there), "nobody is stopped for that"
    world.run(60)
    assert {each.version for each in world.fakes.there.values()} <= {2}


def test_without_offsets_the_number_stays_and_the_dead_are_replaced() -> None:
    world = World()
    world.fakes.lag = 10_000
    world.run(12)
    count = len(world.fakes.there)
    assert count > 1
    world.trouble = RequestTimedOut("a leader", 10)
    world.fakes.dead[next(iter(world.fakes.there))] = "its node"
    world.run(60)
    told = world.supervisor.describe()
    assert (len(world.fakes.there), told.running) == (count, count)
    assert "a leader" in told.problem


def test_a_stop_ends_all_and_clears_the_store() -> None:
    world = World(min_actors=3)
    world.run()
    world.supervisor.stop()
    assert bool(world.supervisor.is_over) is False
    world.run()
    assert bool(world.supervisor.is_over)
    assert (world.fakes.there, world.store.spec) == ({}, None)
    world.supervisor.stop()
    assert world.store.spec is None, "it is asked again while its process ends"


def test_other_bounds_hold_from_the_next_step_on() -> None:
    world = World(min_actors=1, max_actors=2)
    world.supervisor.scale(3, 6)
    world.run()
    assert world.supervisor.describe().running == 3
    with pytest.raises(InvalidConfig):
        world.supervisor.scale(3, 2)
    world.supervisor.scale(0, 2)
    world.run(30)
    assert world.fakes.there == {}


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"max_actors": 0}, InvalidConfig), ({"min_actors": 11}, InvalidConfig), ({"takes": "rows"}, InvalidConfig),
        ({"concurrency": 3, "takes": "batch"}, InvalidConfig), ({"group_id": "g"}, InvalidConfig),
        ({"actor_options": {"num_cpus": 3}}, InvalidConfig), ({"actor_options": 3}, InvalidConfig),
        ({"auto_offset_reset": "none"}, InvalidConfig), ({"most_actors": 3}, UnknownConfig),
        ({"exactly_once": True, "isolation_level": "read_uncommitted"}, InvalidConfig),
    ],
)  # fmt: skip
def test_wrong_options_are_refused(given: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        parse(given)


def test_all_that_may_be_given_is_known_to_type_checkers() -> None:
    own = {field.name for field in dataclasses.fields(PoolOptions)}
    assert set(PoolSettings.__annotations__) == own | (set(ConsumerSettings.__annotations__) - OURS)


def test_options_are_the_pools_or_those_of_its_consumers() -> None:
    options, for_consumer, begins = parse({"max_actors": 3, "max_poll_records": 7, "auto_offset_reset": "latest"})
    assert (options.max_actors, begins) == (3, "latest")
    assert for_consumer == {"max_poll_records": 7, "auto_offset_reset": "earliest"}
    assert parse({"exactly_once": True})[1]["isolation_level"] == "read_committed"
    assert PoolOptions.parse({"target_lag_seconds": 2.0}).commit_interval_ms == 400
