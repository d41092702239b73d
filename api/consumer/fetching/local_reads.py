"""Reading a leader's files instead of asking it for their bytes, where both are on one Ray node.

What must stay true: a slice is believed only if the file is the one the leader meant (its inode), and its bytes are
whole batches of the right offsets, up to the offset that the leader has named. Anything else, a file that is not there
or cannot be opened too, means None: then the same offset is fetched over the stream. A wrong CRC has the same effect,
but it is seen later, where batches are decoded: checking it here cost more than all the rest of a read. So a damaged
header must not take the reader elsewhere before.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import NamedTuple

from raylog.actors.kernel.environment import Environment
from raylog.actors.protocol.replication_messages import FileSlice
from raylog.api.consumer.rules.fetched import ChainEnd, check_chain
from raylog.errors import BatchError, DiskError
from raylog.storage.disk.disk import Disk
from raylog.storage.format.record_batch import HEADER_BYTES, read_header

_log = logging.getLogger(__name__)


class SliceRead(NamedTuple):
    data: bytes
    end: ChainEnd


async def read_slice(env: Environment, piece: FileSlice, base_offset: int, position: int) -> SliceRead | None:
    """The batches of a slice, beside the event loop; the first begins at `base_offset`."""
    return await env.off_loop(partial(_read, env.disk, piece, base_offset, position))


def _read(disk: Disk, piece: FileSlice, base_offset: int, position: int) -> SliceRead | None:
    path, inode, place, length, end_offset = piece
    try:
        file = disk.open(path)
        try:
            data = file.read_at(length, place) if file.inode() == inode else b""
        finally:
            file.close()
        if len(data) != length or length < HEADER_BYTES:
            return None  # compacted, deleted, or truncated meanwhile
        if read_header(data).base_offset != base_offset:
            return None
        end = check_chain(data, position)
        return SliceRead(data, end) if end.next_offset == end_offset else None
    except (FileNotFoundError, DiskError, BatchError) as error:
        _log.info("%s is not read from here: %s", path, error)
        return None
