"""Everything is killed at once, and comes back from its directories; two processes start a cluster at the same time."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.conftest import StartProgram, kill_tree

pytestmark = pytest.mark.cluster

_START = """
import json, sys, time
from raylog.actors.on_ray.runtime.join_ray import join_or_start_ray
join_or_start_ray(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
import raylog
cluster = raylog.start({data!r}, brokers={brokers}, timeout=60)
{more}
print(json.dumps({{"id": cluster.cluster_id, "topics": cluster.list_topics()}}), flush=True)
time.sleep(60)
"""
_CREATE = 'cluster.create_topic("clicks", partitions=2)'
_WAIT = """
while any(each.role == "offline" for each in cluster.describe_replicas("clicks")):
    time.sleep(0.05)
"""


def answer_of(program: subprocess.Popen[str]) -> dict[str, Any]:
    assert program.stdout is not None
    return dict(json.loads(program.stdout.readline()))


def test_everything_is_killed_and_comes_back(ray_folder: Path, tmp_path: Path, start_program: StartProgram) -> None:
    data = str(tmp_path)
    first = start_program(_START.format(data=data, brokers=2, more=_CREATE))
    before = answer_of(first)
    kill_tree(first.pid)
    assert not (tmp_path / "broker-0" / "clicks-0" / "clean-shutdown").exists()
    second = start_program(_START.format(data=data, brokers=None, more=_WAIT))
    assert answer_of(second) == before == {"id": before["id"], "topics": ["clicks"]}


def test_of_two_that_start_at_once_one_forms_and_the_other_joins(
    ray_folder: Path, tmp_path: Path, start_program: StartProgram
) -> None:
    programs = [start_program(_START.format(data=str(tmp_path), brokers=1, more="")) for _ in range(2)]
    one, other = map(answer_of, programs)
    assert one == other
