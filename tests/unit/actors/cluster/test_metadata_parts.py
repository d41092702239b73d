"""A client that asks several brokers, and hears parts from each, knows a state that there was.

The brokers stand at versions of their own, and come back from snapshots. Answers come late and in any order, and some
are about other topics than those that the client follows. Whatever it takes in, it knows each topic just as the
cluster had it at the version that it believes to know.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from raylog.actors.cluster.assignments import metadata_of
from raylog.actors.cluster.metadata_answers import metadata_answer
from raylog.actors.cluster.metadata_fold import MetadataFold
from raylog.actors.cluster.state import ClusterState
from raylog.actors.cluster.topic_admin import NewTopic, create_topic, delete_topic
from raylog.actors.link.rules.topic_cache import TopicCache, TopicView
from raylog.actors.protocol.control_messages import NOTHING_KNOWN, Metadata
from raylog.actors.protocol.messages import Message
from tests.unit.actors.small_cluster import SmallCluster

TOPICS = ("a", "b", "c")
BROKERS = (1, 2, 3)
_ANY = st.integers(0, 11)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("create", "delete", "replica", "replica", "broker", "hear", "hear", "restart"))
        | st.sampled_from(("follow", "follow", "find", "answer", "answer", "answer", "take", "take", "take")),
        _ANY,
        _ANY,
    ),
    max_size=60,
)


class Recorded(SmallCluster):
    """A cluster that remembers every change, and what it looked like after each."""

    def __init__(self) -> None:
        self.batches: list[tuple[list[Message], int]] = []
        self.views: dict[int, dict[str, TopicView]] = {0: {}}
        self.ids = count(1)
        super().__init__()

    def apply(self, records: Iterable[Message]) -> list[Message]:
        before = self.offset
        applied = super().apply(records)
        if applied:
            self.batches.append((applied, before))
            seen_by = TopicCache("")
            self.views[self.offset] = {each.name: seen_by.view_of(each) for each in metadata_of(self.state)}
        return applied

    def happen(self, what: str, name: str, broker: int, number: int) -> None:
        """Let something happen, where it can."""
        if what == "broker":
            if broker in self.live_brokers:
                self.lose_broker(broker)
            else:
                self.start_broker(broker, run=f"run-{self.offset}")
        elif what == "create" and not self.state.has_topic(name) and len(self.live_brokers) == len(BROKERS):
            topic = NewTopic(name, assignment=((1, 2, 3), (2, 3, 1)), settings={})
            self.apply(create_topic(self.state, self.live, topic, next(self.ids).to_bytes(16, "big"), internal=False))
        elif what == "delete" and self.state.has_topic(name):
            self.apply(delete_topic(self.state, name))
        elif what == "replica" and self.state.has_topic(name) and broker in self.live_brokers:
            topic_id = self.state.topic(name).id
            if any(key == (topic_id, number, broker) for key in self.running):
                self.lose_replica(name, broker, number)
            else:
                self.start_replica(name, broker, number)


class Broker:
    """A broker that has heard the first `heard` changes of the cluster."""

    def __init__(self, cluster: Recorded) -> None:
        self._cluster = cluster
        self.fold = MetadataFold()
        self.heard = 0

    def hear(self, changes: int) -> None:
        batches = self._cluster.batches[self.heard : self.heard + changes]
        for records, offset in batches:
            self.fold.apply(records, offset, 0)
        self.heard += len(batches)

    def restart(self, changes: int) -> None:
        """Come back with what it had some changes ago."""
        self.heard = max(0, self.heard - changes)
        state, version = ClusterState(), 0
        for records, offset in self._cluster.batches[: self.heard]:
            version = offset + len(records)
            for place, record in enumerate(records, offset):
                state.apply(record, place)
        self.fold = MetadataFold()
        self.fold.replace(state.to_records(), version, 0)


class Client:
    """A client that follows some topics, or all, and looks for others now and then."""

    def __init__(self, follows: tuple[str, ...]) -> None:
        self.cache = TopicCache("")
        self._follows = follows
        self._asked: list[tuple[Broker, tuple[str, ...], int]] = []
        self._told: list[tuple[Metadata, tuple[str, ...]]] = []

    def follow(self, broker: Broker) -> None:
        self._asked.append((broker, self._follows, self.cache.version_of(self._follows)))

    def find(self, broker: Broker, name: str) -> None:
        self._asked.append((broker, (name,), NOTHING_KNOWN))

    def answer(self, which: int) -> None:
        """Let a broker answer one of the questions."""
        if self._asked:
            broker, topics, known = self._asked.pop(which % len(self._asked))
            self._told.append((metadata_answer(broker.fold, topics, known), topics))

    def take(self, which: int) -> None:
        """Take in one of the answers that are under way."""
        if self._told:
            answer, topics = self._told.pop(which % len(self._told))
            self.cache.learn(answer, topics) if topics else self.cache.learn_all(answer)

    def check(self, views: dict[int, dict[str, TopicView]]) -> None:
        for name in TOPICS:
            version = max(self.cache.version_of((name,)), self.cache.complete_version)
            assert self.cache.topic(name) == (None if version < 0 else views[version].get(name))


@given(STEPS, st.sampled_from(((), ("a",), ("a", "b"))))
def test_what_a_client_knows_is_what_there_was(steps: list[tuple[str, int, int]], follows: tuple[str, ...]) -> None:
    cluster = Recorded()
    cluster.happen("create", "a", 1, 0)
    brokers = [Broker(cluster) for _ in BROKERS]
    client = Client(follows)
    for what, some, other in steps:
        broker, name = brokers[some % len(brokers)], TOPICS[other % len(TOPICS)]
        if what == "hear":
            broker.hear(1 + other)
        elif what == "restart":
            broker.restart(other)
        elif what == "follow":
            client.follow(broker)
        elif what == "find":
            client.find(broker, name)
        elif what == "answer":
            client.answer(other)
        elif what == "take":
            client.take(other)
            client.check(cluster.views)
        else:
            cluster.happen(what, name, BROKERS[some % len(BROKERS)], some % 2)


def test_a_deleted_topic_does_not_come_back_from_a_broker_that_lags_behind() -> None:
    cluster = Recorded()
    cluster.happen("create", "a", 1, 0)
    ahead, behind = Broker(cluster), Broker(cluster)
    behind.hear(99)
    cluster.happen("delete", "a", 1, 0)
    ahead.hear(99)
    client = Client(())
    client.follow(ahead)
    client.find(behind, "a")
    for _ in range(2):
        client.answer(0)
        client.take(0)
        client.check(cluster.views)
    assert client.cache.topic("a") is None
