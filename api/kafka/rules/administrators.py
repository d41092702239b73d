"""The meaning of requests of administrators: times, default numbers, assignments, settings, by Kafka's rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from raylog.errors import InvalidConfig, InvalidRequest

DEFAULT: Final = -1  # of partitions or replicas: as the cluster does it
MOST_PARTITIONS_AT_ONCE: Final = 10_000  # in one request, as in Kafka
_LEAST_SECONDS: Final = 5.0  # some clients give no time and do not mean it: librdkafka's default is 0
_MOST_SECONDS: Final = 300.0
_PART: Final = 0.9  # of the time that a client gives is used, so that the answer is there before it gives up


def seconds_for(timeout_ms: int) -> float:
    """Return how long a request of an administrator may take."""
    return max(_LEAST_SECONDS, min(_MOST_SECONDS, _PART * timeout_ms / 1000))


def assigned(assignments: Iterable[tuple[int, Sequence[int]]]) -> list[list[int]] | None:
    """Return the brokers of each partition, in order, of (partition, brokers). None: nothing is assigned.

    InvalidRequest: the partitions are not 0, 1, 2, …, each once.
    """
    found = sorted((number, list(brokers)) for number, brokers in assignments)
    if [number for number, _ in found] != list(range(len(found))):
        raise InvalidRequest("Replicas are to be named for the partitions 0, 1, 2, and so on, each once.")
    return [brokers for _, brokers in found] or None


def settings_of(configs: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    """Return the settings of a new topic. InvalidRequest: one is named twice. InvalidConfig: one has no value."""
    settings: dict[str, str] = {}
    for name, value in configs:
        if name in settings:
            raise InvalidRequest(f"Setting {name!r} is given twice.")
        if value is None:
            raise InvalidConfig(name, value, "a value")
        settings[name] = value
    return settings
