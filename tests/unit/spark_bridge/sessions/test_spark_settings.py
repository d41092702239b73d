"""What Spark is told."""

from __future__ import annotations

import pytest

from raylog import spark_bridge
from raylog.spark_bridge.sessions.rules.settings import JAVA_OPTIONS, spark_settings

PLACES = (
    "spark.driver.extraJavaOptions",
    "spark.executor.extraJavaOptions",
    "spark.ray.raydp_app_master.extraJavaOptions",
)


def test_java_is_opened_everywhere_and_logs_where_ray_does() -> None:
    settings = spark_settings(2, "/ray/logs", {})
    assert all(settings[place].startswith(JAVA_OPTIONS) for place in PLACES)
    assert settings[PLACES[0]].endswith("-Dray.logging.dir=/ray/logs")


def test_the_master_alone_does_without_a_second_compiler() -> None:
    settings = spark_settings(2, "", {})
    assert ["-XX:TieredStopAtLevel=1" in settings[place] for place in PLACES] == [False, False, True]


def test_the_master_is_kept_where_a_java_is() -> None:
    name = "spark.ray.raydp_spark_master.actor.resource."
    assert not any(key.startswith(f"{name}node:") for key in spark_settings(2, "", {}))
    settings = spark_settings(2, "", {}, "node:10.0.0.1")
    assert (settings[f"{name}node:10.0.0.1"], settings[f"{name}CPU"]) == ("0.001", "0")


def test_what_the_caller_says_wins_and_java_options_are_added() -> None:
    given = {"spark.sql.shuffle.partitions": 7, "spark.ui.enabled": False, PLACES[1]: "-Xss4m"}
    settings = spark_settings(2, "/ray/logs", given)
    assert settings["spark.sql.shuffle.partitions"] == "7"
    assert settings["spark.ui.enabled"] == "false"
    assert settings[PLACES[1]] == f"{JAVA_OPTIONS} -Xss4m"


@pytest.mark.parametrize(("cores", "partitions"), [(1, "2"), (2, "2"), (16, "16")])
def test_a_shuffle_has_as_many_parts_as_there_are_cores(cores: int, partitions: str) -> None:
    assert spark_settings(cores, "", {})["spark.sql.shuffle.partitions"] == partitions


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match=r"'raylog.spark_bridge' has no attribute 'sesion'"):
        getattr(spark_bridge, "sesion")  # noqa: B009
    assert set(spark_bridge.__all__) <= set(dir(spark_bridge))
