"""Reading a replica's log whole, piece by piece, before it is left as the only copy (rule 1).

The log is read past its replica, from the disk, as the scrubber does it, and also where it still grows. So what looks
damaged is a suspicion only: the replica is told, and looks itself.

What must stay true: `is_through` is said only of a log that was found sound from its first segment to its end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeAlias

from raylog.actors.kernel.environment import Environment
from raylog.actors.protocol.copy_check_messages import CheckCopy, CopyChecked
from raylog.config import MIB
from raylog.errors import LogDamaged, OffsetOutOfRange
from raylog.storage.directory.partition_directory import CHECKPOINT_FILE, CHECKPOINT_VERSION, parse_marks
from raylog.storage.disk.checkpoints import read_checkpoint
from raylog.storage.disk.disk import Disk
from raylog.storage.segment.scrubbing import Scrubbed, ScrubPlace, scrub_piece, segments_from

_PIECE_BYTES: Final = 4 * MIB
_THROUGH: Final = CopyChecked(True, 0, 0, 0)

Tell: TypeAlias = Callable[[bytes, int, int], Awaitable[None]]


async def check_piece(env: Environment, directory: str, asked: CheckCopy, tell: Tell) -> CopyChecked:
    """Read some more of the log. `tell(topic id, partition, offset)` raises what its replica says to a suspicion."""
    place = ScrubPlace(asked.base_offset, asked.position, asked.next_offset)
    read = await env.off_loop(partial(_read, env.disk, directory, place))
    if read is None:
        return await _pass_if_empty(env, directory, asked, tell)
    found, base_offset, is_last = read
    if found.suspect is not None:
        try:
            await tell(asked.topic_id, asked.partition, found.suspect)
        except OffsetOutOfRange:  # a batch that is being written, behind the end; or records that are deleted by now
            return _THROUGH if is_last else _at(ScrubPlace(base_offset + 1))
        return _at(ScrubPlace(base_offset))  # it was sound: the segment has changed meanwhile
    if found.place is not None:
        return _at(found.place)
    return _THROUGH if is_last else _at(ScrubPlace(base_offset + 1))


async def _pass_if_empty(env: Environment, directory: str, asked: CheckCopy, tell: Tell) -> CopyChecked:
    """Pass a log without a segment if its replica says that it has no record. LogDamaged: it has some."""
    try:
        start = await env.off_loop(partial(_log_start, env.disk, directory))
        await tell(asked.topic_id, asked.partition, start)
    except OffsetOutOfRange:
        return _THROUGH
    except FileNotFoundError:
        pass
    raise LogDamaged(directory, 0, "no segment is there")


def _log_start(disk: Disk, directory: str) -> int:
    return read_checkpoint(disk, f"{directory}/{CHECKPOINT_FILE}", CHECKPOINT_VERSION, parse_marks).log_start_offset


def _read(disk: Disk, directory: str, place: ScrubPlace) -> tuple[Scrubbed, int, bool] | None:
    """Read a piece of the segment of that place, or of the next one; which that is, and whether it is the last.

    None: there is no segment.
    """
    segments = segments_from(disk, directory, place.base_offset)
    if not segments:
        return None
    base, end = segments[0]
    begun = place if base == place.base_offset else ScrubPlace(base)
    return scrub_piece(disk, directory, begun, end, _PIECE_BYTES), base, len(segments) == 1


def _at(place: ScrubPlace) -> CopyChecked:
    return CopyChecked(False, place.base_offset, place.position, place.next_offset)
