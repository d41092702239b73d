"""`raylog topic recover`, `raylog log list-aside` and `drop-aside`; and who is told that a partition waits."""

from __future__ import annotations

import dataclasses

import pytest

from raylog.actors.cluster.descriptions import ClusterDescription
from tests.unit.api.cli.fake_cluster import ASIDE, FakeCluster, run, run_json


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster()
    cluster.fill("clicks", 1, 4)
    return cluster


def test_all_copies_are_shown_with_what_each_misses(cluster: FakeCluster) -> None:
    shown = run(cluster, "topic", "recover", "clicks", "-p", "0")
    assert shown.exit_code == 0
    assert "none: no copy is left" in shown.stdout
    lines = [line.split() for line in shown.stdout.splitlines()[3:]]
    assert [line[:5] for line in lines] == [
        ["0", "blank", "-", "0", "100"],
        ["1", "live", "3", "70", "30"],
        ["0", "damaged", "3", "100", "0"],
    ]
    assert f"{ASIDE}; not usable: it is damaged" in shown.stdout
    cluster.unusable = ""
    usable = run(cluster, "topic", "recover", "clicks", "-p", "0").stdout
    assert f"{ASIDE}; sound up to that end, damaged behind it" in usable
    assert "do not answer: broker 2." in shown.stderr
    document = run_json(cluster, "topic", "recover", "clicks", "-p", "0")
    assert (document["leader"], document["unreachable"], len(document["copies"])) == (-1, [2], 3)


def test_a_copy_leads_only_where_the_loss_is_accepted(cluster: FakeCluster) -> None:
    refused = run(cluster, "topic", "recover", "clicks", "-p", "0", "--from", "1")
    assert refused.exit_code == 1
    assert "30 records from offset 70 on" in refused.stderr
    assert "--accept-loss" in refused.stderr
    assert not cluster.calls
    done = run(cluster, "topic", "recover", "clicks", "-p", "0", "--from", "1", "--accept-loss")
    assert "leader     broker 1" in done.stdout
    run(cluster, "topic", "recover", "clicks", "-p", "0", "--from", "0", "--aside", ASIDE, "--accept-loss")
    assert cluster.calls == [("recover", ("clicks", 0, 1, "")), ("recover", ("clicks", 0, 0, ASIDE))]
    assert run(cluster, "topic", "recover", "clicks", "-p", "0", "--accept-loss").exit_code == 2


def test_logs_that_were_set_aside_are_listed_and_dropped(cluster: FakeCluster) -> None:
    listed = run(cluster, "log", "list-aside")
    assert listed.stdout.splitlines()[1].split() == ["0", ASIDE, "4.0", "KiB", "2023-11-14T22:13:20Z", "damaged"]
    assert run_json(cluster, "log", "list-aside")["unreachable"] == [2]
    assert "is gone" in run(cluster, "log", "drop-aside", ASIDE).stdout
    assert cluster.calls == [("drop", (ASIDE, None))]
    assert run(cluster, "log", "drop-aside", "clicks-0").exit_code == 1


def test_status_and_describe_say_why_nobody_leads(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    partition = cluster.describe_topic("clicks").partitions[0]
    waiting = dataclasses.replace(partition, leader=-1, waits="no copy is left")
    before = FakeCluster.describe_cluster

    def describe(self: FakeCluster, *, timeout: float = 1) -> ClusterDescription:
        return dataclasses.replace(before(self), offline=12, waiting=(waiting,) * 12)

    monkeypatch.setattr(FakeCluster, "describe_cluster", describe)
    monkeypatch.setattr(FakeCluster, "_partition", lambda self, each: waiting)
    told = run(cluster, "status").stdout
    assert told.count("clicks-0 waits: no copy is left") == 10
    assert "and 2 more partitions" in told
    assert run_json(cluster, "status")["waiting"][0] == {"topic": "clicks", "partition": 0, "waits": "no copy is left"}
    assert "Nobody leads partition 0: no copy is left." in run(cluster, "topic", "describe", "clicks").stdout
