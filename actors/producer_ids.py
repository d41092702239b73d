"""Producer ids come in durable blocks, and never twice (rule 18)."""

from __future__ import annotations

from typing import Final, NamedTuple

from raylog.actors.cluster_state import ClusterState
from raylog.actors.messages import Message
from raylog.actors.metadata_records import ProducerIdBlock

BLOCK_SIZE: Final = 1000


class AllocatedIds(NamedTuple):
    """The ids from `first` up to, not including, `end`; to be used once the records are committed."""

    first: int
    end: int
    records: list[Message]


def allocate_producer_ids(state: ClusterState, size: int = BLOCK_SIZE) -> AllocatedIds:
    """The next block. One whose records are lost before the commit was handed to nobody, so it may be given again."""
    first = state.next_producer_id
    return AllocatedIds(first, first + size, [ProducerIdBlock(first + size)])
