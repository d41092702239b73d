"""What is asked of a running query, with one that is not Java's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from raylog.spark_bridge.reading import running_queries
from raylog.spark_bridge.reading.running_queries import QueryWatch, Reader

FOLDER = "file:/checkpoint/raylog-sources/source"


class Source:
    def __init__(self) -> None:
        self.files: list[str] = []
        self.asked = 0

    def toString(self) -> str:  # noqa: N802  Java's name, as those below
        return f"FileStreamSource[{FOLDER}]"

    def currentLogOffset(self) -> int:  # noqa: N802
        self.asked += 1
        return len(self.files) - 1

    def seenFiles(self) -> Any:  # noqa: N802
        return SimpleNamespace(isNewFile=lambda path, _: path not in self.files)


class Query:
    """With one source, in all its Java parts."""

    def __init__(self, trigger: str) -> None:
        self.source = Source()
        self.batch, self.taken, self.done, self.active = 0, -1, -1, True
        self.trigger = lambda: SimpleNamespace(toString=lambda: trigger)
        self.died_of: Any = None
        setattr(self, "streamDeathCause_$eq", self._die_of)

    def _die_of(self, death: Any) -> None:
        assert self.active
        self.died_of = death

    def stop(self) -> None:
        self.active = False

    def id(self) -> str:
        return "query"

    def runId(self) -> str:  # noqa: N802
        return "run"

    def takes(self, name: str) -> None:
        self.source.files.append(f"{FOLDER}/{name}")
        self.taken += 1

    def commits(self) -> None:
        self.done = self.taken
        self.batch += 1

    def streamingQuery(self) -> Query:  # noqa: N802
        return self

    def isActive(self) -> bool:  # noqa: N802
        return self.active

    def currentBatchId(self) -> int:  # noqa: N802
        return self.batch

    def sources(self) -> Any:
        return SimpleNamespace(size=lambda: 1, apply=lambda _: self.source)

    def availableOffsets(self) -> Any:  # noqa: N802
        return _offsets(self.taken)

    def committedOffsets(self) -> Any:  # noqa: N802
        return _offsets(self.done)

    def resolvedCheckpointRoot(self) -> str:  # noqa: N802
        return "file:/checkpoint"


class _HashMap(dict[str, str]):
    def put(self, name: str, value: str) -> None:
        self[name] = value


def _offsets(number: int) -> Any:
    offset = SimpleNamespace(json=lambda: f'{{"logOffset":{number}}}')
    return SimpleNamespace(get=lambda _: SimpleNamespace(isDefined=lambda: number >= 0, get=lambda: offset))


class World:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.queries: list[Query] = []
        monkeypatch.setattr(running_queries, "time", SimpleNamespace(monotonic=lambda: self.now))
        spark = SimpleNamespace(
            paths=SimpleNamespace(SparkPath=SimpleNamespace(fromPath=str)),
            api=SimpleNamespace(python=SimpleNamespace(PythonUtils=SimpleNamespace(toScalaMap=dict))),
            sql=SimpleNamespace(streaming=SimpleNamespace(StreamingQueryException=lambda *parts: parts)),
        )
        apache = SimpleNamespace(spark=spark, hadoop=SimpleNamespace(fs=SimpleNamespace(Path=str)))
        java = SimpleNamespace(
            lang=SimpleNamespace(IllegalStateException=str), util=SimpleNamespace(HashMap=_HashMap)
        )
        jvm = SimpleNamespace(org=SimpleNamespace(apache=apache), java=java)
        session = SimpleNamespace(streams=lambda: SimpleNamespace(active=lambda: self.queries))
        self.watch = QueryWatch(SimpleNamespace(_jsparkSession=session, _jvm=jvm), FOLDER)  # type: ignore[arg-type]

    def start(self, trigger: str = "ProcessingTimeTrigger(100)") -> Query:
        self.queries = [Query(trigger)]
        return self.queries[0]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def told(reader: Reader | None) -> tuple[int, int, bool]:
    assert reader is not None
    return reader.taken, reader.done, reader.has_all


def test_between_batches_one_look_is_enough(world: World) -> None:
    query = world.start()
    assert told(world.watch.glance("0")) == (-1, -1, False)
    asked = query.source.asked
    query.takes("0")
    assert told(world.watch.glance("0")) == (-1, -1, False)
    assert query.source.asked == asked
    query.commits()
    assert told(world.watch.glance("0")) == (0, 0, True)
    assert told(world.watch.glance("1")) == (0, 0, False)  # another file is asked for anew


def test_a_glance_is_trusted_for_a_moment_and_a_look_sees_all(world: World) -> None:
    query = world.start()
    world.watch.glance("0")
    query.takes("0")
    assert told(world.watch.look("0")) == (0, -1, False)
    query.done = 0  # committed, as when a query begins, before Spark has counted the batch
    assert told(world.watch.glance("0")) == (0, -1, False)
    world.now += 1.0
    assert told(world.watch.glance("0")) == (0, 0, True)


def test_another_run_of_the_query_is_found(world: World) -> None:
    assert world.watch.glance("0") is None
    first = world.start()
    first.takes("0")
    first.commits()
    assert told(world.watch.glance("0")) == (0, 0, True)
    first.active = False
    world.queries = []
    assert world.watch.glance("0") is None
    second = world.start()
    assert told(world.watch.glance("0")) == (-1, -1, False)
    reader = world.watch.look("0")
    assert reader is not None
    assert reader.query is second


@pytest.mark.parametrize(
    ("trigger", "is_finite"),
    [("AvailableNowTrigger", True), ("OneTimeTrigger", True), ("ProcessingTimeTrigger(100)", False)],
)
def test_a_query_that_ends_by_itself_is_known_by_its_trigger(world: World, trigger: str, is_finite: bool) -> None:
    world.start(trigger)
    reader = world.watch.look("0")
    assert reader is not None
    assert reader.is_finite == is_finite


def test_a_query_is_ended_with_a_reason(world: World) -> None:
    query = world.start()
    reader = world.watch.look("0")
    assert reader is not None
    world.watch.fail(reader, "CheckpointInUse: by another.")
    assert not query.active
    _, message, cause, _, _, kind, told = query.died_of
    assert (message, cause, kind) == ("CheckpointInUse: by another.", "CheckpointInUse: by another.", "STREAM_FAILED")
    assert told == {"id": "query", "runId": "run", "message": "CheckpointInUse: by another."}
