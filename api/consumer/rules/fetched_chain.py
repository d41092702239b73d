"""Whether fetched bytes are what comes next: whole batches that join on to each other, from where the reader is.

What must stay true: the header fields that no CRC covers are proved by their neighbours; here they are, for bytes that
came over a stream and for those that were read from a file. The CRCs are checked where batches are looked into.
"""

from __future__ import annotations

from typing import NamedTuple

from raylog.errors import CorruptBatch
from raylog.storage.format.record_batch import CHAIN_FIELDS, Bytes, split_batches
from raylog.storage.segment.batch_scan import ChainBroken, walk_chain


class ChainEnd(NamedTuple):
    """What comes after some batches."""

    next_offset: int
    epoch: int  # of the last batch


def check_chain(data: Bytes, position: int) -> ChainEnd:
    """Whole batches, of which the first holds `position`. CorruptBatch."""
    batches = split_batches(data)
    if not batches:
        raise CorruptBatch("No batch was fetched where there must be one.")
    first, _, _, _, _ = CHAIN_FIELDS.unpack_from(data)
    size, end = _walked(data, first)
    if size != len(data) or not first <= position < end:
        raise CorruptBatch(f"Batches of the offsets {first} to {end} were fetched where {position} was asked for.")
    epochs = [CHAIN_FIELDS.unpack_from(batch)[2] for batch in batches]
    if epochs != sorted(epochs):
        raise CorruptBatch("The leader epochs of fetched batches go back.")
    return ChainEnd(end, epochs[-1])


def _walked(data: Bytes, first: int) -> tuple[int, int]:
    try:
        return walk_chain(data, first, None)
    except ChainBroken as error:
        raise CorruptBatch(f"Fetched batches do not join on to each other: {error.reason}.") from error
