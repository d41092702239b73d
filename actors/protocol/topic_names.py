"""Which names a topic may have: Kafka's rules.

Dots and underscores count as the same when names are compared: a metric's name cannot tell `a.b` from `a_b`.
"""

from __future__ import annotations

import re
from typing import Final

from raylog.errors import InvalidTopicName

MAX_NAME_LENGTH: Final = 249
INTERNAL_PREFIX: Final = "__"
METADATA_TOPIC: Final = "__cluster_metadata"  # the log of the cluster's state, beside the replicas

_LEGAL: Final = re.compile(r"[A-Za-z0-9._-]+")


def check_topic_name(name: str, *, internal: bool = False) -> None:
    """InvalidTopicName where no topic may be called that; names that start with `__` are raylog's own."""
    if not name:
        raise InvalidTopicName(name, "it is empty")
    if name in (".", ".."):
        raise InvalidTopicName(name, "that is a directory")
    if len(name) > MAX_NAME_LENGTH:
        raise InvalidTopicName(name, f"it has {len(name)} characters, of at most {MAX_NAME_LENGTH}")
    if not _LEGAL.fullmatch(name):
        raise InvalidTopicName(name, "it holds other characters than letters, digits, '.', '_' and '-'")
    if name.startswith(INTERNAL_PREFIX) and not internal:
        raise InvalidTopicName(name, f"names that start with {INTERNAL_PREFIX!r} are raylog's own")


def collision_key(name: str) -> str:
    """The same for names that may not be there together."""
    return name.replace(".", "_")


def is_internal(name: str) -> bool:
    return name.startswith(INTERNAL_PREFIX)
