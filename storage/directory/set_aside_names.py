"""Names of logs that were set aside, beside the replica that they were taken from, and why they were.

    <topic>-<partition>@set-aside-<ms>-<why>     since <ms>, in milliseconds of the wall clock

    why               what happened
    damaged           it was damaged (rule 14)
    unclean-<epoch>   the leader of that epoch was elected without it, and it was about to be cut to agree (rule 7)
    cut-<epoch>       it was about to be cut below its high watermark, and nothing is known that explains it
    moved-<epoch>     the same as unclean-<epoch>, but it was about to be removed, for the replica was moved elsewhere
    replaced          a person put another copy in its place

What must stay true: raylog removes none of these by itself, but those of a topic that is deleted. Among those of one
replica the numbers rise, whatever the clock does.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from raylog.storage.disk.disk import Disk

SET_ASIDE: Final = "@set-aside-"  # no topic has an @ in its name
DAMAGED: Final = "damaged"
REPLACED: Final = "replaced"
_NAME: Final = re.compile(r"([a-zA-Z0-9._-]+)-(\d+)@set-aside-(\d+)(?:-([a-z]+(?:-\d+)?))?")


class SetAsideName(NamedTuple):
    """The facts in a directory's name. Names of earlier versions do not say why; those logs were damaged."""

    topic: str
    partition: int
    at_ms: int
    why: str


def unclean(epoch: int) -> str:
    return f"unclean-{epoch}"


def cut(epoch: int) -> str:
    return f"cut-{epoch}"


def moved(epoch: int) -> str:
    return f"moved-{epoch}"


def parse_name(name: str) -> SetAsideName | None:
    """None where this is not the name of a log that was set aside."""
    match = _NAME.fullmatch(name)
    return match and SetAsideName(match[1], int(match[2]), int(match[3]), match[4] or DAMAGED)


def set_aside_of(disk: Disk, replica_path: str) -> list[tuple[SetAsideName, str]]:
    """Return what was set aside of this replica and where it lies, the oldest first."""
    parent, _, replica = replica_path.rpartition("/")
    names = [name for name in disk.list_directory(parent or "/") if name.startswith(replica + SET_ASIDE)]
    found = [(parsed, f"{parent}/{name}") for name in names if (parsed := parse_name(name)) is not None]
    return sorted(found, key=lambda each: each[0].at_ms)


def new_path(disk: Disk, replica_path: str, why: str, now_ms: int) -> str:
    """Return where to set this replica aside now."""
    later = [name.at_ms + 1 for name, _ in set_aside_of(disk, replica_path)]
    return f"{replica_path}{SET_ASIDE}{max([now_ms, *later])}-{why}"
