"""Kafka's own tools, in Java: ProducerPerformance, ConsumerPerformance, EndToEndLatency."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from bench.gateway.comparing import ROUNDS, Server, compared, in_turns
from bench.kafka_peer.jars import JARS, fetched_jars
from bench.kafka_peer.programs import LASTING, JavaPrograms
from bench.measuring import Figure

_PARTITIONS: Final = 4
_RECORDS: Final = 500_000
_ONE_BY_ONE: Final = 3_000
_SECONDS: Final = 120.0
_GOAL: Final = 1.0
_LATENCY_GOAL: Final = 0.5


def run(found: Sequence[Server]) -> Iterator[Figure]:
    if shutil.which("java") is None:
        print("No java in the path: Kafka's own tools are left out.")
        return
    jars, folder = fetched_jars(JARS), Path(tempfile.mkdtemp(prefix="raylog-bench-java-"))
    tools = {server: JavaPrograms(jars, server.address, folder, LASTING) for server in found}
    for server in found:
        server.admin.create("java", _PARTITIONS, 3)
        server.admin.create("java-latency", 1, 3)
    rounds = in_turns([partial(_produced, tools[server]) for server in found])
    yield from compared("ProducerPerformance, RF 3", "M records/s", list(zip(found, rounds, strict=True)), _GOAL)
    rounds = in_turns([partial(_consumed, tools[server]) for server in found])
    yield from compared("ConsumerPerformance", "M records/s", list(zip(found, rounds, strict=True)), _GOAL)
    taken = [[_latencies(tools[server]) for server in found] for _ in range(ROUNDS)]
    for place, name in enumerate(("mean", "p99")):
        of_servers = [[each[place] for each in of] for of in zip(*taken, strict=True)]
        pairs = list(zip(found, of_servers, strict=True))
        yield from compared(f"EndToEndLatency, RF 3, {name}", "ms", pairs, _LATENCY_GOAL, smaller=True)
    for server in found:
        server.admin.delete("java")
        server.admin.delete("java-latency")
    shutil.rmtree(folder)


def _produced(tools: JavaPrograms) -> float:
    told = tools.run(
        "org.apache.kafka.tools.ProducerPerformance", "--topic", "raylog-bench-java", "--num-records", str(_RECORDS),
        "--record-size", "100", "--throughput", "-1", "--producer-props", f"bootstrap.servers={tools.bootstrap}",
        "acks=all", "batch.size=16384", "linger.ms=5", seconds=_SECONDS,
    )  # fmt: skip
    return float(_number(rf"{_RECORDS} records sent, ([\d.]+) records/sec", told)) / 1e6


def _consumed(tools: JavaPrograms) -> float:
    arguments = ("--topic", "raylog-bench-java", "--messages", str(_RECORDS))
    told = tools.tool("ConsumerPerformance", *arguments, seconds=_SECONDS)
    return float(told.splitlines()[-1].split(", ")[5]) / 1e6


def _latencies(tools: JavaPrograms) -> tuple[float, float]:
    """Return the mean and the 99th percentile."""
    told = tools.run(
        "org.apache.kafka.tools.EndToEndLatency", tools.bootstrap, "raylog-bench-java-latency", str(_ONE_BY_ONE), "all",
        "100", seconds=_SECONDS,
    )  # fmt: skip
    return float(_number(r"Avg latency: ([\d.]+) ms", told)), float(_number(r"99th = (\d+)", told))


def _number(pattern: str, told: str) -> str:
    found = re.search(pattern, told)
    if found is None:
        raise ValueError(f"{pattern!r} is not in what the tool said:\n{told}")
    return found.group(1)
