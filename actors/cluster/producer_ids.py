"""Producer ids come in durable blocks, and never twice (rule 18)."""

from __future__ import annotations

from typing import Final, NamedTuple

from raylog.actors.cluster.state import ClusterState
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.metadata_records import ProducerIdBlock
from raylog.errors import InvalidConfig

BLOCK_SIZE: Final = 1000
_LARGEST_BLOCK: Final = 1_000_000


class AllocatedIds(NamedTuple):
    """The ids from `first` up to, not including, `end`; to be used once the records are committed."""

    first: int
    end: int
    records: list[Message]


def allocate_producer_ids(state: ClusterState, size: int = BLOCK_SIZE) -> AllocatedIds:
    """The next block. One whose records are lost before the commit was given to no broker, so it may be given again.

    InvalidConfig: ids only ever go up, and not by leaps.
    """
    if not 1 <= size <= _LARGEST_BLOCK:
        raise InvalidConfig("size", size, f"1 to {_LARGEST_BLOCK} producer ids")
    first = state.next_producer_id
    return AllocatedIds(first, first + size, [ProducerIdBlock(first + size)])
