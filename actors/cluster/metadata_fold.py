"""Records of the metadata log, folded into a `ClusterState`, with the place in the log where that state stands.

A broker folds what is committed. The controller folds what it appends, before it is committed, and lets nothing
of it out until then.
"""

from __future__ import annotations

from collections.abc import Sequence

from raylog.actors.cluster.assignments import changed_partitions, changed_shares, move_shares
from raylog.actors.cluster.change_times import ChangeTimes
from raylog.actors.cluster.partition import PartitionId
from raylog.actors.cluster.state import ClusterState, ReplicaKey
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.metadata_records import CommittedBatch
from raylog.actors.protocol.replication_messages import NO_EPOCH


class MetadataFold:
    """`version` is the offset after the last record that is in `state`, `epoch` that of the controller it is from.

    `shares`: what each replica that catches up for a move has of their throttle, in this state.
    """

    def __init__(self) -> None:
        self.state = ClusterState()
        self.times = ChangeTimes()
        self.shares: dict[ReplicaKey, int] = {}
        self.version = 0
        self.epoch = NO_EPOCH

    def replace(self, records: Sequence[Message], version: int, epoch: int) -> None:
        """Forget everything; the state at `version` is these records."""
        self.state = ClusterState()
        for record in records:
            self.state.apply(record, version)
        self.shares = move_shares(self.state)
        self.times.forget(version)
        self.version = version
        self.epoch = epoch

    def apply_batch(self, batch: CommittedBatch) -> dict[PartitionId, None]:
        """The partitions that the batch has changed, in order."""
        return self.apply(batch.records, batch.version - len(batch.records), batch.epoch)

    def apply(self, records: Sequence[Message], offset: int, epoch: int) -> dict[PartitionId, None]:
        """Fold in records that stand in the log from `offset` on."""
        changed: dict[PartitionId, None] = {}
        for place, record in enumerate(records, offset):
            self.state.apply(record, place)
            partitions = changed_partitions(self.state, record)
            self.times.note(record, partitions, place + 1)
            changed |= dict.fromkeys(partitions)
        before, self.shares = self.shares, move_shares(self.state)
        changed |= dict.fromkeys(changed_shares(before, self.shares))
        self.version = offset + len(records)
        self.epoch = epoch
        return changed
