"""The rules for names of topics, groups, families and transactional ids, and raylog's own topics.

Topics: Kafka's rules. Two names collide if they differ only in dots and underscores, because `a.b` and `a_b` would have
the same metrics. Four names are raylog's own; all others are free, also with two underscores in front, since tools of
Kafka have such topics (`__debezium-heartbeat.shop`). Two of the four have coordinators; the hash of its name says to
which partition a group or a transaction belongs.

Ids, groups and families: no control characters, since one of them separates a family from the number of its member
(`rules/family.py`). No halves of surrogate pairs, which text on the wire cannot contain.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from raylog.errors import InvalidTopicName, InvalidTransactionalId
from raylog.storage.format.murmur2 import murmur2

MAX_NAME_LENGTH: Final = 249
OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
METADATA_TOPIC: Final = "__cluster_metadata"  # the log of the cluster's state, beside the replicas
SHARE_TOPIC: Final = "__share_group_state"  # Kafka's, of groups that share partitions; kept free for that
COORDINATED_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})
OWN_TOPICS: Final = COORDINATED_TOPICS | {METADATA_TOPIC, SHARE_TOPIC}

_LEGAL: Final = re.compile(r"[A-Za-z0-9._-]+")


def check_topic_name(name: str, *, internal: bool = False) -> None:
    """Raise InvalidTopicName where no topic may have that name. `internal`: it may be one of raylog's own."""
    if not name:
        raise InvalidTopicName(name, "it is empty")
    if name in (".", ".."):
        raise InvalidTopicName(name, "that is a directory")
    if len(name) > MAX_NAME_LENGTH:
        raise InvalidTopicName(name, f"it has {len(name)} characters, of at most {MAX_NAME_LENGTH}")
    if not _LEGAL.fullmatch(name):
        raise InvalidTopicName(name, "it holds other characters than letters, digits, '.', '_' and '-'")
    if collision_key(name) in OWN_TOPICS and not internal:
        raise InvalidTopicName(name, f"{collision_key(name)!r} is raylog's own")


def collision_key(name: str) -> str:
    """Return a key that is the same for names that may not exist together."""
    return name.replace(".", "_")


def is_internal(name: str) -> bool:
    return name in OWN_TOPICS


FAMILY_SEPARATOR: Final = "\x1f"  # between the name of a family and a member's number, see `rules/family.py`


@lru_cache(4096)
def coordinator_hash(name: str) -> int:
    """Return the hash of a transactional id. Modulo the number of coordinators it gives its partition.

    Of a member of a family only the family counts, so that all of them have one coordinator.
    """
    return _hash(name.partition(FAMILY_SEPARATOR)[0])


@lru_cache(4096)
def group_hash(group: str) -> int:
    """Return the hash of a group's whole name, which gives its partition likewise."""
    return _hash(group)


def _hash(name: str) -> int:
    return murmur2(name.encode("utf-8", "surrogatepass")) & 0x7FFFFFFF


MAX_ID_BYTES: Final = 1024
MAX_FAMILY_BYTES: Final = MAX_ID_BYTES - 12  # room for a member's number in its transactional id

_REFUSED: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def refused_character(name: str) -> str:
    """Return the first character that no name may have; empty: there is none."""
    found = _REFUSED.search(name)
    return "" if found is None else found[0]


def check_transactional_id(name: str, maximum: int = MAX_ID_BYTES) -> None:
    """Raise InvalidTransactionalId where it cannot be one."""
    size = len(name.encode(errors="replace"))
    refused = refused_character(name)
    if refused or not 0 < size <= maximum:
        raise InvalidTransactionalId(size, maximum, ascii(refused) if refused else "")
