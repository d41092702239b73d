"""What an answer to a client leaves out. `test_metadata_parts.py` has what a client makes of several."""

from __future__ import annotations

from collections.abc import Iterable

from raylog.actors.cluster.metadata_answers import metadata_answer
from raylog.actors.cluster.metadata_fold import MetadataFold
from raylog.actors.cluster.topic_admin import delete_topic
from raylog.actors.cluster.topic_settings import alter_topic_settings
from raylog.actors.protocol.control_messages import NOTHING_KNOWN
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.metadata_quorum_records import ControllerStarted
from raylog.actors.protocol.metadata_records import GatewayServes
from raylog.config import ConfigValue
from tests.unit.actors.small_cluster import SmallCluster


class Folded(SmallCluster):
    """A cluster whose records a broker folds too."""

    def __init__(self) -> None:
        self.fold = MetadataFold()
        super().__init__()

    def apply(self, records: Iterable[Message]) -> list[Message]:
        before = self.offset
        applied = super().apply(records)
        self.fold.apply(applied, before, 0)
        return applied

    def told(self, known: int, *topics: str) -> list[tuple[str, list[int]]]:
        """Return the topics and partitions that an answer names."""
        answer = metadata_answer(self.fold, topics, known)
        return [(topic.name, [each.partition for each in topic.partitions]) for topic in answer.topics]


def test_an_answer_holds_only_what_has_changed() -> None:
    cluster = Folded()
    cluster.create("a", (1, 2, 3), (2, 3, 1))
    cluster.create("b", (1, 2, 3))
    known = cluster.fold.version
    cluster.lose_replica("a", 2, 1)
    cluster.lose_replica("b", 1)
    assert cluster.told(known) == [("a", [1]), ("b", [0])]
    assert cluster.told(known, "a") == [("a", [1])]
    answer = metadata_answer(cluster.fold, (), known)
    assert (answer.since, answer.gone) == (known, ())
    assert cluster.told(cluster.fold.version) == []


def test_writers_hear_of_the_settings_that_they_obey() -> None:
    cluster = Folded()
    cluster.create("a", (1, 2, 3), (2, 3, 1))
    known = cluster.fold.version
    changes: dict[str, ConfigValue | None] = {"batch.format": "kafka", "segment.bytes": 5_000}
    cluster.apply(alter_topic_settings(cluster.state, cluster.live, "a", changes))
    assert cluster.told(known) == [("a", [0, 1])]
    (told,) = metadata_answer(cluster.fold, (), known).topics
    assert (told.batch_format, told.max_batch_bytes) == ("kafka", 5_000)


def test_a_gateway_that_comes_changes_no_topic() -> None:
    cluster = Folded()
    cluster.create("a", (1, 2, 3))
    known = cluster.fold.version
    cluster.apply([GatewayServes(1, "10.0.0.1:9092")])
    assert cluster.fold.version > known
    assert metadata_answer(cluster.fold, (), known).since == known
    assert cluster.told(known) == []


def test_a_deleted_topic_is_named_and_its_partitions_are_not() -> None:
    cluster = Folded()
    cluster.create("a", (1, 2, 3))
    known = cluster.fold.version
    cluster.lose_replica("a", 1)
    cluster.apply(delete_topic(cluster.state, "a"))
    answer = metadata_answer(cluster.fold, (), known)
    assert (answer.topics, answer.gone) == ((), ("a",))
    assert metadata_answer(cluster.fold, ("b",), known).gone == ("b",)


def test_a_client_that_knows_more_than_a_broker_hears_everything_of_it() -> None:
    cluster = Folded()
    cluster.create("a", (1, 2, 3))
    assert metadata_answer(cluster.fold, (), cluster.fold.version + 1).since == NOTHING_KNOWN


def test_after_a_snapshot_a_broker_tells_everything_to_those_who_know_less() -> None:
    cluster = Folded()
    cluster.create("a", (1, 2, 3))
    known = cluster.fold.version - 1
    cluster.fold.replace(cluster.state.to_records(), cluster.offset, 0)
    assert metadata_answer(cluster.fold, (), known).since == NOTHING_KNOWN
    assert cluster.told(known) == [("a", [0])]
    assert cluster.told(cluster.fold.version) == []


def test_a_broker_that_comes_back_elsewhere_changes_what_is_told_of_its_leaders() -> None:
    cluster = Folded()
    cluster.create("a", (1, 2, 3))
    known = cluster.fold.version
    cluster.start_broker(1, run="another")
    assert cluster.told(known) == [("a", [0])]


def test_a_new_controller_and_a_lost_broker_change_no_other_partitions() -> None:
    cluster = Folded()
    cluster.create("a", (1, 2, 3), (2, 3, 1))
    cluster.create("b", (2, 3))
    known = cluster.fold.version
    cluster.apply([ControllerStarted(2)])
    assert cluster.told(known) == []
    cluster.lose_broker(1)
    assert cluster.told(known) == [("a", [0, 1])]
