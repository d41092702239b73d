"""Which record is worked on next, and what may be committed; held against a plain model, in any order of events."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from raylog.actors.kernel.backoff import Backoff
from raylog.api.connection.records import ConsumerRecord, TopicPartition
from raylog.api.parallel.rules.offset_window import OffsetWindow
from raylog.api.parallel.rules.parallel_work import BY_KEY, BY_PARTITION, ORDERS, UNORDERED, ParallelWork, Task
from tests.unit.longest_pauses import LongestPauses

P = [TopicPartition("t", 0), TopicPartition("t", 1)]
WINDOW = 6
FAILURE = ValueError("no")


def record(partition: TopicPartition, offset: int, key: bytes | None = None) -> ConsumerRecord:
    return ConsumerRecord(partition.topic, partition.partition, offset, 0, 0, key, b"v", (), 0)


def make(order: str = BY_KEY, *, retries: int | None = 1, memory: int = 2**40) -> ParallelWork:
    return ParallelWork(order, WINDOW, memory, retries, Backoff(1.0, 3.0, LongestPauses()))


def take(work: ParallelWork, *keys: bytes | None, first: int = 0, partition: TopicPartition = P[0]) -> None:
    work.take(partition, [record(partition, first + place, key) for place, key in enumerate(keys)])


def started(work: ParallelWork, now: float = 0.0) -> list[int]:
    """All that can be started now."""
    return [task.record.offset for task in tasks(work, now)]


def tasks(work: ParallelWork, now: float = 0.0) -> list[Task]:
    found = []
    while (task := work.start(now)) is not None:
        found.append(task)
    return found


def test_a_window_is_done_up_to_the_oldest_that_is_not() -> None:
    window = OffsetWindow()
    for offset in (3, 4, 7, 9):
        window.take(offset)
    window.finish(4)
    assert (window.position, len(window), window.open_count) == (3, 4, 3)
    window.finish(3)
    assert (window.position, len(window), window.open_count) == (7, 2, 2)
    window.finish(9)
    window.finish(7)
    assert (window.position, len(window), window.open_count) == (10, 0, 0)


def test_records_of_a_key_wait_for_each_other_and_others_do_not() -> None:
    work = make()
    take(work, b"a", b"a", b"b", None, None)
    first, *others = tasks(work)
    assert [first.record.offset, *(each.record.offset for each in others)] == [0, 2, 3, 4]
    for each in others:
        work.finish(each)
    assert work.positions() == {P[0]: 0}
    assert started(work) == []
    work.finish(first)
    assert work.positions() == {P[0]: 1}
    assert started(work) == [1]


def test_the_same_key_of_two_partitions_are_two() -> None:
    work = make()
    take(work, b"a")
    take(work, b"a", partition=P[1])
    assert len(tasks(work)) == 2


@pytest.mark.parametrize(("order", "expected"), [(BY_PARTITION, [0]), (UNORDERED, [0, 1, 2])])
def test_other_orders(order: str, expected: list[int]) -> None:
    work = make(order)
    take(work, b"a", b"b", b"a")
    assert started(work) == expected


def test_what_has_failed_is_tried_again_after_growing_pauses_and_then_put_aside() -> None:
    work = make(retries=3)
    take(work, b"a", b"a")
    now, pauses = 0.0, []
    (task,) = tasks(work)
    while work.fail(task, FAILURE, now):
        due = work.due_at()
        assert due is not None
        assert work.start(due - 0.01) is None
        pauses.append(due - now)
        now = due
        assert work.start(now) is task
    assert pauses == [1.0, 2.0, 3.0]
    assert (task.attempts, task.error) == (4, FAILURE)
    work.delay(task, now)  # the dead letter topic could not be reached
    assert work.start(now + 3.0) is task
    assert task.is_given_up
    assert task.attempts == 4
    work.finish(task)
    assert started(work) == [1]


def test_without_a_bound_it_is_tried_for_ever_unless_that_is_hopeless() -> None:
    work = make(retries=None)
    take(work, b"a")
    now = 0.0
    for _ in range(200):
        (task,) = tasks(work, now)
        assert work.fail(task, FAILURE, now)
        now += 3.0
    (task,) = tasks(work, now)
    assert not work.fail(task, FAILURE, now, is_final=True)


def test_nobody_passes_over_what_is_stuck() -> None:
    work = make()
    take(work, b"a", b"a", b"b")
    stuck, other = tasks(work)
    work.stick(stuck)
    work.finish(other)
    assert started(work) == []
    assert work.positions() == {P[0]: 0}
    assert not work.is_running()
    work.drop(P)
    assert work.held_bytes == 0


def test_a_full_window_is_paused_and_goes_on_when_it_is_half_empty() -> None:
    work = make(UNORDERED)
    assert work.room(100) == WINDOW
    take(work, *[None] * 4)
    assert work.room(100) == 2
    take(work, *[None] * 2, first=4)
    take(work, None, partition=P[1])
    assert work.flow() == ([P[0]], [])
    assert work.flow() == ([], [])
    assert work.room(100) == WINDOW - 1  # of the other one
    running = [each for each in tasks(work) if each.record.partition == 0]
    for each in running[1:4]:
        work.finish(each)
    assert work.flow() == ([], [])
    work.finish(running[0])
    assert work.flow() == ([], [P[0]])


def test_nothing_is_taken_beyond_the_memory_there_is() -> None:
    work = make(UNORDERED, memory=150)
    take(work, None)
    assert work.room(100) == 0
    work.finish(tasks(work)[0])
    assert work.room(100) == WINDOW


def test_of_a_partition_that_ends_what_runs_is_finished_and_nothing_started() -> None:
    work = make()
    take(work, b"a", b"a", b"b", b"c")
    running = work.start(0.0)
    failing = work.start(0.0)
    assert running is not None
    assert failing is not None
    work.end([P[0]])
    assert started(work) == []
    assert work.is_running([P[0]])
    assert work.fail(failing, FAILURE, 0.0)
    work.finish(running)
    assert not work.is_running([P[0]])
    assert (started(work, 100.0), work.positions()) == ([], {P[0]: 1})
    assert work.drop([P[0]]) == 0
    assert (work.positions(), work.held_bytes, work.open_count) == ({}, 0, 0)


def test_what_comes_of_a_lost_partition_changes_nothing_even_if_it_is_back() -> None:
    work = make()
    take(work, b"a", b"b")
    one, two = tasks(work)
    assert work.drop([P[0]]) == 2
    take(work, b"a", b"b")
    again = work.start(0.0)
    assert again is not None
    work.finish(one)
    assert work.fail(two, FAILURE, 0.0)
    assert work.due_at() is None
    assert (work.positions(), work.thrown_away_count) == ({P[0]: 0}, 2)
    work.finish(again)
    assert work.positions() == {P[0]: 1}


def test_a_log_that_was_cut_begins_anew() -> None:
    work = make(UNORDERED)
    take(work, *[None] * 5, first=10)
    old = tasks(work)
    take(work, None, None, first=12)
    for each in old:
        work.finish(each)
    assert work.positions() == {P[0]: 12}
    assert started(work) == [12, 13]


def test_what_was_committed_is_committed_once_unless_that_failed() -> None:
    work = make()
    take(work, b"a")
    work.finish(tasks(work)[0])
    assert work.positions() == {P[0]: 1}
    work.note_committed({P[0]: 1})
    assert work.positions() == {}
    work.note_not_committed([P[0]])
    assert work.positions() == {P[0]: 1}


class AnyOrder(RuleBasedStateMachine):
    """The model: of each partition what was taken, what is done, and what runs, as plain sets."""

    running: Bundle[Task] = Bundle("running")

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.lives = dict.fromkeys(P, 0)  # how often it was dropped
        self.next = dict.fromkeys(P, 0)
        self.taken: dict[TopicPartition, dict[int, bytes | None]] = {partition: {} for partition in P}
        self.done: dict[TopicPartition, set[int]] = {partition: set() for partition in P}
        self.out: dict[Task, tuple[TopicPartition, int]] = {}  # running, and of which life
        self.ending: set[TopicPartition] = set()
        self.paused: set[TopicPartition] = set()
        self.work = make()
        self.order = BY_KEY

    @initialize(order=st.sampled_from(ORDERS))
    def choose(self, order: str) -> None:
        self.order, self.work = order, make(order)

    def _adjust(self) -> None:
        pause, resume = self.work.flow()
        self.paused = (self.paused | set(pause)) - set(resume)

    @rule(partition=st.sampled_from(P), keys=st.lists(st.sampled_from([None, b"a", b"b", b"c"]), max_size=8),
          gap=st.integers(0, 2))  # fmt: skip
    def take(self, partition: TopicPartition, keys: list[bytes | None], gap: int) -> None:
        self._adjust()
        if partition in self.paused or partition in self.ending:
            return
        chosen = keys[: self.work.room(100)]
        first = self.next[partition] + gap
        take(self.work, *chosen, first=first, partition=partition)
        self.taken[partition].update({first + place: key for place, key in enumerate(chosen)})
        if chosen:
            self.next[partition] = first + len(chosen)

    @rule(target=running)
    def start(self) -> Task | MultipleResults[Task]:
        task = self._start()
        return multiple() if task is None else task

    def _start(self) -> Task | None:
        task = self.work.start(self.now)
        if task is not None:
            partition = TopicPartition(task.record.topic, task.record.partition)
            assert partition not in self.ending
            assert task.record.offset in self.taken[partition]
            assert task.record.offset not in self.done[partition]
            assert all(task.record.offset != each.record.offset for each in self._out(partition))
            for offset, key in self.taken[partition].items():  # its queue, before it, is done
                if offset < task.record.offset and self._same_queue(key, task.record.key):
                    assert offset in self.done[partition]
            self.out[task] = (partition, self.lives[partition])
        return task

    def _out(self, partition: TopicPartition) -> list[Task]:
        return [task for task, place in self.out.items() if place == (partition, self.lives[partition])]

    def _same_queue(self, one: bytes | None, other: bytes | None) -> bool:
        return self.order == BY_PARTITION or (self.order == BY_KEY and one is not None and one == other)

    @rule(task=consumes(running))
    def finish(self, task: Task) -> None:
        if task in self.out:
            self.work.finish(task)
            self._settle(task)

    def _settle(self, task: Task) -> None:
        partition, life = self.out.pop(task)
        if life == self.lives[partition]:
            self.done[partition].add(task.record.offset)

    @rule(task=consumes(running), is_final=st.booleans())
    def fail(self, task: Task, is_final: bool) -> None:
        if task not in self.out:
            return
        if task.is_given_up:  # the dead letter topic could not be reached
            self.work.delay(task, self.now)
            del self.out[task]
        elif self.work.fail(task, FAILURE, self.now, is_final=is_final):
            del self.out[task]
        else:  # put aside
            self.work.finish(task)
            self._settle(task)

    @rule(seconds=st.sampled_from([0.5, 1.0, 5.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(partition=st.sampled_from(P))
    def end(self, partition: TopicPartition) -> None:
        if self.taken[partition]:
            self.work.end([partition])
            self.ending.add(partition)

    @rule(partition=st.sampled_from(P))
    def drop(self, partition: TopicPartition) -> None:
        assert self.work.drop([partition]) == len(self._out(partition))
        self.lives[partition] += 1
        self.next[partition] = 0
        self.taken[partition] = {}
        self.done[partition] = set()
        self.ending.discard(partition)
        self.paused.discard(partition)

    @invariant()
    def what_may_be_committed_is_done(self) -> None:
        expected = {}
        for partition, taken in self.taken.items():
            if taken:
                left = [offset for offset in taken if offset not in self.done[partition]]
                expected[partition] = min(left, default=max(taken) + 1)
        assert self.work.positions() == expected

    @invariant()
    def no_window_is_too_large(self) -> None:
        assert all(size <= WINDOW for size in self.work.describe()["windows"].values())

    @invariant()
    def what_runs_is_known(self) -> None:
        for partition in P:
            assert self.work.is_running([partition]) == bool(self._out(partition))

    def teardown(self) -> None:
        """All that is not ending is done in the end, and nothing is held."""
        for task in list(self.out):
            self.work.finish(task)
            self._settle(task)
        for _ in range(10 * WINDOW):
            self.now += 5.0
            while (begun := self._start()) is not None:
                self.work.finish(begun)
                self._settle(begun)
        for partition in set(P) - self.ending:
            assert self.done[partition] == set(self.taken[partition])
        self.work.drop(self.ending)
        assert (self.work.held_bytes, self.work.open_count, self.work.due_at()) == (0, 0, None)


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(TestAnyOrder.settings, stateful_step_count=40)
