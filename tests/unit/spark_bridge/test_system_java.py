"""The tests of Spark on a Java of the system: what is taken for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.with_system_java import system_java
from tests.unit.actors.on_ray.test_java_runtime import make_java


def test_a_java_17_of_the_system_is_taken(tmp_path: Path) -> None:
    make_java(tmp_path, "17.0.15")
    assert system_java({"PATH": f"{tmp_path}/bin"}) == tmp_path


def test_without_one_the_wheel_is_no_way_out(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no java is on PATH, JAVA_HOME is not set"):
        system_java({"PATH": str(tmp_path)})
    make_java(tmp_path, "21.0.1")
    with pytest.raises(SystemExit, match="bin/java is of version 21, JAVA_HOME is /nowhere"):
        system_java({"PATH": f"{tmp_path}/bin", "JAVA_HOME": "/nowhere"})
