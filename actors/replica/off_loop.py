"""Slow work on a replica's files beside its event loop, with what its failure means for the log.

A failed write or sync is final wherever it was done (rule 2). Damage is for `DamageCare` to look at; what was found
while the log was cut is none: it was the cut that was seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from raylog.actors.replica.hosted_log import HostedLog
from raylog.errors import DiskFailed, LogDamaged
from raylog.storage.segment.segment import Segment

_T = TypeVar("_T")


async def beside(hosted: HostedLog, work: Callable[[], _T]) -> _T:
    """Do `work` off the loop; a log whose disk fails in it goes offline."""
    shape = hosted.log.shape
    try:
        return await hosted.env.off_loop(work)
    except (DiskFailed, LogDamaged) as error:
        if isinstance(error, DiskFailed):
            hosted.log.go_offline(error)
        elif hosted.log.shape == shape:
            hosted.log.when_damaged(error)
        hosted.check_offline()
        raise


async def date_segments(hosted: HostedLog, segments: Sequence[Segment]) -> None:
    """Have the largest timestamps of sealed segments in memory. None of them may be replaced meanwhile."""
    undated = [segment for segment in segments if not segment.is_dated]
    if not undated:
        return
    shape = hosted.log.shape
    found = await beside(hosted, partial(_find_timestamps, undated))
    if hosted.log.shape == shape:
        for segment, timestamp in zip(undated, found, strict=False):
            segment.date(timestamp)


def _find_timestamps(segments: Sequence[Segment]) -> list[int]:
    """Up to the first that is gone."""
    found = []
    for segment in segments:
        try:
            found.append(segment.find_largest_timestamp())
        except FileNotFoundError:
            break
    return found
