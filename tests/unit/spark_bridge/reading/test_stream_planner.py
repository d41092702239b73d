"""When the next descriptor is written, and what ends a stream: with a folder, brokers and a query that are not real."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from raylog.api.connection.records import TopicPartition
from raylog.api.jobs.rules.subscription import Subscription
from raylog.errors import CheckpointInUse, CheckpointOfOther, ClusterUnreachable, StreamFailed
from raylog.spark_bridge.reading import stream_planner
from raylog.spark_bridge.reading.descriptor_folder import file_name
from raylog.spark_bridge.reading.rules.read_options import EARLIEST, ReadOptions
from raylog.spark_bridge.reading.rules.stream_plan import Descriptor
from raylog.spark_bridge.reading.running_queries import Reader
from raylog.spark_bridge.reading.stream_planner import StreamPlanner

ID = b"1" * 16
PLACE = TopicPartition("clicks", 0)


class Folder:
    path = "file:/checkpoint/raylog-sources/source"

    def __init__(self) -> None:
        self.files: dict[int, Descriptor] = {}

    def numbers(self) -> list[int]:
        return sorted(self.files)

    def read(self, number: int) -> Descriptor:
        return Descriptor.parse(self.path, self.files[number].to_text())

    def create(self, descriptor: Descriptor) -> None:
        if descriptor.number in self.files:
            raise CheckpointInUse(self.path)
        self.files[descriptor.number] = descriptor

    def delete(self, number: int) -> None:
        del self.files[number]


class Brokers:
    access = SimpleNamespace(cluster_id="cluster", brokers={})

    def __init__(self) -> None:
        self.end = 0
        self.error: Exception | None = None
        self.looked_for = 0
        self.told = {PLACE: ID}  # by a broker that is believed at once
        self.told_by_others: dict[TopicPartition, bytes] | None = None  # None: the same
        self.others_heard = 0

    def topics(self, subscription: Subscription, *, all_of_them: bool = True) -> dict[TopicPartition, bytes]:
        if self.error is not None:
            raise self.error
        return self.told

    def hear_others(self) -> None:
        self.others_heard += 1
        if self.told_by_others is not None:
            self.told = self.told_by_others

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {place: 0 if what == EARLIEST else self.end for place, what in wanted.items()}

    def find_again(self) -> None:
        self.looked_for += 1


@dataclass
class Group:
    told: list[int] = field(default_factory=list)

    def alter_group_offsets(self, group: str, offsets: Mapping[tuple[str, int], int], *, timeout: float) -> None:
        self.told.append(offsets["clicks", 0])


class World:
    """One source, and a query that takes and commits what there is when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.brokers, self.group = Folder(), Brokers(), Group()
        self.reader: Reader | None = None
        self.failures: list[str] = []  # that queries have ended with
        self.uncounted = 0
        watch = SimpleNamespace(look=self.seen, glance=self.seen, fail=self._fail)
        monkeypatch.setattr(stream_planner, "QueryWatch", lambda spark, path: watch)
        monkeypatch.setattr(StreamPlanner, "_is_gone", lambda planner: False)

    def planner(self, **options: object) -> StreamPlanner:
        chosen = ReadOptions.of_stream({"subscribe": "clicks", "startingOffsets": "earliest", **options})
        parts: list[Any] = [self.folder, self.brokers, chosen, "file:/checkpoint", self.group]
        made = StreamPlanner(SimpleNamespace(), *parts)  # type: ignore[arg-type]
        made.settle()
        return made

    def query(
        self, taken: int, done: int, checkpoint: str = "file:/checkpoint", uncounted: int = 0, is_finite: bool = False
    ) -> None:
        """It has taken the files up to this number, in so many fewer batches."""
        self.uncounted = uncounted
        self.reader = Reader(None, checkpoint, taken - uncounted, done - uncounted, False, is_finite)

    def seen(self, newest: str) -> Reader | None:
        if self.reader is None:
            return None
        done = self.reader.done + self.uncounted
        is_idle = self.reader.taken == self.reader.done
        return replace(self.reader, has_all=is_idle and newest == file_name(done))

    def _fail(self, reader: Reader, reason: str) -> None:
        assert self.reader is not None
        assert reader.taken == self.reader.taken
        self.failures.append(reason)
        self.reader = None

    @property
    def ranges(self) -> list[list[tuple[int, int]]]:
        """By file."""
        return [[(each.start, each.end) for each in self.folder.files[n].step.ranges] for n in self.folder.numbers()]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_where_a_stream_starts_is_settled_before_anything_is_read(world: World) -> None:
    world.brokers.end = 7
    world.planner(startingOffsets="latest")
    world.brokers.end = 20
    again = world.planner(startingOffsets="latest")
    world.query(0, 0)
    assert again.step()
    assert world.ranges == [[], [(7, 20)]]


