"""Choice of a record's partition.

    name           a record with a key           a record without one
    default        murmur2 of the key            one partition until a batch of it is full, then another (KIP-480)
    round_robin    one after the other           likewise
    random         any                           likewise
    least_loaded   the one with the fewest       likewise
                   bytes that are not sent
    source_hash    murmur2 of client id and      likewise: all that a program sends stays in order
                   host

A callable of kafka-python's form may stand for a name: `partitioner(key, all_partitions, available)` returns a
partition's number; `available` are those that have a leader now, all of them where none has.

What must stay true: the same key goes to the same partition as from any Kafka client, as long as the topic does not
get more of them. Nothing here is shared between threads but what is read and replaced whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final, TypeAlias

from raylog.storage.format.murmur2 import murmur2, partition_of_hash

PARTITIONERS: Final = ("default", "round_robin", "random", "least_loaded", "source_hash")

Partitioner: TypeAlias = Callable[[bytes | None, Sequence[int], Sequence[int]], int]
Load: TypeAlias = Callable[[int], int]  # the bytes of a partition that are not sent yet


def partition_of_key(key: bytes, partitions: int) -> int:
    """Return the partition of a key, as Kafka's clients choose it."""
    return partition_of_hash(murmur2(key), partitions)


def next_sticky(current: int, partitions: int, available: Sequence[int], random: Random) -> int:
    """Another partition than the current one, where there is one, each as likely as the others (KIP-794)."""
    choices = available or range(partitions)
    others = [each for each in choices if each != current]
    return random.choice(others) if others else choices[0]


class RoundRobin:
    """One after the other, beginning anywhere, so that many producers do not march in step."""

    def __init__(self, random: Random) -> None:
        self._turn = random.randrange(2**31)

    def __call__(self, _key: bytes | None, every: Sequence[int], available: Sequence[int]) -> int:
        choices = available or every
        self._turn += 1
        return choices[self._turn % len(choices)]


class AnyOf:
    """Each as likely as the others."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def __call__(self, _key: bytes | None, every: Sequence[int], available: Sequence[int]) -> int:
        return self._random.choice(available or every)


class LeastLoaded:
    """The one with the fewest bytes that wait here; among equals, any."""

    def __init__(self, random: Random, load: Load) -> None:
        self._random = random
        self._load = load

    def __call__(self, _key: bytes | None, every: Sequence[int], available: Sequence[int]) -> int:
        loads = {each: self._load(each) for each in available or every}
        least = min(loads.values())
        return self._random.choice([each for each, load in loads.items() if load == least])


class SourceHash:
    """Always the same one, by who sends. It counts all partitions: it must not move when a leader is missing."""

    def __init__(self, source: bytes) -> None:
        self._hashed = murmur2(source)

    def __call__(self, _key: bytes | None, every: Sequence[int], _available: Sequence[int]) -> int:
        return every[partition_of_hash(self._hashed, len(every))]


def make_partitioner(chosen: str | Partitioner, random: Random, load: Load, source: bytes) -> Partitioner | None:
    """The partitioner of one topic. None: the default one, which `buffer/topic_routes.py` does by itself."""
    if not isinstance(chosen, str):
        return chosen
    if chosen == "default":
        return None
    if chosen == "round_robin":
        return RoundRobin(random)
    if chosen == "random":
        return AnyOf(random)
    if chosen == "least_loaded":
        return LeastLoaded(random, load)
    return SourceHash(source)
