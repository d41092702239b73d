"""Checks of groups from outside: from the committed records, and from what members did and were told.

The checker folds the records itself (it trusts nothing of `rules/group.py`):

- rule 23, in the log: after each batch no partition has two members with the right to commit it;
- rule 23, at the members: when one begins to read a partition, every other process that still reads it belongs to a
  member that the group has removed;
- rule 24: each committed offset is that of the partition's owner at that place of the log, and from an epoch of this
  ownership (its text names member and epoch);
- nothing is lost: an acknowledged commit is in the log, and offsets that are fetched are no older than what was
  acknowledged before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import TypeAlias

from raylog.groups.records.messages import PartitionId
from raylog.groups.records.records import (
    CurrentKey,
    CurrentValue,
    EncodedRecord,
    MemberKey,
    OffsetKey,
    OffsetValue,
    decode,
)

_Place: TypeAlias = tuple[str, PartitionId]


class GroupBroken(AssertionError):
    """A check of groups failed: something happened that may not happen."""


class GroupChecker:
    def __init__(self) -> None:
        self.committed = 0
        self.grants = 0
        self._members: dict[str, set[str]] = defaultdict(set)
        self._rights: dict[tuple[str, str], dict[PartitionId, int]] = {}  # by member: since which epoch
        self._place_of: dict[tuple[str, PartitionId, str], int] = {}  # by the text beside the offset
        self._acknowledged: dict[_Place, int] = {}
        self._reads: dict[_Place, dict[str, str]] = defaultdict(dict)  # by process: its member id
        self._count = 0

    # --- the log --------------------------------------------------------------------------------------------------

    def batch(self, records: Sequence[EncodedRecord]) -> None:
        touched = set()
        for encoded in records:
            key, value = decode(*encoded)
            self._count += 1
            if isinstance(key, MemberKey):
                (self._members[key.group].discard if value is None else self._members[key.group].add)(key.member)
            elif isinstance(key, CurrentKey):
                self._rights.pop((key.group, key.member), None)
                if isinstance(value, CurrentValue):
                    both = (*value.assigned, *value.revoking)
                    self._rights[key.group, key.member] = {(each[0], each[1]): each[2] for each in both}
                touched.add(key.group)
            elif isinstance(key, OffsetKey) and isinstance(value, OffsetValue):
                self._committed(key, value)
        for group in touched:
            self._check_rights(group)

    def _check_rights(self, group: str) -> None:
        owner: dict[PartitionId, str] = {}
        for (of_group, member), rights in self._rights.items():
            if of_group == group:
                for partition in rights:
                    if partition in owner:
                        raise GroupBroken(f"{_text(partition)} of {group}: {owner[partition]} and {member} both own it")
                    owner[partition] = member

    def _committed(self, key: OffsetKey, value: OffsetValue) -> None:
        partition = (key.topic_id, key.partition)
        member, epoch, _ = value.metadata.split("|")
        since = self._rights.get((key.group, member), {}).get(partition)
        if since is None or int(epoch) < since:
            what = f"{_text(partition)} of {key.group} at epoch {epoch}"
            raise GroupBroken(f"{member} committed {what}, which it owned since epoch {since} (rule 24)")
        self.committed += 1
        self._place_of[key.group, partition, value.metadata] = self._count

    # --- the members ----------------------------------------------------------------------------------------------

    def reads(self, group: str, process: str, member: str, partitions: Iterable[PartitionId]) -> None:
        """Note that the member was granted these partitions, and begins to read."""
        for partition in partitions:
            self.grants += 1
            readers = self._reads[group, partition]
            for other_process, other in readers.items():
                # One that has been removed and does not know it yet is a zombie: it has no right, and takes none away.
                if other_process != process and {member, other} <= self._members[group]:
                    what = f"{_text(partition)} of {group}"
                    raise GroupBroken(f"{member} was granted {what}, which {other} has not given up (rule 23)")
            readers[process] = member

    def stops(self, group: str, process: str, partitions: Collection[PartitionId]) -> None:
        for partition in partitions:
            self._reads[group, partition].pop(process, None)

    def died(self, group: str, process: str) -> None:
        for (of_group, _), readers in self._reads.items():
            if of_group == group:
                readers.pop(process, None)

    # --- offsets --------------------------------------------------------------------------------------------------

    def acknowledged(self, group: str, partition: PartitionId, metadata: str) -> None:
        place = self._place_of.get((group, partition, metadata))
        if place is None:
            raise GroupBroken(f"The commit {metadata} of {_text(partition)} was acknowledged and is not in the log")
        self._acknowledged[group, partition] = max(place, self._acknowledged.get((group, partition), 0))

    def before_fetch(self, group: str, partition: PartitionId) -> int:
        return self._acknowledged.get((group, partition), 0)

    def all_before_fetch(self, group: str) -> dict[PartitionId, int]:
        return {partition: place for (of_group, partition), place in self._acknowledged.items() if of_group == group}

    def fetched(self, group: str, partition: PartitionId, metadata: str, at_least: int) -> None:
        place = self._place_of.get((group, partition, metadata), 0)
        if place < at_least:
            what = f"{_text(partition)} of {group}"
            raise GroupBroken(f"{what}: {metadata or 'nothing'} was fetched after a later commit was acknowledged")


def _text(partition: PartitionId) -> str:
    return f"topic {int.from_bytes(partition[0], 'big')}, partition {partition[1]}"
