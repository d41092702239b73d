"""Requests that only a leader with enough in-sync replicas can carry out."""

from __future__ import annotations

from typing import ClassVar

from raylog.errors.base import RaylogError


class ReplicationError(RaylogError):
    """A replica cannot do what only a leader with enough followers can."""

    outcome_unknown: ClassVar[bool] = False  # whether the batch may stay in the log all the same


class NotLeader(ReplicationError):
    """The replica asked is not the leader of its partition."""

    retriable = True
    advice = "Nothing was done: refresh metadata and ask the leader."

    topic: str
    partition: int
    leader: int  # −1: none, or unknown here
    leader_epoch: int

    def describe(self) -> str:
        who = "nobody, as far as is known here" if self.leader < 0 else f"broker {self.leader}"
        return f"This replica does not lead {self.topic}-{self.partition}: epoch {self.leader_epoch} is led by {who}."


class NotEnoughReplicas(ReplicationError):
    """Fewer replicas are in sync than `min.insync.replicas` asks for; nothing was written."""

    retriable = True
    advice = "Bring the missing brokers back, or lower min.insync.replicas on the topic."

    topic: str
    partition: int
    in_sync: int
    required: int

    def describe(self) -> str:
        return f"{self.topic}-{self.partition} has {self.in_sync} replicas in sync; {self.required} are required."


class InspectionUnderWay(ReplicationError):
    """A batch is said to be damaged, and what that means is not known yet."""

    retriable = True

    topic: str
    partition: int

    def describe(self) -> str:
        return f"A replica of {self.topic}-{self.partition} looks into a batch that somebody found damaged."


class OnlyCopyDamaged(ReplicationError):
    """Records are damaged on the leader's disk, and no other replica is in sync that could lead (rule 14)."""

    advice = (
        "All other offsets stay readable: seek to next_offset to go on without these. The leader hands over as soon as "
        "a replica that has them is in sync, so start the brokers of the others. Where there are none, restore the "
        "file from a backup while its broker is stopped, or give the records up with `raylog topic trim`."
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
            f"{self.path} at byte {self.position} ({self.reason}), and no other replica in sync has them."
        )


class NotEnoughReplicasAfterAppend(ReplicationError):
    """The batch was written, but meanwhile fewer replicas are in sync than `min.insync.replicas` asks for."""

    retriable = True
    outcome_unknown = True
    advice = "The batch may stay in the log: repeat it under the same sequence."

    topic: str
    partition: int
    in_sync: int
    required: int

    def describe(self) -> str:
        return (
            f"A batch was written to {self.topic}-{self.partition}, but only {self.in_sync} replicas are in sync "
            f"where {self.required} are required."
        )


class LeadershipLost(ReplicationError):
    """The batch was written, but its leader was replaced before enough replicas had it."""

    retriable = True
    outcome_unknown = True
    advice = "The batch may stay in the log: refresh metadata, and repeat it under the same sequence."

    topic: str
    partition: int
    leader_epoch: int

    def describe(self) -> str:
        name = f"{self.topic}-{self.partition}"
        return f"The leader of {name} was replaced while a batch waited; the epoch is now {self.leader_epoch}."


class AppendTimedOut(ReplicationError):
    """The batch was written, but not all replicas in sync had it in time."""

    retriable = True
    outcome_unknown = True
    advice = "The batch may stay in the log: repeat it under the same sequence."

    topic: str
    partition: int
    timeout_ms: int

    def describe(self) -> str:
        return f"A batch of {self.topic}-{self.partition} was not replicated within {self.timeout_ms} ms."


class DeletionTimedOut(ReplicationError):
    """The leader's log begins later now, but not all replicas that may lead next have followed in time."""

    retriable = True
    outcome_unknown = True
    advice = "Ask again: what is deleted already stays so, and the others follow."

    topic: str
    partition: int
    offset: int
    timeout_ms: int

    def describe(self) -> str:
        return (
            f"Not all replicas of {self.topic}-{self.partition} that may lead next have deleted what is before "
            f"{self.offset} within {self.timeout_ms} ms."
        )


class OffsetNotAvailable(ReplicationError):
    """A new leader does not know yet how far its predecessor's records are replicated (KIP-207)."""

    retriable = True
    advice = "It will within moments: ask again."

    topic: str
    partition: int

    def describe(self) -> str:
        return f"The end of {self.topic}-{self.partition} is not known yet: its leader has just been elected."


class ReplicaCrashed(ReplicationError):
    """A replica met an error that nobody foresaw, and ended rather than go on with it."""

    advice = "The controller starts it again from its disk. The broker's log has the trace; please report it."


class InvalidRequest(ReplicationError):
    """A request asks for what cannot be."""

    advice = "The program that sent it has to change."
