"""The examples of streams, as programs on the cluster that all tests share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import raylog
from examples import score_stream, train_stream

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120), pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def ours(cluster: raylog.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def small_cluster() -> Iterator[tuple[raylog.Cluster, Path]]:
        yield cluster, tmp_path

    for example in (score_stream, train_stream):
        monkeypatch.setattr(example, "small_cluster", small_cluster)


@pytest.mark.usefixtures("ours")
def test_each_comment_is_scored_once(capsys: pytest.CaptureFixture[str]) -> None:
    score_stream.main()
    assert set(capsys.readouterr().out.splitlines()) >= {
        "300 comments were scored",
        "60 more were scored",
        "the scores of 360 comments are right",
    }


@pytest.mark.usefixtures("ours")
def test_a_model_goes_on_learning_where_it_was_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    train_stream.main()
    assert set(capsys.readouterr().out.splitlines()) >= {
        "learned from 1000 records, and was stopped",
        "learned from 3000 records in all",
        "the weights are right",
    }
