"""Who has a directory is told by its lock, and under which name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from raylog.actors.on_ray.data_directories import check_runs_as, find_directories
from raylog.actors.on_ray.directory_holder import Holder, holder_of, sign
from raylog.errors import ClusterRunsAlready
from raylog.storage.directory.data_directory import BrokerIdentity, Claim, DataDirectory


@pytest.fixture
def directory(tmp_path: Path) -> str:
    return f"{tmp_path}/broker-0"


def opened(directory: str) -> DataDirectory:
    return DataDirectory.open(directory, BrokerIdentity("c1", 0), claim=Claim("drawn"))


def test_nobody_has_what_is_missing_or_closed(directory: str) -> None:
    assert holder_of(directory) is None
    one = opened(directory)
    sign(directory, "first")
    one.close()
    assert holder_of(directory) is None  # whatever is written there


def test_whoever_has_it_says_under_which_name(directory: str) -> None:
    one = opened(directory)
    assert holder_of(directory) == Holder(os.getpid())
    sign(directory, "first.one")
    assert holder_of(directory) == Holder(os.getpid(), "first.one")
    one.close()


def test_a_text_of_somebody_else_s_says_nothing(directory: str) -> None:
    one = opened(directory)
    Path(f"{directory}/.lock").write_text("what is this?")
    assert holder_of(directory) == Holder()
    one.close()


def test_looking_neither_takes_nor_keeps_the_lock(directory: str) -> None:
    opened(directory).close()
    assert holder_of(directory) is None
    opened(directory).close()


def test_a_cluster_that_runs_is_not_started_under_a_second_name(directory: str) -> None:
    one = opened(directory)
    sign(directory, "first")
    found = [(each.path, each) for each in find_directories(str(Path(directory).parent), None)]
    check_runs_as("first", found)
    with pytest.raises(ClusterRunsAlready, match=r"as 'second'.*broker-0.*runs as 'first'"):
        check_runs_as("second", found)
    one.close()
    check_runs_as("second", [(each.path, each) for each in find_directories(str(Path(directory).parent), None)])


def test_a_holder_that_has_not_said_its_name_may_be_of_any(directory: str) -> None:
    one = opened(directory)
    check_runs_as("second", [(each.path, each) for each in find_directories(str(Path(directory).parent), None)])
    one.close()
