"""Requests that only a leader with enough in-sync replicas can carry out."""

from __future__ import annotations

from typing import ClassVar

from raylog.errors.base import RaylogError


class ReplicationError(RaylogError):
    """A replica cannot carry out a request that needs a leader with enough in-sync replicas."""

    outcome_unknown: ClassVar[bool] = False  # True: the change may have been made


class NotLeader(ReplicationError):
    """The replica asked is not the leader of its partition."""

    retriable = True
    advice = "Nothing was done: refresh metadata and ask the leader."

    topic: str
    partition: int
    leader: int  # −1: none, or unknown here
    leader_epoch: int

    def describe(self) -> str:
        leader = "no leader is known here" if self.leader < 0 else f"broker {self.leader} leads"
        return f"This replica does not lead {self.topic}-{self.partition}: in epoch {self.leader_epoch} {leader}."


class NotEnoughReplicas(ReplicationError):
    """Fewer replicas are in sync than `min.insync.replicas` asks for. Nothing was written."""

    retriable = True
    advice = "Bring the missing brokers back, or lower min.insync.replicas on the topic."

    topic: str
    partition: int
    in_sync: int
    required: int

    def describe(self) -> str:
        return f"{self.topic}-{self.partition} has {self.in_sync} replicas in sync; {self.required} are required."


class InspectionUnderWay(ReplicationError):
    """A batch was reported as damaged, and the replica has not finished checking it."""

    retriable = True
    advice = "Nothing was done: ask again in a moment."

    topic: str
    partition: int

    def describe(self) -> str:
        return f"A replica of {self.topic}-{self.partition} is checking a batch that was reported as damaged."


class OnlyCopyDamaged(ReplicationError):
    """Records are damaged on the leader's disk, and no other in-sync replica could lead instead (rule 14)."""

    advice = (
        "All other offsets stay readable: seek to next_offset to skip the damaged ones. Start the brokers of the other "
        "replicas: the leader hands over as soon as one that has the records is in sync. If there is none, stop the "
        "broker and restore the file from a backup, or give the records up with `raylog topic trim`."
    )

    topic: str
    partition: int
    offset: int
    next_offset: int
    path: str
    position: int
    reason: str

    def describe(self) -> str:
        return (
            f"Offsets {self.offset} to {self.next_offset - 1} of {self.topic}-{self.partition} are damaged in "
            f"{self.path} at byte {self.position} ({self.reason}), and no other in-sync replica has them."
        )


class NotEnoughReplicasAfterAppend(ReplicationError):
    """The batch was written, but now fewer replicas are in sync than `min.insync.replicas` asks for."""

    retriable = True
    outcome_unknown = True
    advice = "The batch may stay in the log: send it again with the same sequence number."

    topic: str
    partition: int
    in_sync: int
    required: int

    def describe(self) -> str:
        return (
            f"A batch was written to {self.topic}-{self.partition}, but only {self.in_sync} replicas are in sync; "
            f"{self.required} are required."
        )


class LeadershipLost(ReplicationError):
    """The batch was written, but its leader was replaced before enough replicas had it."""

    retriable = True
    outcome_unknown = True
    advice = "The batch may stay in the log: refresh metadata and send it again with the same sequence number."

    topic: str
    partition: int
    leader_epoch: int

    def describe(self) -> str:
        name = f"{self.topic}-{self.partition}"
        return f"The leader of {name} was replaced before a batch was replicated; the epoch is now {self.leader_epoch}."


class AppendTimedOut(ReplicationError):
    """The batch was written, but not all in-sync replicas had it in time."""

    retriable = True
    outcome_unknown = True
    advice = "The batch may stay in the log: send it again with the same sequence number."

    topic: str
    partition: int
    timeout_ms: int

    def describe(self) -> str:
        return f"A batch of {self.topic}-{self.partition} was not replicated within {self.timeout_ms} ms."


class DeletionTimedOut(ReplicationError):
    """The leader deleted the records, but not all replicas that may lead next did so in time."""

    retriable = True
    outcome_unknown = True
    advice = "Ask again: deleted records stay deleted, and the other replicas follow."

    topic: str
    partition: int
    offset: int
    timeout_ms: int

    def describe(self) -> str:
        return (
            f"Not all replicas of {self.topic}-{self.partition} that may lead next have deleted the records before "
            f"offset {self.offset} within {self.timeout_ms} ms."
        )


class OffsetNotAvailable(ReplicationError):
    """A new leader does not know yet how far its predecessor's records are replicated (KIP-207)."""

    retriable = True
    advice = "Ask again in a moment."

    topic: str
    partition: int

    def describe(self) -> str:
        return f"The end of {self.topic}-{self.partition} is not known yet: its leader has just been elected."


class ReplicaCrashed(ReplicationError):
    """A replica met an unexpected error, and stopped rather than continue."""

    advice = "The controller starts it again from its disk. The broker's log has the trace; please report it."


class InvalidRequest(ReplicationError):
    """A request asks for something impossible."""

    advice = "The program that sent it has to change."
