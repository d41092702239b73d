"""Apache Kafka's jars: Maven fetches them once, with all that they need, into a directory."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

VERSION: Final = "4.1.0"
JARS: Final = Path(__file__).parents[2] / ".jars"
"""Where tests and benchmarks keep them, below the checkout."""


class JarSet(NamedTuple):
    """Artifacts that are used together, as `group:artifact:version`; and the folder that they are kept in."""

    folder: str
    artifacts: tuple[str, ...]


KAFKA: Final = JarSet(
    f"kafka-{VERSION}",
    (
        *(
            f"org.apache.kafka:{each}:{VERSION}"
            for each in ("kafka_2.13", "kafka-tools", "connect-runtime", "connect-file", "connect-json")
        ),
        "org.slf4j:slf4j-simple:1.7.36",  # so that they say what is wrong
    ),
)
"""The brokers, the tools, and Kafka Connect with its connectors for files."""


class MavenFailed(Exception):
    """Maven did not fetch the jars; the text is what it said."""


def fetched_jars(directory: Path, wanted: JarSet = KAFKA) -> Path:
    """Return the folder of the jars, with all that they need. It is filled at the first call. MavenFailed."""
    jars = directory / wanted.folder
    if jars.is_dir():
        return jars
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fetching-", dir=directory) as folder:
        pom, filled = Path(folder) / "pom.xml", Path(folder).resolve() / "jars"  # Maven goes to where the pom lies
        pom.write_text(pom_of(wanted))
        _maven("-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={filled}")
        os.rename(filled, jars)  # so that a folder of this name is complete
    return jars


def pom_of(wanted: JarSet) -> str:
    """Return what Maven is asked with."""
    triples = [each.split(":") for each in wanted.artifacts]
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, artifact, version in triples
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>bench</groupId><artifactId>jars</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


def _maven(*arguments: str) -> None:
    program = shutil.which("mvn")
    if program is None:
        raise MavenFailed("There is no mvn in the path: install Maven, or put Kafka's jars there yourself.")
    done = subprocess.run([program, "-q", "-B", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise MavenFailed(f"mvn ended with {done.returncode}:\n{done.stdout}{done.stderr}")
