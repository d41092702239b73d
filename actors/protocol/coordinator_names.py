"""The internal topics that have coordinators, and which of their partitions a group or transaction belongs to."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from raylog.storage.format.murmur2 import murmur2

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
COORDINATED_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})
FAMILY_SEPARATOR: Final = "\x1f"  # between the name of a family and a member's number, see `rules/family.py`


@lru_cache(4096)
def coordinator_hash(name: str) -> int:
    """Of a transactional id: the remainder by the number of coordinators says whose it is.

    Of a member of a family only the family counts, so that all of them have one coordinator.
    """
    return _hash(name.partition(FAMILY_SEPARATOR)[0])


@lru_cache(4096)
def group_hash(group: str) -> int:
    """The same of a group, of whose name all counts. For whoever asks its coordinator, on whichever side."""
    return _hash(group)


def _hash(name: str) -> int:
    return murmur2(name.encode("utf-8", "surrogatepass")) & 0x7FFFFFFF
