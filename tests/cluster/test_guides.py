"""The guides, typed as they stand, one after the other on one cluster; that of Spark is tried in tests/spark."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.support.guide_run import GUIDES, GuideRun, section_of

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

_INDEX = (GUIDES / "README.md").read_text()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuideRun]:
    """A reader who has started the cluster as the index says, and stops it at the end."""
    ray_folder = tempfile.mkdtemp(prefix="rl", dir="/tmp")  # sockets need short paths
    run = GuideRun(tmp_path_factory.mktemp("guide"), {"RAY_TMPDIR": ray_folder, "RAY_ADDRESS": ""})
    try:
        run.type(section_of(_INDEX, "First"))
        try:
            yield run
        finally:
            run.type(section_of(_INDEX, "At the end"))
    finally:
        shutil.rmtree(ray_folder, ignore_errors=True)


def _type(run: GuideRun, name: str) -> list[str]:
    return run.type((GUIDES / f"{name}.md").read_text())


def test_backup_and_restore(run: GuideRun) -> None:
    """First, like the upgrade: each start brings back every partition that there is by then."""
    _type(run, "backup_and_restore")


def test_an_upgrade(run: GuideRun) -> None:
    """tests/packaging installs raylog; here git and pip only note that they were called."""
    called = run.folder / "called"
    (run.folder / "bin").mkdir()
    for name in ("git", "pip"):
        command = run.folder / "bin" / name
        command.write_text(f'#!/bin/sh\necho {name} "$@" >> {called}\n')
        command.chmod(0o755)
    _type(run, "upgrade")
    assert called.read_text().splitlines() == [
        "git -C raylog pull",
        "pip install -c raylog/constraints.txt ./raylog[arrow]",
    ]


def test_json_with_keys(run: GuideRun) -> None:
    _type(run, "json_with_keys")


def test_a_consumer_group(run: GuideRun) -> None:
    *_, printed = _type(run, "consumer_group")
    handled = [int(number) for number in re.findall(r"has handled (\d+) jobs", printed)]
    assert (len(handled), sum(handled)) == (3, 1500)


def test_ray_tasks_and_actors(run: GuideRun) -> None:
    _type(run, "ray_tasks_and_actors")


def test_an_exactly_once_copy(run: GuideRun) -> None:
    _type(run, "exactly_once_copy")


def test_every_guide_is_tried_and_in_the_index() -> None:
    pages = {page.stem for page in GUIDES.glob("*.md")} - {"README"}
    assert set(re.findall(r"\| \[[^\]]+\]\((\w+)\.md\)", _INDEX)) == pages
    tried = Path(__file__).read_text() + (Path(__file__).parents[1] / "spark" / "test_guides.py").read_text()
    assert [page for page in pages if f'"{page}' not in tried] == []
