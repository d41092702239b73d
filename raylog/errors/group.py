"""Consumer groups: membership, ownership, committed offsets."""

from __future__ import annotations

from raylog.errors.base import RaylogError


class GroupError(RaylogError):
    """A consumer group's coordinator refused a request."""


class NotCoordinator(GroupError):
    """The process that was asked does not coordinate this group, or no longer does."""

    retriable = True
    advice = "Find the group's coordinator and ask again: commits and heartbeats may be repeated."

    group: str
    reason: str

    def describe(self) -> str:
        return f"This is not the coordinator of group {self.group!r}: {self.reason}."


class CoordinatorReplaced(GroupError):
    """A coordinator of a higher epoch has claimed this part of the offsets topic (rule 25)."""

    advice = "The newer coordinator serves these groups now; the older one has to end."

    epoch: int
    current: int

    def describe(self) -> str:
        return f"Coordinator epoch {self.epoch} is over: epoch {self.current} has claimed the log."


class CoordinatorLoading(GroupError):
    """The coordinator is still reading its log."""

    retriable = True
    advice = "Ask again in a moment."

    group: str
    elapsed_ms: int

    def describe(self) -> str:
        return f"The coordinator of group {self.group!r} has been reading its log for {self.elapsed_ms} ms."


class GroupRequestTimedOut(GroupError):
    """A change to a group was not replicated in time."""

    retriable = True
    advice = "The change may have been made; it is safe to repeat it. Check the replicas of __consumer_offsets."

    group: str
    timeout_ms: int

    def describe(self) -> str:
        return f"A change to group {self.group!r} was not replicated within {self.timeout_ms} ms."


class GroupNotRead(GroupRequestTimedOut):
    """A question about a group was not answered in time."""

    advice = "Nothing was changed: ask again. `raylog topic describe __consumer_offsets` shows who should answer."

    reason: str = ""

    def describe(self) -> str:
        what = f"Group {self.group!r} was" if self.group else "The list of groups was"
        why = f": {self.reason.rstrip('.')}" if self.reason else ""
        return f"{what} not read within {self.timeout_ms} ms{why}."


class InvalidGroupId(GroupError):
    """A group id is not valid."""

    advice = "A group id has 1 to 255 bytes of UTF-8, and no control characters."

    size: int
    start: str
    refused: str = ""  # the forbidden character, as Python writes it; empty if the size is wrong

    def describe(self) -> str:
        if self.refused:
            return f"A group id must not contain {self.refused} (this one begins with {self.start!r})."
        return f"A group id must not have {self.size} bytes (this one begins with {self.start!r})."


class InvalidMembership(GroupError):
    """A member describes itself in a way that is not possible."""

    advice = "Change the consumer's options."

    group: str
    member: str
    reason: str

    def describe(self) -> str:
        return f"Member {self.member!r} of group {self.group!r} describes itself wrongly: {self.reason}."


class InvalidSubscription(GroupError):
    """A subscription cannot be used."""

    advice = "Subscribe to topics by name, or with a regular expression that is valid and simpler."

    group: str
    pattern: str
    reason: str

    def describe(self) -> str:
        return f"Group {self.group!r} cannot use a subscription to {self.pattern!r}: {self.reason}."


class UnknownGroup(GroupError):
    """There is no group of this name."""

    advice = "A group exists once it has a member or a committed offset: look at the list of groups."

    group: str

    def describe(self) -> str:
        return f"There is no group {self.group!r}."


class GroupNotEmpty(GroupError):
    """A group has members, so others cannot do this to it; its own members may commit."""

    advice = "Stop the group's consumers first, or commit as one of its members."

    group: str
    members: int
    what: str

    def describe(self) -> str:
        return f"Group {self.group!r} has {self.members} members: {self.what} needs a group without members."


class GroupFull(GroupError):
    """A group already has as many members as it may have."""

    advice = "Run fewer consumers in this group; more of them than partitions are idle anyway."

    group: str
    members: int

    def describe(self) -> str:
        return f"Group {self.group!r} has {self.members} members and takes no more."


class InconsistentGroupProtocol(GroupError):
    """Somebody wants to join a group whose members have another way to share its partitions."""

    advice = (
        "Members of a group either all use Kafka's classic protocol, with an assignor that all of them have, or none "
        "does. Use another group, or stop the members that are there."
    )

    group: str
    reason: str

    def describe(self) -> str:
        return f"Group {self.group!r} cannot be joined: {self.reason}."


