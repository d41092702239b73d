"""Runs the integration tests of Kafka's client libraries, from their source trees, against raylog's gateways.

    python -m tests.kafka.suites kafka-python TREE       the source tree of dpkp/kafka-python
    python -m tests.kafka.suites confluent-kafka TREE    of confluentinc/confluent-kafka-python

The tests run in an environment of their own, which is made at the first time beside `.venv`. What became of each is
printed as a table.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import click

import raylog
from bench.real_cluster import own_ray
from tests.kafka.suite_report import as_table, outcomes_of

_REPOSITORY: Final = Path(__file__).parents[2]
_SECONDS_A_TEST: Final = 90  # kafka-python waits for 60 where a test of its own leaves it to the default
_SETTINGS: Final[dict[str, str | int]] = {"auto.create.topics.enable": "true", "num.partitions": 4}


class Suite(NamedTuple):
    """`packages` are what its tests need beside pytest; a name that begins with `./` is a file of the tree."""

    packages: tuple[str, ...]
    folders: tuple[str, ...]
    environment: Callable[[Sequence[str], Path], Mapping[str, str]]  # of the gateways' addresses and the tree


SUITES: Final = {
    "kafka-python": Suite(
        ("cramjam", "crc32c", "lz4", "py", "python-snappy", "zstandard"),
        ("test/integration",),
        # It wants a folder of Kafka's to be there, also where it starts no broker.
        lambda addresses, tree: {
            "KAFKA_VERSION": "4.1", "KAFKA_URI": f"kafka://{addresses[0]}", "KAFKA_ROOT": str(tree)
        },
    ),
    "confluent-kafka": Suite(
        (
            "attrs", "authlib", "avro", "cachetools", "cel-python", "certifi", "confluent-kafka", "fastavro",
            "google-re2", "googleapis-common-protos", "httpx", "jsonschema", "orjson", "protobuf", "pytest-asyncio",
            "requests", "./tests/trivup/trivup-0.14.0.tar.gz",
        ),
        ("tests/integration/admin", "tests/integration/consumer", "tests/integration/producer"),
        lambda addresses, _: {"BROKERS": ",".join(addresses)},
    ),
}  # fmt: skip


@click.command()
@click.argument("name", type=click.Choice(list(SUITES)))
@click.argument("tree", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--only", help="Only tests whose names match, as pytest's -k takes it.")
@click.option("--seconds", default=1_800, show_default=True, help="Begin no test after so long.")
def main(name: str, tree: Path, only: str | None, seconds: int) -> None:
    """Run the integration tests of a library in TREE against a cluster of three brokers, and print what they did."""
    suite, tree = SUITES[name], tree.resolve()
    python = environment_for(name, suite, tree)
    with own_ray() as folder, tempfile.TemporaryDirectory() as told:
        cluster = raylog.start(f"{folder}/data", brokers=3, kafka="127.0.0.1:0")
        cluster.alter_cluster_config(_SETTINGS)
        report = Path(told) / "report.xml"
        command = [
            str(python), "-m", "pytest", *suite.folders, f"--junitxml={report}", "-q", "-p", "no:cacheprovider",
            "--tb=native", f"--timeout={_SECONDS_A_TEST}", "--timeout-method=signal",
            f"--session-timeout={seconds}", *(("-k", only) if only else ()),
        ]  # fmt: skip
        environment = {"PATH": f"{python.parent}:/usr/bin:/bin", **suite.environment(cluster.kafka_addresses(), tree)}
        subprocess.run(command, cwd=tree, env=environment, check=False, stdout=sys.stderr)
        cluster.shutdown()
        outcomes = outcomes_of(report.read_text())
    click.echo(as_table(outcomes))


def environment_for(name: str, suite: Suite, tree: Path) -> Path:
    """Return the Python of an environment with what the suite needs."""
    folder = _REPOSITORY / f".venv-{name}"
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        packages = [str(tree / each) if each.startswith("./") else each for each in suite.packages]
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        subprocess.run([*pip, "pytest", "pytest-timeout", *packages], check=True)
    return python


if __name__ == "__main__":
    main()
