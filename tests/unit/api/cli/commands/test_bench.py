"""What `raylog bench` does with figures and with what goes wrong; nothing is measured here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from raylog.api.cli.terminal.exit_codes import FAILED, INTERRUPTED, OK, USAGE
from raylog.api.workloads.driver import Target
from raylog.api.workloads.workload import Outcome, Workload, latency_of
from raylog.errors import WorkloadFailed
from tests.unit.api.cli.fake_cluster import FakeCluster, run

_GRID = ("bench", "-p", "1,2,3", "--seconds", "1")


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> dict[int, BaseException | None]:
    """By partitions, in the order in which they were measured: None, or what to end it with."""
    ends: dict[int, BaseException | None] = {}

    def measure(target: Target, load: Workload, _tell: Any) -> Outcome:
        end = ends.setdefault(load.partitions, None)
        if end is not None:
            raise end
        latency = latency_of([0.001, 0.002])
        return Outcome(load, target.kind, "1", "in memory", 1000.0 * load.partitions, latency, latency, 9, 5000.0)

    monkeypatch.setattr("raylog.api.workloads.measuring.measure", measure)
    return ends


def test_each_point_is_told_when_it_is_measured_and_all_at_the_end(measured: dict[int, BaseException | None]) -> None:
    ended = run(FakeCluster(), *_GRID)
    assert ended.exit_code == OK
    assert ended.stderr.splitlines() == [
        f"raylog: raylog {count}p-100b-rf3-acksall: {count},000 records/s, publish p99 2.00 ms" for count in (1, 2, 3)
    ]
    assert [line.split()[1:3] for line in ended.stdout.splitlines()[1:4]] == [
        [f"{count}p-100b-rf3-acksall", f"{count},000"] for count in (1, 2, 3)
    ]


def test_a_point_that_fails_is_left_out_and_named(measured: dict[int, BaseException | None], tmp_path: Path) -> None:
    measured[2] = WorkloadFailed("raylog", "its consumer ended")
    ended = run(FakeCluster(), *_GRID, "--html", str(tmp_path / "page.html"), "--format", "json")
    assert (ended.exit_code, list(measured)) == (FAILED, [2, 1, 3])
    report = json.loads(ended.stdout)
    assert [each["workload"][:2] for each in report["results"]] == ["1p", "3p"]
    assert report["left_out"] == {"raylog 2p-100b-rf3-acksall": "its consumer ended"}
    assert ended.stderr.splitlines()[-1] == "raylog: 1 of 3 points could not be measured."
    assert "Not measured: raylog 2p-100b-rf3-acksall" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(("end", "code"), [(KeyboardInterrupt(), INTERRUPTED), (ZeroDivisionError(), FAILED)])
def test_what_was_measured_before_an_end_is_kept(
    measured: dict[int, BaseException | None], tmp_path: Path, end: BaseException, code: int
) -> None:
    measured[3] = end
    ended = run(FakeCluster(), *_GRID, "--json", str(tmp_path / "figures.json"))
    assert ended.exit_code == code
    assert "2p-100b-rf3-acksall" in ended.stdout
    assert len(json.loads((tmp_path / "figures.json").read_text())["results"]) == 2


def test_an_end_before_the_first_figure_leaves_the_files_of_the_last_run(
    measured: dict[int, BaseException | None], tmp_path: Path
) -> None:
    measured[1] = KeyboardInterrupt()
    (tmp_path / "figures.json").write_text("of yesterday")
    ended = run(FakeCluster(), *_GRID, "--json", str(tmp_path / "figures.json"))
    assert (ended.exit_code, ended.stdout) == (INTERRUPTED, "")
    assert (tmp_path / "figures.json").read_text() == "of yesterday"


@pytest.mark.parametrize("option", ["--json", "--html"])
def test_a_file_that_cannot_be_written_is_told_before_anything_is_measured(
    measured: dict[int, BaseException | None], tmp_path: Path, option: str
) -> None:
    ended = run(FakeCluster(), *_GRID, option, str(tmp_path / "missing" / "file"))
    assert (ended.exit_code, measured) == (USAGE, {})
    assert f"there is no folder '{tmp_path}/missing'" in ended.stderr
    ended = run(FakeCluster(), *_GRID, option, str(tmp_path))
    assert (ended.exit_code, measured) == (USAGE, {})