class RebalanceInProgress(GroupError):
    """A classic group waits for its members to join again, or for its leader to assign."""

    retriable = True
    advice = "Nothing has to be done: Kafka's clients join again by themselves."

    group: str
    generation: int

    def describe(self) -> str:
        return f"Group {self.group!r} rebalances; its generation was {self.generation}."


class UnknownMember(GroupError):
    """A group does not have this member, or no longer has it."""

    advice = "Its partitions may already belong to another member: give them up and join the group again."

    group: str
    member: str
    epoch: int
    elapsed_ms: int  # since it was removed; −1 if that is not known here
    reason: str

    def describe(self) -> str:
        when = f" ({self.elapsed_ms} ms ago)" if self.elapsed_ms >= 0 else ""
        who = f"{self.member!r}, which sent epoch {self.epoch}"
        return f"Group {self.group!r} has no member {who}: {self.reason}{when}."


class FencedMember(GroupError):
    """A member sent an epoch that is not its current one (rule 24)."""

    advice = "It missed changes of the group: give up all partitions and join the group again."

    group: str
    member: str
    epoch: int
    current: int
    elapsed_ms: int

    def describe(self) -> str:
        return (
            f"Member {self.member!r} of group {self.group!r} sent epoch {self.epoch}; its epoch has been "
            f"{self.current} for {self.elapsed_ms} ms."
        )


class FencedInstance(GroupError):
    """Another process has joined under this member's `group_instance_id`."""

    advice = "Give each process a group_instance_id of its own, and stop the one that should no longer run."

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
    advice = "Nothing has to be done: the answer to the later heartbeat counts."

    group: str
    member: str
    sequence: int
    last: int

    def describe(self) -> str:
        who = f"member {self.member!r} of group {self.group!r}"
        return f"Heartbeat {self.sequence} of {who} came after number {self.last}."


class PartitionNotOwned(GroupError):
    """A member committed an offset of a partition that it does not own (rules 23, 24)."""

    advice = "The partition belongs to another member, or soon will: leave its records to that one."

    group: str
    member: str
    partition: str
    epoch: int
    owned_since: int  # the epoch since which it owns the partition; −1 if it does not
    elapsed_ms: int

    def describe(self) -> str:
        owns = f"owns it since epoch {self.owned_since}" if self.owned_since >= 0 else "does not own it"
        return (
            f"Member {self.member!r} of group {self.group!r} commits {self.partition} at epoch {self.epoch}, "
            f"but {owns} (its last heartbeat was {self.elapsed_ms} ms ago)."
        )


class InvalidOffset(GroupError):
    """A number is not a valid committed offset."""

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

    advice = "Keep larger data in a topic, and commit a reference to it."

    group: str
    partition: str
    size: int
    limit: int

    def describe(self) -> str:
        what = f"The text that group {self.group!r} commits with {self.partition}"
        return f"{what} has {self.size} bytes; the limit is {self.limit}."


class UnstableOffset(GroupError):
    """An open transaction has staged an offset of this partition. Its end decides what is committed (rule 22)."""

    retriable = True
    advice = "The transaction ends within its time-out: ask again. `raylog txn list --hanging` shows those that do not."

    group: str
    partition: str
    producer_id: int

    def describe(self) -> str:
        what = f"The offset of {self.partition} in group {self.group!r}"
        return f"{what} is staged by an open transaction of producer {self.producer_id}."


class StaleTransaction(GroupError):
    """Offsets were staged, or a transaction was ended, with an old epoch."""

    advice = "This transaction has ended already: begin another, or stop if another producer has replaced this one."

    producer_id: int
    epoch: int
    current: int
    what: str

    def describe(self) -> str:
        return f"{self.what} {self.epoch} of producer {self.producer_id} is over: {self.current} is known."


class UnknownAssignor(GroupError):
    """There is no assignor of this name."""

    advice = "Use range, roundrobin, sticky, or a function that the cluster's group.assignors names."

    name: str
    reason: str

    def describe(self) -> str:
        return f"There is no assignor {self.name!r}: {self.reason}."


class AssignorFailed(GroupError):
    """An assignor raised an error, or returned an invalid assignment. The group keeps the one it has."""

    retriable = True
    advice = "Correct it, or choose another. It is called again at the group's next change, and from time to time."

    name: str
    reason: str

    def describe(self) -> str:
        return f"The assignor {self.name!r} returned no usable assignment: {self.reason}."
