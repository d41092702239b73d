"""Rebalances of a group, read from its deliveries and events: gaps, partitions that moved, parts of a gap.

A gap is the time between two deliveries of one partition, by whichever member. What stays is what one member delivers
all through a phase, and before it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

ASSIGNED: Final = -1  # in place of an offset
REVOKED: Final = -2


class Delivery(NamedTuple):
    """A record that was handed out; or, by its offset, that a partition came or went."""

    partition: int
    offset: int
    sent: float
    handed_out: float


class Told(NamedTuple):
    """All that was delivered, and who got and gave up what, by time."""

    by_partition: list[list[tuple[int, Delivery]]]  # member, delivery
    events: list[list[tuple[int, Delivery]]]
    reader: list[Delivery]


class Gap(NamedTuple):
    seconds: float
    begin: float
    end: float


def gap_in(begin: float, end: float, delivered: Sequence[tuple[int, Delivery]]) -> tuple[Gap, bool]:
    """The longest time without a delivery that overlaps with the phase, and whether another member delivered then."""
    times = [each.handed_out for _, each in delivered]
    first = max(bisect_left(times, begin) - 1, 0)  # the last one before it
    last = bisect_left(times, end)
    among = delivered[first:last]
    found = [each.handed_out for _, each in among] or [begin]
    ends = pairwise([*found, max(end, found[-1])])
    longest = max((Gap(after - before, before, after) for before, after in ends), default=Gap(0.0, 0.0, 0.0))
    return longest, len({member for member, _ in among}) > 1


def parts_of(gap: Gap, events: Sequence[tuple[int, Delivery]]) -> str:
    """Return the parts of the longest gap."""
    within = [each for _, each in events if gap.begin <= each.handed_out <= gap.end]
    given_up = [each.handed_out for each in within if each.offset == REVOKED]
    taken = [each.handed_out for each in within if each.offset == ASSIGNED]
    told = []
    if given_up:
        told.append(f"given up after {1000 * (given_up[0] - gap.begin):.0f}")
    if taken:
        told.append(f"taken after {1000 * (taken[-1] - gap.begin):.0f}")
    return ", ".join([*told, f"read after {1000 * gap.seconds:.0f}"])


def moved_at(told: Told, since: float, killed: int) -> list[float]:
    """Return when the killed member's partitions were delivered by another member."""
    found = []
    for delivered in told.by_partition:
        before = [member for member, each in delivered if each.handed_out < since]
        after = [each.handed_out for member, each in delivered if each.handed_out >= since and member != killed]
        if before and before[-1] == killed:
            found.append(after[0] if after else math.inf)
    return found


def missing(told: Told, sent: Sequence[int]) -> list[tuple[int, int]]:
    """(partition, offset) of what nobody delivered, by how many records were sent to each partition."""
    found = []
    for partition, (delivered, count) in enumerate(zip(told.by_partition, sent, strict=True)):
        offsets = {each.offset for _, each in delivered}
        found += [(partition, offset) for offset in range(count) if offset not in offsets]
    return found


def longest(times: Sequence[float]) -> float:
    return max((after - before for before, after in pairwise(times)), default=0.0)
