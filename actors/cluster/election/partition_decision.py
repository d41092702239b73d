"""How every decision about a partition ends: complete a reassignment, elect, and write one record.

Whoever decides brings the partition before, and as it should be with its members changed; what follows from that is
the same for all.
"""

from __future__ import annotations

from raylog.actors.cluster.election.leader_election import elect_if_needed
from raylog.actors.cluster.election.reassignment_steps import complete_if_possible
from raylog.actors.cluster.election.situation import Situation
from raylog.actors.cluster.partition import PartitionState
from raylog.actors.protocol.metadata_records import PartitionChanged


def settle(before: PartitionState, after: PartitionState, situation: Situation, cause: str) -> list[PartitionChanged]:
    """The record, or none where nothing changes."""
    completed = complete_if_possible(after, situation)
    election = elect_if_needed(completed, situation)
    reasons = [cause]
    if after.is_reassigning and not completed.is_reassigning:
        reasons.append("reassignment complete")
    if election.how:
        reasons.append(election.how)
    return before.change_to(election.partition, "; ".join(reasons))
