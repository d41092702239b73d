"""Marks of a broker's replicas on their way to the controller: only what changed, and all of them at first.

    registered ──► all of them, with every heartbeat ──one was answered──► those that have changed since
         ▲                                                                            │
         └──────────────────────────── registered again ──────────────────────────────┘

What must stay true:
- A mark is told with every heartbeat until one that carried it has been answered. So a heartbeat that got lost loses
  nothing, and an idle replica costs nothing.
- After a registration the controller is told all of them at least once, and forgets all others. It may be a new one,
  or one that has missed something.
- A replica that is gone is told no more. Its loss is reported beside the marks, and ends them at the controller too.
- Marks are no sign of life, neither of a replica nor of its process: heartbeats are (rule 29).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from raylog.actors.cluster.partition import PartitionId
from raylog.actors.protocol.control_messages import ReplicaMarks

_NOTHING: Final[tuple[ReplicaMarks, ...]] = ()


class MarkChanges:
    """The newest marks of all replicas of one broker, and which of them the controller does not have yet."""

    def __init__(self) -> None:
        self._newest: dict[PartitionId, ReplicaMarks] = {}
        self._untold: dict[PartitionId, ReplicaMarks] = {}
        self._full: set[PartitionId] = set()
        self._owes_all = True

    @property
    def have_full_disk(self) -> bool:
        """Whether a replica has just been refused room for an append."""
        return bool(self._full)

    def registered(self) -> None:
        """Take note that the controller may know nothing."""
        self._owes_all = True
        self._untold = dict(self._newest)

    def changed(self, marks: ReplicaMarks) -> int:
        """Take over what a host has told. Return by how many bytes the log has grown; the first word says nothing."""
        partition = marks.topic_id, marks.partition
        before = self._newest.get(partition)
        if before == marks:
            return 0
        self._newest[partition] = self._untold[partition] = marks
        if marks.has_full_disk:
            self._full.add(partition)
        else:
            self._full.discard(partition)
        return 0 if before is None else max(0, marks.size_bytes - before.size_bytes)

    def gone(self, partition: PartitionId) -> None:
        """Forget a replica."""
        self._newest.pop(partition, None)
        self._untold.pop(partition, None)
        self._full.discard(partition)

    def to_tell(self) -> tuple[tuple[ReplicaMarks, ...], bool]:
        """Return the marks for the next heartbeat, and whether they are all that there are."""
        return tuple(self._untold.values()) if self._untold else _NOTHING, self._owes_all

    def told(self, marks: Iterable[ReplicaMarks], *, are_all: bool) -> None:
        """Take note that the controller has answered a heartbeat with these."""
        if self._owes_all and not are_all:
            return  # it was sent before the registration
        self._owes_all = False
        for each in marks:
            partition = each.topic_id, each.partition
            if self._untold.get(partition) is each:
                del self._untold[partition]

    def broken_invariants(self) -> Iterator[str]:
        """Say in words what contradicts the top of this file."""
        if self._owes_all and self._untold != self._newest:
            yield f"all marks are owed, and {len(self._untold)} of {len(self._newest)} are to be told"
        for partition, marks in self._untold.items():
            if self._newest.get(partition) is not marks:
                yield f"{marks} are to be told, and are not the newest"