def test_the_next_one_waits_until_the_query_is_done_with_the_one_before(world: World) -> None:
    planner = world.planner()
    world.brokers.end = 10
    assert not planner.step()  # no query runs yet
    world.query(0, -1)
    planner.step()
    assert world.ranges == [[]]
    world.query(0, 0)
    planner.step()
    world.brokers.end = 30
    planner.step()
    world.query(1, 0)
    planner.step()
    assert world.ranges == [[], [(0, 10)]]
    world.query(1, 1)
    planner.step()
    assert world.ranges == [[], [(0, 10)], [(10, 30)]]


def test_all_there_is_now_is_planned_and_nothing_that_comes_later(world: World) -> None:
    planner = world.planner(maxOffsetsPerTrigger=10)
    world.brokers.end = 25
    planner.plan_to_end()
    world.brokers.end = 99
    world.query(3, 3, is_finite=True)
    assert not planner.step()
    assert world.ranges == [[], [(0, 10)], [(10, 20)], [(20, 25)]]


def test_after_a_query_that_has_ended_another_one_goes_on_with_the_same_source(world: World) -> None:
    planner = world.planner()
    world.brokers.end = 25
    planner.plan_to_end()
    world.query(1, 1, is_finite=True)
    planner.step()
    world.brokers.end = 40
    world.reader = None
    assert not planner.step()
    world.query(1, 1)
    assert planner.step()
    assert world.ranges == [[], [(0, 25)], [(25, 40)]]
    planner.plan_to_end()
    world.brokers.end = 50
    world.query(2, 2, is_finite=True)
    assert not planner.step()


def test_a_query_that_has_taken_several_files_for_one_batch_is_understood(world: World) -> None:
    planner = world.planner(maxOffsetsPerTrigger=10, groupId="job")
    world.brokers.end = 25
    planner.plan_to_end()
    later = world.planner(maxOffsetsPerTrigger=10, groupId="job")
    world.brokers.end = 30
    world.query(3, 3, uncounted=3)
    assert later.step()
    world.query(4, 3, uncounted=3)
    assert later.progress().committed == {PLACE: 25}
    later.step()
    assert world.ranges[4:] == [[(25, 30)]]
    assert world.group.told == [25]


def test_old_files_go_but_the_newest_stays(world: World) -> None:
    planner = world.planner()
    for number in range(40):
        world.query(number, number)
        world.brokers.end += 1
        planner.step()
    assert world.folder.numbers()[-1] == 40
    assert len(world.folder.numbers()) < 15
    assert world.planner().progress().planned == {PLACE: 40}


def test_the_group_is_told_once_of_each_batch(world: World) -> None:
    planner = world.planner(groupId="job")
    world.brokers.end = 10
    world.query(0, 0)
    planner.step()
    world.query(1, 0)
    planner.batch_committed(1)
    world.query(1, 1)
    planner.step()
    planner.step()
    assert world.group.told == [0, 10]


def test_progress_says_how_far_behind_it_is(world: World) -> None:
    planner = world.planner(maxOffsetsPerTrigger=10)
    world.brokers.end = 25
    world.query(0, 0)
    planner.step()
    world.query(1, 1)
    told = planner.progress()
    assert (told.committed, told.planned, told.latest) == ({PLACE: 10}, {PLACE: 10}, {PLACE: 25})
    assert told.behind == {PLACE: 15}


def test_a_checkpoint_of_something_else_is_refused(world: World) -> None:
    world.planner()
    with pytest.raises(CheckpointOfOther, match=r"started for subscribe=clicks .* not for subscribe=orders"):
        world.planner(subscribe="orders")


