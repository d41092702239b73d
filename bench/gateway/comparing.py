"""Two servers that are asked the same by the same clients, in turns: raylog through its gateways, and Apache Kafka."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from bench.measuring import Figure

if TYPE_CHECKING:
    from bench.partitions.kafka import KafkaCluster

RAYLOG: Final = "raylog"
KAFKA: Final = "Kafka"
ROUNDS: Final = 3


class Server(NamedTuple):
    """A cluster that Kafka's clients are sent to."""

    name: str
    address: str
    admin: KafkaCluster


def in_turns(measures: Sequence[Callable[[], float]], rounds: int = ROUNDS) -> list[list[float]]:
    """Take each measure so many times, one after the other, after a round to warm up."""
    for measure in measures:
        measure()
    taken = [[measure() for measure in measures] for _ in range(rounds)]
    return [list(each) for each in zip(*taken, strict=True)]


def compared(
    name: str, unit: str, found: Sequence[tuple[Server, Sequence[float]]], goal: float, *, smaller: bool = False
) -> Iterator[Figure]:
    """Yield a figure for each server, and raylog's part of Kafka's, which has the goal."""
    for server, rounds in found:
        yield Figure(f"{name}, {server.name}", rounds, unit, smaller_is_better=smaller)
    if len(found) > 1:
        (_, ours), (_, theirs) = found
        middle = statistics.median(theirs)
        yield Figure(f"{name}, ratio", [each / middle for each in ours], "of Kafka's", goal, smaller)
