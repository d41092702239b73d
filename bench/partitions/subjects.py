"""The subjects of `python -m bench partitions`, in the order in which they are measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from bench.measuring import Figure
from bench.partitions import creation, cuts, failover, groups, neighbours, restart, ten_thousand, traffic
from bench.partitions.kafka import KafkaCluster

Subject: TypeAlias = Callable[[KafkaCluster | None], Iterator[Figure]]

SUBJECTS: Final[Mapping[str, Subject]] = {
    "creation": creation.run,
    "failover": failover.run,
    "restart": restart.run,
    "traffic": traffic.run,
    "groups": groups.run,
    "neighbours": neighbours.run,
    "cuts": cuts.run,
    "ten-thousand": ten_thousand.run,
}
_ASKED_FOR: Final = {"ten-thousand"}  # those that take minutes by themselves, and are measured only if named


def run(kafka: str | None = None, chosen: Sequence[str] = ()) -> Iterator[Figure]:
    """Yield the figures of the chosen subjects, or of all but the long ones. `kafka`: its address, to measure too."""
    peer = None if kafka is None else KafkaCluster(kafka)
    for name in chosen or [each for each in SUBJECTS if each not in _ASKED_FOR]:
        yield from SUBJECTS[name](peer)
