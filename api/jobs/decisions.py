"""The one decision of a job on what its tasks have written.

What must stay true: a commit ends known, or in TransactionPending after several asks; what fails leaves nothing that
counts, and nothing that keeps readers waiting.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from raylog.actors.machine.cluster_access import ClusterAccess
from raylog.api.connection.records import GroupMetadata, TopicPartition
from raylog.api.families.family_member import FamilyMember
from raylog.api.families.member_requests import FamilyWork
from raylog.api.families.transaction_family import TransactionFamily
from raylog.errors import RaylogError, TransactionPending
from raylog.groups.records.messages import NO_EPOCH

if TYPE_CHECKING:
    from raylog.api.admin.cluster import Cluster

_COMMITS: Final = 5  # how often the outcome of a decision is asked for, each time for `max_block_ms`

_log = logging.getLogger(__name__)


def commit(family: TransactionFamily, batch: int, works: Sequence[FamilyWork]) -> None:
    """Let these count, as `TransactionFamily.commit` does; asked again while the outcome is not known."""
    for attempt in range(1, _COMMITS + 1):
        try:
            family.commit(batch, works)
            return
        except TransactionPending as error:
            if attempt == _COMMITS:
                raise
            _log.warning("The outcome of batch %d of %r is asked for again: %s", batch, family.name, error)
        except RaylogError as error:
            if error.abortable:
                abort(family)
            raise


def offsets_of_group(
    family: TransactionFamily,
    cluster: Cluster | ClusterAccess,
    group_id: str,
    offsets: Mapping[TopicPartition, int],
    max_block_ms: int,
) -> FamilyWork:
    """Stage offsets of a group that has no members, by a member of the family that writes no rows."""
    with FamilyMember(family.ticket, cluster=cluster, max_block_ms=max_block_ms) as member:
        member.send_offsets_to_transaction(offsets, GroupMetadata(group_id, "", NO_EPOCH))
        return member.finish()


def abort(family: TransactionFamily) -> None:
    """End what is open. Another error is on its way, and the members' time ends them in any case."""
    try:
        family.abort()
    except RaylogError as error:
        _log.warning("What failed tasks have written stays open until its time is over: %s", error)
