"""Consumer groups: membership, ownership, committed offsets."""

from __future__ import annotations

from raylog.errors.base import RaylogError


class GroupError(RaylogError):
    """A consumer group's coordinator refused a request."""


class NotCoordinator(GroupError):
    """Whoever was asked does not coordinate this group, or does so no more."""

    retriable = True
    advice = "Find the group's coordinator and ask again: commits and heartbeats may be repeated."

    group: str
    reason: str

    def describe(self) -> str:
        return f"This is not the coordinator of group {self.group!r}: {self.reason}."


class CoordinatorReplaced(GroupError):
    """A coordinator of a higher epoch has claimed this part of the offsets topic (rule 25)."""

    advice = "It answers for these groups now; the older coordinator has to end."

    epoch: int
    current: int

    def describe(self) -> str:
        return f"Coordinator epoch {self.epoch} is over: epoch {self.current} has claimed the log."


class CoordinatorLoading(GroupError):
    """The coordinator still reads what its predecessor has left."""

    retriable = True
    advice = "It takes moments: ask again."

    group: str
    elapsed_ms: int

    def describe(self) -> str:
        return f"The coordinator of group {self.group!r} has been reading its log for {self.elapsed_ms} ms."


class GroupRequestTimedOut(GroupError):
    """What a request has changed was not replicated in time."""

    retriable = True
    advice = "It may have been done, and it may be repeated; look whether __consumer_offsets has its replicas."

    group: str
    timeout_ms: int

    def describe(self) -> str:
        return f"A change to group {self.group!r} was not replicated within {self.timeout_ms} ms."


class GroupNotRead(GroupRequestTimedOut):
    """A question about a group was not answered in time."""

    advice = "Nothing was changed, ask again; `raylog topic describe __consumer_offsets` shows who should answer."

    reason: str = ""

    def describe(self) -> str:
        what = f"Group {self.group!r} was" if self.group else "The list of groups was"
        why = f": {self.reason.rstrip('.')}" if self.reason else ""
        return f"{what} not read within {self.timeout_ms} ms{why}."


class InvalidGroupId(GroupError):
    """A name that no group can have."""

    advice = "A group id has 1 to 255 bytes of UTF-8, and no control characters."

    size: int
    start: str
    refused: str = ""  # the character that none may have, as Python writes it; empty: it is the size

    def describe(self) -> str:
        if self.refused:
            return f"A group id with {self.refused} in it cannot be (it begins with {self.start!r})."
        return f"A group id of {self.size} bytes cannot be (it begins with {self.start!r})."


class InvalidMembership(GroupError):
    """A member describes itself in a way that cannot be."""

    advice = "Change the consumer's options."

    group: str
    member: str
    reason: str

    def describe(self) -> str:
        return f"Member {self.member!r} of group {self.group!r} cannot be as it says: {self.reason}."


class InvalidSubscription(GroupError):
    """A subscription that cannot be followed."""

    advice = "Subscribe to topics by name, or with a regular expression that is valid and simpler."

    group: str
    pattern: str
    reason: str

    def describe(self) -> str:
        return f"Group {self.group!r} cannot follow a subscription to {self.pattern!r}: {self.reason}."


class UnknownGroup(GroupError):
    """There is no group of this name."""

    advice = "A group exists from its first member or its first committed offset on; look at the list of groups."

    group: str

    def describe(self) -> str:
        return f"There is no group {self.group!r}."


class GroupNotEmpty(GroupError):
    """This is only done to a group without members, and only its members may do it while there are any."""

    advice = "Stop the group's consumers first, or commit as one of its members."

    group: str
    members: int
    what: str

    def describe(self) -> str:
        return f"Group {self.group!r} has {self.members} members: {self.what} needs it to be without."


class GroupFull(GroupError):
    """A group has as many members as it may have."""

    advice = "Run fewer consumers in this group; more of them than partitions are idle anyway."

    group: str
    members: int

    def describe(self) -> str:
        return f"Group {self.group!r} has {self.members} members and takes no more."


class UnknownMember(GroupError):
    """A member the group does not have, or has no more."""

    advice = "Its partitions may be another member's already: give them up and join the group anew."

    group: str
    member: str
    epoch: int
    elapsed_ms: int  # since it was removed; −1: not known here
    reason: str

    def describe(self) -> str:
        when = f" ({self.elapsed_ms} ms ago)" if self.elapsed_ms >= 0 else ""
        who = f"{self.member!r}, which speaks at epoch {self.epoch}"
        return f"Group {self.group!r} has no member {who}: {self.reason}{when}."


