"""A stream of Ray Data copies a topic while driver, workers, leaders and coordinators are killed, KILLS (50) in all."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from random import Random

import pytest

from raylog.api.admin.cluster import Cluster
from tests.data.stream_kills import KilledStream

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.soak,
    pytest.mark.timeout(0),
    pytest.mark.filterwarnings("ignore"),
]


def tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def test_each_record_is_copied_once_whatever_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    kills, seed = int(os.environ.get("KILLS", "50")), int(os.environ.get("SEED", "1"))
    with KilledStream(cluster, Random(seed), tmp_path, "events", "copies") as stream:
        stream.run(kills, tell)
        stream.check()
    tell(str(stream.report))
