"""Apache Kafka's jars: Maven fetches them once, with all that they need, into a directory."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

VERSION: Final = "4.1.0"
POM: Final = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>bench</groupId>
  <artifactId>kafka-peer</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>{VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""


class MavenFailed(Exception):
    """Maven did not fetch the jars; the text is what it said."""


def fetched_jars(directory: Path) -> Path:
    """Return the folder of the jars, which is filled at the first call. MavenFailed."""
    jars = directory / f"kafka-{VERSION}"
    if jars.is_dir():
        return jars
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fetching-", dir=directory) as folder:
        pom, filled = Path(folder) / "pom.xml", Path(folder) / "jars"
        pom.write_text(POM)
        _maven("-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={filled}")
        os.rename(filled, jars)  # so that a folder of this name is complete
    return jars


def _maven(*arguments: str) -> None:
    program = shutil.which("mvn")
    if program is None:
        raise MavenFailed("There is no mvn in the path: install Maven, or put Kafka's jars there yourself.")
    done = subprocess.run([program, "-q", "-B", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise MavenFailed(f"mvn ended with {done.returncode}:\n{done.stdout}{done.stderr}")