class FencedMember(GroupError):
    """A member speaks at an epoch that is over, or that never was (rule 24)."""

    advice = "It has missed what became of the group: give all partitions up and join the group anew."

    group: str
    member: str
    epoch: int
    current: int
    elapsed_ms: int

    def describe(self) -> str:
        return (
            f"Member {self.member!r} of group {self.group!r} speaks at epoch {self.epoch}; its epoch is {self.current} "
            f"since {self.elapsed_ms} ms."
        )


class FencedInstance(GroupError):
    """Another process has joined under this member's `group_instance_id`."""

    advice = "Give every process a group_instance_id of its own, and look which one still runs that should not."

    group: str
    instance: str
    member: str
    epoch: int
    elapsed_ms: int

    def describe(self) -> str:
        return (
            f"Another process took the place of {self.instance!r} in group {self.group!r} {self.elapsed_ms} ms ago; "
            f"member {self.member!r} at epoch {self.epoch} had it before."
        )


class StaleHeartbeat(GroupError):
    """A heartbeat arrived after a later one of the same member. It changed nothing."""

    retriable = True
    advice = "Nothing has to be done: the answer to the later one counts."

    group: str
    member: str
    sequence: int
    last: int

    def describe(self) -> str:
        who = f"member {self.member!r} of group {self.group!r}"
        return f"Heartbeat {self.sequence} of {who} came after number {self.last}."


class PartitionNotOwned(GroupError):
    """An offset was committed by a member that has no right to that partition (rules 23, 24)."""

    advice = "It belongs to another member now, or will: leave it and its records to that one."

    group: str
    member: str
    partition: str
    epoch: int
    owned_since: int  # the epoch from which on it owns the partition; −1: it does not
    elapsed_ms: int

    def describe(self) -> str:
        owns = f"owns it since epoch {self.owned_since}" if self.owned_since >= 0 else "does not own it"
        return (
            f"Member {self.member!r} of group {self.group!r} commits {self.partition} at epoch {self.epoch}, "
            f"but {owns} (it was last heard {self.elapsed_ms} ms ago)."
        )


class InvalidOffset(GroupError):
    """A number that cannot be a committed offset."""

    advice = "Commit the offset of the next record to be read, 0 or more."

    group: str
    partition: str
    offset: int

    def describe(self) -> str:
        return f"Group {self.group!r} cannot commit offset {self.offset} of {self.partition}."


class OffsetBeyondEnd(GroupError):
    """An offset was committed that the log has not reached."""

    advice = "Commit the offset after the last record that was read, or reset to the end of the log."

    group: str
    partition: str
    offset: int
    end: int

    def describe(self) -> str:
        what = f"offset {self.offset} of {self.partition}, whose log ends at {self.end}"
        return f"Group {self.group!r} cannot commit {what}."


class OffsetMetadataTooLarge(GroupError):
    """The text beside a committed offset is too long."""

    advice = "Keep what is larger in a topic, and commit a reference to it."

    group: str
    partition: str
    size: int
    limit: int

    def describe(self) -> str:
        what = f"The text that group {self.group!r} commits with {self.partition}"
        return f"{what} has {self.size} bytes; {self.limit} are the limit."


class UnstableOffset(GroupError):
    """An open transaction has staged an offset of this partition, and decides what will be committed (rule 22)."""

    retriable = True
    advice = "The transaction ends within its time-out: ask again. `raylog txn list --hanging` shows those that do not."

    group: str
    partition: str
    producer_id: int

    def describe(self) -> str:
        what = f"The offset of {self.partition} in group {self.group!r}"
        return f"{what} is staged by an open transaction of producer {self.producer_id}."


class StaleTransaction(GroupError):
    """Offsets were staged, or a transaction was ended, under an epoch that is over."""

    advice = "This transaction has ended already: begin another, or leave it to the producer that replaced this one."

    producer_id: int
    epoch: int
    current: int
    what: str

    def describe(self) -> str:
        return f"{self.what} {self.epoch} of producer {self.producer_id} is over: {self.current} is known."


class UnknownAssignor(GroupError):
    """No assignor of this name."""

    advice = "Known are range, roundrobin and sticky, and the functions in the cluster's group.assignors."

    name: str
    reason: str

    def describe(self) -> str:
        return f"There is no assignor {self.name!r}: {self.reason}."


class AssignorFailed(GroupError):
    """An assignor raised, or gave partitions out as it may not. The group goes on as it was."""

    retriable = True
    advice = "Correct it, or choose another; it is asked again at the group's next change, and every now and then."

    name: str
    reason: str

    def describe(self) -> str:
        return f"The assignor {self.name!r} gave no assignment: {self.reason}."
