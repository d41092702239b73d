"""Grants of coordinators: for how long they may answer from memory, as the controller answers heartbeats (rule 25).

    asked ───────── a majority of the voters obeyed this controller: it asked them then, and they have answered
    │<──────── GRANT_SECONDS ────────>│                          a process answers from memory until here, by its clock
    │<──────── GRANT_SECONDS ────────>│<─ CLOCKS_APART_SECONDS ─>│   no successor is placed before here, by ours

What must stay true: while a coordinator answers from memory, no later one of its partition serves.

- The same controller places the later one: it has kept in mind what it granted the earlier one, and waits for that.
- A later controller places it. Its majority of promises shares a voter with the majority that obeyed the earlier
  controller. That voter promised after it obeyed, for it obeys no lower epoch any more. So the later controller begins
  after `asked`, and all grants of earlier ones are over as long after its beginning.
- A grant is counted from when the heartbeat was sent, and is shorter by the age of `asked` when that was heard.
- A process counts with a clock of its own. The clocks of two machines drift apart by less than a thousandth;
  CLOCKS_APART_SECONDS allows for more than a tenth.

    GRANT_SECONDS + CLOCKS_APART_SECONDS <= SILENCE_SECONDS

So a coordinator that was silent for a lease has nothing left of its grant, and its successor is placed at once. So is
that of one that has ended for sure. Only one that may still live, and was heard a moment ago, is waited for.
"""

from __future__ import annotations

import math
from typing import Final

from raylog.actors.cluster.partition import PartitionId

GRANT_SECONDS: Final = 1.2
CLOCKS_APART_SECONDS: Final = 0.2


class CoordinatorGrants:
    """Grants of one controller, and those that earlier ones may have given. Times are those of its loop, in seconds."""

    def __init__(self) -> None:
        self._earlier_until = math.inf
        self._until: dict[PartitionId, float] = {}

    def begin(self, now: float) -> None:
        """Count from now what earlier controllers have granted. This one has its promises."""
        self._earlier_until = now + GRANT_SECONDS

    def grant(self, partitions: list[PartitionId], asked_at: float, heard_at: float) -> int:
        """Grant these coordinators what may be granted now, and return it: ms from when their heartbeat was sent.

        `asked_at`: a majority has obeyed this controller since it was asked then.
        """
        granted_ms = max(0, math.floor(1000 * (asked_at + GRANT_SECONDS - heard_at))) if asked_at > -math.inf else 0
        for each in partitions:
            self._until[each] = max(self._until.get(each, self._earlier_until), heard_at + granted_ms / 1000)
        return granted_ms

    def has_ended(self, partition: PartitionId) -> None:
        """Take note that the coordinator of this partition has ended for sure."""
        self._until[partition] = -math.inf

    def seconds_left(self, partition: PartitionId, now: float) -> float:
        """Return how long the coordinator of this partition, if it lives, may still answer from memory; 0: no more."""
        return max(0.0, self._until.get(partition, self._earlier_until) + CLOCKS_APART_SECONDS - now)
