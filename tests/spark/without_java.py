"""Runs a command that finds no Java of the system, so that Spark runs with the one from the wheel.

    python -m tests.spark.without_java make test-spark
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from raylog.actors.on_ray.runtime.java_runtime import find_java


def path_without_java(folder: Path) -> str:
    """A PATH with everything that is on it now, but for any Java."""
    for place in os.environ["PATH"].split(os.pathsep):
        for file in Path(place).iterdir() if Path(place).is_dir() else ():
            if file.name not in ("java", "javac") and not os.path.lexists(folder / file.name):
                (folder / file.name).symlink_to(file)
    assert shutil.which("java", path=str(folder)) is None
    return str(folder)


def main(command: list[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PATH": path_without_java(Path(folder))}
        environment.pop("JAVA_HOME", None)
        sys.stderr.write(f"Spark runs with {find_java(environment)}.\n")
        return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
