"""A start of Spark when Ray has no room for it: what it says after waiting for some."""

from __future__ import annotations

import pytest
import ray

from raylog import spark_bridge
from raylog.actors.on_ray.runtime.join_ray import join_or_start_ray
from raylog.errors import SparkExecutorsMissing
from tests.cluster.conftest import ray_folder
from tests.spark.test_session import descendants_named

__all__ = ["ray_folder"]
pytestmark = [pytest.mark.soak, pytest.mark.filterwarnings("default")]


@pytest.mark.timeout(200)
@pytest.mark.usefixtures("ray_folder")
def test_executors_that_ray_has_no_room_for() -> None:
    join_or_start_ray(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    with pytest.raises(SparkExecutorsMissing, match=r"of 5 executors .* Ray has 2 CPUs"):
        spark_bridge.session("greedy", executors=5, timeout=60)
    assert descendants_named("java") == []
    ray.shutdown()
