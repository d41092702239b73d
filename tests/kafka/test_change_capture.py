"""The example of a change-data pipeline, on this process's cluster: a client of Kafka, a Ray actor, and a table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

import raylog

pytest.importorskip("kafka", reason="the extra `kafka` is not installed")

from examples import change_capture
from examples.change_writer import TOPIC, open_shop
from tests.kafka.leader_kills import ends_of
from tests.kafka.libraries import handles

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


def test_a_copy_follows_the_changes_that_a_kafka_client_writes(
    cluster: raylog.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def ours(**_: Any) -> Iterator[tuple[raylog.Cluster, Path]]:
        yield cluster, tmp_path

    monkeypatch.setattr(change_capture, "small_cluster", ours)
    capsys.readouterr()
    change_capture.main()
    lines = set(capsys.readouterr().out.splitlines())
    assert lines >= {"the copy is right", "a copy that was begun later is right"}
    with closing(open_shop(tmp_path / "shop.sqlite")) as shop:
        rows = change_capture.read_rows(shop)
        assert shop.execute("select count(*) from changes").fetchone() == (0,)
    assert len(rows) == 87
    assert _last_words() == rows
    assert ("cleanup.policy", "compact") in cluster.describe_topic(TOPIC).settings


def _last_words() -> change_capture.Rows:
    """The rows as the topic alone tells them. Each partition has some, and tombstones among its records."""
    found: change_capture.Rows = {}
    for partition, end in ends_of(TOPIC).items():
        records = handles.read("", TOPIC, partition, end)
        assert {each.value is None for each in records} == {True, False}
        for each in records:
            row = int(each.key or b"")
            found.pop(row, None)
            if each.value is not None:
                told = json.loads(each.value)
                found[row] = (told["name"], told["city"])
    return found
