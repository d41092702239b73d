"""Reads of a range by a Spark task: on the real client loop, with a make-believe cluster behind it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, cast

import pytest

from raylog.actors.machine.cluster_access import ClusterAccess
from raylog.actors.machine.real_environment import Place, RealEnvironment
from raylog.actors.protocol.cluster_secrets import ClusterSecrets
from raylog.actors.protocol.replication_messages import EARLIEST, LATEST
from raylog.api.connection.client_runtime import client_runtime
from raylog.api.jobs import log_questions, range_reader
from raylog.api.jobs.channel import Channel
from raylog.api.jobs.log_questions import LogQuestions
from raylog.api.jobs.range_reader import RangeReading
from raylog.api.jobs.rules.offset_ranges import OffsetRange
from raylog.api.jobs.rules.subscription import Subscription
from raylog.errors import BatchError, RecordsLost, RecordUnreadable
from raylog.storage.format.control_records import MarkerType
from tests.unit.api.fake_link import FakeLink, ModelLog

ACCESS = ClusterAccess("tests", ClusterSecrets(1, (), (b"s" * 32,)), {})


class World:
    """A fake link on the client loop, as the channel of this process."""

    def __init__(self) -> None:
        self.runtime = client_runtime()
        self.link = self.runtime.run(self._make(), 5.0)
        self.channel = Channel(self.runtime, self.link.as_link, ())

    async def _make(self) -> FakeLink:
        env = RealEnvironment(Place("tests", ACCESS.secrets, "127.0.0.1"), None)
        return FakeLink(env, Random(1))

    def do(self, action: Callable[[], Any]) -> Any:
        async def run() -> Any:
            return action()

        return self.runtime.run(run(), 5.0)

    def log(self, *sizes: int) -> ModelLog:
        """Return a log of the topic t, with batches of these sizes."""
        (log,) = self.do(lambda: self.link.add_topic("t", 1))
        for size in sizes:
            self.append(log, [b"%d" % number for number in range(log.end, log.end + size)])
        return cast("ModelLog", log)

    def append(self, log: ModelLog, values: list[bytes]) -> None:
        self.do(lambda: log.append(*values))

    def piece(self, start: int, end: int) -> OffsetRange:
        return OffsetRange("t", self.link.ids["t"], 0, start, end)

    def read(self, start: int, end: int, **how: bool) -> list[tuple[int, bytes]]:
        return rows_of(reading(**how), self.piece(start, end))


def reading(committed: bool = False, strict: bool = True, headers: bool = False) -> RangeReading:
    return RangeReading(ACCESS, committed, strict, headers)


def rows_of(how: RangeReading, piece: OffsetRange) -> list[tuple[int, bytes]]:
    found = []
    for batch in how.rows(piece):
        assert batch.num_rows
        columns = batch.to_pydict()
        found += list(zip(columns["offset"], columns["value"], strict=True))
    return found


def numbers(start: int, end: int) -> list[tuple[int, bytes]]:
    return [(each, b"%d" % each) for each in range(start, end)]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(range_reader, "channel_to", lambda access: made.channel)
    monkeypatch.setattr(log_questions, "channel_to", lambda access: made.channel)
    return made


@pytest.mark.parametrize(("start", "end"), [(0, 60), (0, 1), (5, 25), (10, 20), (59, 60), (19, 21), (30, 30)])
def test_exactly_the_range_is_read(world: World, start: int, end: int) -> None:
    world.log(10, 20, 30)
    assert world.read(start, end) == numbers(start, end)


def test_rows_have_the_columns_of_sparks_kafka_source(world: World) -> None:
    world.log(3)
    (batch,) = reading(headers=True).rows(world.piece(1, 3))
    assert batch.schema.names == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers",
    ]  # fmt: skip
    row = batch.to_pylist()[0]
    assert (row["topic"], row["partition"], row["offset"], row["timestampType"]) == ("t", 0, 1, 0)
    assert row["timestamp"].timestamp() == 1_700_000_000.0


def test_small_batches_are_joined(world: World) -> None:
    log = world.log()
    for number in range(300):
        world.append(log, [b"%d" % number])
    assert len(list(reading().rows(world.piece(0, 300)))) == 1
    assert world.read(0, 300) == numbers(0, 300)


def test_nothing_is_fetched_far_beyond_the_range(world: World) -> None:
    log = world.log()
    for _ in range(50):
        world.do(lambda: log.append(*[b"x" * 1000] * 100))
    assert len(world.read(0, 50)) == 50
    fetched = sum(1 for each in world.link.asked if type(each).__name__ == "Fetch")
    assert fetched <= 2


def test_refusals_and_silent_leaders_cost_time_and_no_records(world: World) -> None:
    world.log(*[10] * 50)
    world.link.faults.refusals = 0.3
    assert world.read(0, 500) == numbers(0, 500)


def test_what_is_damaged_at_the_leader_is_read_from_the_next_one(world: World) -> None:
    log = world.log(*[10] * 5)
    log.is_rotten = True
    assert world.read(0, 50) == numbers(0, 50)
    assert not log.is_rotten


def test_what_is_damaged_in_the_only_copy_ends_the_task_and_says_where(world: World) -> None:
    log = world.log(10)
    log.is_rotten = world.link.is_alone = True
    with pytest.raises(RecordUnreadable, match=r"0\.log at byte 61"):
        world.read(0, 10)


def test_what_is_damaged_on_its_way_is_fetched_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_reader, "_MOST_SUSPICIONS", 2)
    world.log(*[10] * 5)
    world.link.faults.damage = 1.0
    with pytest.raises(BatchError):
        world.read(0, 50)
    world.link.faults.damage = 0.0
    assert world.read(0, 50) == numbers(0, 50)


def test_a_reader_of_committed_records_sees_no_aborted_ones(world: World) -> None:
    log = world.log(10)
    world.do(lambda: log.append(b"aborted", producer_id=7))
    world.do(lambda: log.end_transaction(7, MarkerType.ABORT))
    log.aborted = [(7, 10, 11)]
    world.do(lambda: log.append(b"12"))
    world.do(lambda: log.add_filler(3))
    assert world.read(0, 16, committed=True) == [*numbers(0, 10), (12, b"12")]
    assert [offset for offset, _ in world.read(0, 16)] == [*range(10), 10, 12]


def test_what_was_deleted_is_an_error_or_passed_over(world: World) -> None:
    log = world.log(10, 10, 10)

    def delete_first() -> None:
        log.start = 10
        del log.batches[0]

    world.do(delete_first)
    with pytest.raises(RecordsLost, match=r"t-0 was lost: .*offset 5 is not among 10 to 30"):
        world.read(5, 25)
    assert world.read(5, 25, strict=False) == numbers(10, 25)
    assert world.read(2, 8, strict=False) == []


def test_what_is_beyond_the_end_is_an_error_or_passed_over(world: World) -> None:
    world.log(10)
    with pytest.raises(RecordsLost, match="offset 20 is not among 0 to 10"):
        world.read(20, 30)
    assert world.read(20, 30, strict=False) == []


def test_another_topic_of_that_name_is_not_read(world: World) -> None:
    world.log(10)
    old = world.piece(0, 10)

    def make_anew() -> None:
        world.link.remove_topic("t")
        world.link.ids["t"] = b"n" * 16
        world.link.add_topic("t", 1)[0].append(*[b"new"] * 20)
        world.link.publish()

    world.do(make_anew)
    with pytest.raises(RecordsLost, match="deleted and made anew"):
        rows_of(reading(), old)
    assert rows_of(reading(strict=False), old) == []
    assert len(world.read(0, 10)) == 10


def test_a_topic_that_is_gone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_reader, "_UNKNOWN_SECONDS", 0.5)
    world.log(10)
    piece = world.piece(0, 10)
    world.do(lambda: world.link.remove_topic("t"))
    with pytest.raises(RecordsLost):
        rows_of(reading(), piece)
    assert rows_of(reading(strict=False), piece) == []


def test_a_task_that_is_given_up_stops_fetching(world: World) -> None:
    world.log(*[1000] * 40)
    rows = reading().rows(world.piece(0, 40_000))
    next(rows)
    rows.close()  # type: ignore[attr-defined]
    assert world.read(0, 10) == numbers(0, 10)


# --- questions of the driver ------------------------------------------------------------------------------------------


def test_a_driver_asks_which_topics_there_are_and_how_far_they_go(world: World) -> None:
    log = world.log(10)
    world.do(lambda: world.link.add_topic("other", 2))
    log.last_stable = 4
    world.link.hides_until_others_are_heard.add("other")
    questions = LogQuestions(ACCESS, reads_committed=True)
    found = questions.topics(Subscription(pattern="o.*|__.*"))
    assert sorted(found) == [("other", 0), ("other", 1)]
    (place,) = questions.topics(Subscription(topics=("t",)))
    assert questions.offsets({place: LATEST}) == {place: 4}
    assert questions.offsets({place: EARLIEST}) == {place: 0}
    assert list(questions.topics(Subscription(partitions={"other": (1,)}))) == [("other", 1)]
    there = questions.topics(Subscription(topics=("t", "gone")), all_of_them=False)
    assert list(there) == [("t", 0)]
    assert list(questions.topics(Subscription(partitions={"other": (1, 5)}), all_of_them=False)) == [("other", 1)]


