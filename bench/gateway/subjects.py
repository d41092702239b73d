"""The subjects of `python -m bench kafka`, in the order in which they are measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from bench.gateway import connections, formats, java, latency, throughput
from bench.gateway.comparing import Server
from bench.gateway.servers import servers
from bench.measuring import Figure

Subject: TypeAlias = Callable[[Sequence[Server]], Iterator[Figure]]

SUBJECTS: Final[Mapping[str, Subject]] = {
    "throughput": throughput.run,
    "latency": latency.run,
    "java": java.run,
    "connections": connections.run,
    "formats": formats.run,
}


def run(against: str | None = None, chosen: Sequence[str] = ()) -> Iterator[Figure]:
    """Yield the figures of the chosen subjects, or of all. `against`: the address of Apache Kafka, to measure too."""
    with servers(against) as found:
        for name in chosen or SUBJECTS:
            yield from SUBJECTS[name](found)
