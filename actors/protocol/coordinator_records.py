"""The records of the metadata log that say where coordinators run (rule 25). Kinds 116 and 117.

What `metadata_records.py` says of its records is true of these too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from raylog.actors.protocol.messages import Message, message

NO_RETIRED_ID: Final = -1


@message(kind=116)
@dataclass(frozen=True, slots=True)
class CoordinatorPlaced(Message):
    """The coordinator of this partition is to run on this broker's node, under this epoch; it does not serve yet.

    `producer_id` is reserved for it, and `epoch` is its producer epoch. `retired_id`: the one before it, whose epochs
    have run out. `term` counts all placements of this coordinator, under whatever producer id.
    """

    topic_id: bytes
    partition: int
    broker_id: int
    producer_id: int
    epoch: int
    retired_id: int
    term: int


@message(kind=117)
@dataclass(frozen=True, slots=True)
class CoordinatorServing(Message):
    """The coordinator that was placed under this epoch has replayed its partition, and serves here."""

    topic_id: bytes
    partition: int
    epoch: int
    endpoints: tuple[str, ...]
    pid: int
