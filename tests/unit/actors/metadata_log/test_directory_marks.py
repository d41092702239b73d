"""Which directory is an older copy of what it was, and who may not count on it (rules 7, 17)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raylog.actors.cluster.broker_membership import mark_directory, register_broker
from raylog.actors.metadata_log.directory_marks import outdated_voters, recorded_marks
from raylog.actors.metadata_log.rules.quorum import PromisedLog
from raylog.actors.protocol.control_messages import MarkDirectory
from raylog.actors.protocol.metadata_records import DirectoryMarked
from raylog.errors import DirectoryOutdated
from tests.unit.actors.small_cluster import SmallCluster, registration


def marked(*marks: int) -> SmallCluster:
    """Broker 1 runs, and its directory has had these marks."""
    cluster = SmallCluster(brokers=0)
    request = registration(1)
    cluster.apply(register_broker(cluster.state, cluster.live, request))
    for mark in marks:
        cluster.apply(mark_directory(cluster.state, MarkDirectory(1, request.directory_id, mark)))
    return cluster


def test_a_mark_only_rises() -> None:
    assert marked(1, 3, 2).state.brokers[1].mark == 3


def test_a_directory_that_has_less_than_was_seen_is_refused() -> None:
    cluster, request = marked(1, 2, 3), registration(1)
    for mark in (0, 2):
        with pytest.raises(DirectoryOutdated):
            register_broker(cluster.state, cluster.live, replace(request, broker_run="later", mark=mark))
    for mark in (3, 4):
        again = replace(request, broker_run="later", mark=mark)
        cluster.apply(register_broker(cluster.state, cluster.live, again))
        assert cluster.state.brokers[1].mark == 3


def test_another_directory_begins_anew() -> None:
    cluster = marked(1, 2, 3)
    cluster.live_brokers.discard(1)
    other = replace(registration(1), broker_run="later", directory_id="another", mark=0)
    cluster.apply(register_broker(cluster.state, cluster.live, other))
    assert cluster.state.brokers[1].mark == 0
    assert mark_directory(cluster.state, MarkDirectory(1, registration(1).directory_id, 9)) == []


def test_a_snapshot_keeps_it() -> None:
    state = marked(5).state
    assert recorded_marks(state.to_records()) == {(1, registration(1).directory_id): 5}


def test_a_promise_of_a_directory_that_has_less_does_not_count() -> None:
    marks = recorded_marks([DirectoryMarked(1, "a", 2), DirectoryMarked(1, "a", 3), DirectoryMarked(2, "b", 1)])
    promised = [
        PromisedLog(broker_id, directory_id, 1, 0, 5, (), mark)
        for broker_id, directory_id, mark in [(1, "a", 2), (1, "other", 0), (2, "b", 1), (3, "c", 0)]
    ]
    assert outdated_voters(promised, marks) == {(1, "a")}
