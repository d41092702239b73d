"""Hypothesis profiles, and Ctrl-C, for every test folder; and one Ray, with one cluster, for those that want them.

`ci` (the default) draws the same examples on every run, so a failure is the change's own. `deep` draws
others, and many more: HYPOTHESIS_PROFILE=deep make test-unit
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    import raylog

settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.register_profile(
    "deep",
    deadline=None,
    derandomize=False,
    print_blob=True,
    max_examples=5_000,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# A shell's background jobs are born deaf to Ctrl-C, and so are their children. Some tests press it.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def process_ray() -> Iterator[Path]:
    """Ray in this process, once for all its tests. Returns its folder."""
    import ray

    from raylog.actors.on_ray.runtime.join_ray import join_or_start_ray

    with folder_for_ray() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", str(folder))
        patch.delenv("RAY_ADDRESS", raising=False)
        join_or_start_ray(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        yield folder
        ray.shutdown()


@pytest.fixture(scope="session")
def cluster(process_ray: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[raylog.Cluster]:
    """Three brokers for all tests of a process, found under the default name: each test has topics of its own."""
    import raylog

    kafka = "127.0.0.1:0" if find_spec("kafka") is not None else None  # the extra `kafka`
    running = raylog.start(tmp_path_factory.mktemp("cluster"), brokers=3, kafka=kafka)
    yield running
    running.shutdown()


@contextlib.contextmanager
def folder_for_ray() -> Iterator[Path]:
    """A folder in which Ray may put its sockets: their names have to be short."""
    folder = Path(tempfile.mkdtemp(prefix="rl", dir="/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