@pytest.mark.parametrize("told", [{}, {PLACE: b"0" * 16}], ids=["not there", "as it was before"])
def test_one_broker_alone_is_not_believed_that_a_topic_was_deleted(
    world: World, told: dict[TopicPartition, bytes]
) -> None:
    planner = world.planner()
    world.query(0, 0)
    world.brokers.end = 5
    world.brokers.told, world.brokers.told_by_others = told, {PLACE: ID}
    assert planner.step()
    assert world.brokers.others_heard == 1
    assert world.ranges == [[], [(0, 5)]]
    assert not world.folder.files[1].step.losses
    world.query(1, 1)
    planner.step()
    assert world.brokers.others_heard == 1


def test_a_topic_that_no_broker_knows_any_more_is_lost(world: World) -> None:
    planner = world.planner()
    world.query(0, 0)
    world.brokers.told = {}
    assert planner.step()
    assert world.brokers.others_heard == 1
    assert [each.place for each in world.folder.files[1].step.losses] == [PLACE]


def turn(planner: StreamPlanner, error: Exception) -> bool:
    return planner._goes_on_after(error)


def test_brokers_that_do_not_answer_are_looked_for_and_asked_again(world: World) -> None:
    planner = world.planner()
    world.query(0, 0)
    world.brokers.error = ClusterUnreachable("tcp:a:1", 1, "nobody answers")
    with pytest.raises(ClusterUnreachable) as raised:
        planner.step()
    assert turn(planner, raised.value)
    assert world.brokers.looked_for == 1
    world.brokers.error, world.brokers.end = None, 5
    assert planner.step()


def test_what_cannot_go_on_fails_this_run_of_the_query_and_no_later_one(world: World) -> None:
    planner = world.planner()
    world.query(0, 0, checkpoint="file:/another")
    with pytest.raises(CheckpointOfOther) as raised:
        planner.step()
    assert not turn(planner, raised.value)
    run, reason = world.folder.files[1].failure
    assert run == planner.run
    assert reason.startswith("CheckpointOfOther")
    assert not planner.step()
    for ask in (planner.progress, planner.plan_to_end, lambda: planner.batch_committed(0)):
        with pytest.raises(CheckpointOfOther):
            ask()
    assert not world.failures  # its task says it
    world.query(1, 0)
    world.brokers.end = 5
    later = world.planner()
    assert later.run != run
    world.query(1, 1)
    later.step()
    assert world.ranges == [[], [], [(0, 5)]]


def test_of_two_drivers_one_is_told_and_so_are_its_later_queries(world: World) -> None:
    one, two = world.planner(), world.planner()
    world.query(0, 0)
    world.brokers.end = 5
    one.step()
    with pytest.raises(CheckpointInUse) as raised:
        two.step()
    assert turn(two, raised.value)
    for number in (1, 2):
        world.query(0, 0)
        assert not two.step()
        two.end_query_untold()
        two.end_query_untold()
        assert len(world.failures) == number
        assert world.failures[-1].startswith(f"CheckpointInUse: {Folder.path} was written by another driver")
    for ask in (two.progress, two.plan_to_end, lambda: two.batch_committed(0)):
        with pytest.raises(CheckpointInUse):
            ask()
    one.end_query_untold()
    assert one.progress().last_error == ""
    assert world.ranges == [[], [(0, 5)]]


def test_what_cannot_even_be_written_down_is_told_all_the_same(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    planner = world.planner()

    def fail(descriptor: Descriptor) -> None:
        raise OSError("The disk is full.")

    monkeypatch.setattr(world.folder, "create", fail)
    world.query(0, 0)
    world.brokers.end = 5
    with pytest.raises(OSError, match="full") as raised:
        planner.step()
    assert turn(planner, raised.value)
    planner.end_query_untold()
    assert world.failures == [str(f"StreamFailed: {StreamFailed('OSError: The disk is full.')}")]
    with pytest.raises(StreamFailed, match="The disk is full"):
        planner.progress()


def test_a_planner_that_was_replaced_says_nothing_any_more(world: World) -> None:
    before = world.planner()
    turn(before, CheckpointInUse(Folder.path))
    before.stop()
    before.batch_committed(0)
    assert not world.failures
