"""The example that scores a stream, as a program on the cluster that all tests share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import raylog
from examples import score_stream

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120), pytest.mark.filterwarnings("ignore")]


def test_each_comment_is_scored_once(
    cluster: raylog.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def ours() -> Iterator[tuple[raylog.Cluster, Path]]:
        yield cluster, tmp_path

    monkeypatch.setattr(score_stream, "small_cluster", ours)
    score_stream.main()
    assert set(capsys.readouterr().out.splitlines()) >= {
        "300 comments were scored",
        "60 more were scored",
        "the scores of 360 comments are right",
    }
