"""Events that a membership, on the loop, tells the thread that polls. They hold in this order; each is handled once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from raylog.api.connection.records import OffsetAndMetadata, TopicPartition
from raylog.errors import RaylogError


class Granted(NamedTuple):
    """Read these from now on, as this member; the epoch is that of the answer that granted them."""

    partitions: frozenset[TopicPartition]
    member_id: str
    epoch: int


class AskedBack(NamedTuple):
    """Commit what is done of these, stop reading them, and say so with this number."""

    partitions: frozenset[TopicPartition]
    number: int


class Taken(NamedTuple):
    """Partitions that are another member's already."""

    partitions: frozenset[TopicPartition]


class Committed(NamedTuple):
    """Committed offsets, each with the generation of the question; None: nobody has committed one."""

    offsets: Mapping[TopicPartition, tuple[int, OffsetAndMetadata | None]]


class Ended(NamedTuple):
    """The group will not have this member, or its offsets cannot be read: for the application."""

    error: RaylogError


GroupEvent: TypeAlias = Granted | AskedBack | Taken | Committed | Ended
