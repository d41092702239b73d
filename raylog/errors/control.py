"""Requests between brokers, the controller and coordinators."""

from __future__ import annotations

from typing import ClassVar

from raylog.errors.base import RaylogError


class ControlError(RaylogError):
    """Something between the brokers and the controller."""

    outcome_unknown: ClassVar[bool] = False


class ControllerNotReady(ControlError):
    """There is no controller that serves just now; nothing was done."""

    retriable = True
    advice = "One is about to take over: try again in a moment."


class ReplicaNotFree(ControlError):
    """The directory of a replica cannot be given to a new process, or be removed, as things are."""

    retriable = True
    advice = "The controller asks again; if this goes on, see which process holds the directory."

    topic: str
    partition: int
    reason: str

    def describe(self) -> str:
        return f"The replica of {self.topic}-{self.partition} is not free: {self.reason}."


class ReplicaNotStarted(ControlError):
    """A replica process could not be started."""

    retriable = True
    advice = "The controller tries again; if this goes on, the node may lack memory, or Ray may have lost it."

    topic: str
    partition: int
    broker: int
    reason: str

    def describe(self) -> str:
        return f"No process could be started for {self.topic}-{self.partition} on broker {self.broker}: {self.reason}."


class CoordinatorNotStarted(ControlError):
    """A coordinator process did not come up."""

    retriable = True
    advice = "The controller tries again; Ray's log of that node says what keeps its actors from running."

    topic: str
    partition: int
    reason: str

    def describe(self) -> str:
        return f"The coordinator of {self.topic}-{self.partition} was not started: {self.reason}."


class CoordinatorNotReady(ControlError):
    """This coordinator is still replaying its log, or is over; nothing was done."""

    retriable = True
    advice = "Look for the coordinator again in a moment: another one may have taken over."

    topic: str
    partition: int

    def describe(self) -> str:
        return f"The coordinator of {self.topic}-{self.partition} does not serve just now."


class CoordinatorRecordUnknown(ControlError):
    """The partition of a coordinator holds a record of a kind, or a version of it, that this raylog does not know."""

    advice = "A newer raylog wrote it: bring all nodes to that version. Until then this coordinator serves nobody."

    topic: str
    partition: int
    offset: int
    kind: int
    version: int

    def describe(self) -> str:
        place = f"{self.topic}-{self.partition} at offset {self.offset}"
        return f"The record of {place} is of kind {self.kind} in version {self.version}, which is unknown here."


class CoordinatorStopped(ControlError):
    """This coordinator is over; what it was asked for may still have been written."""

    retriable = True
    outcome_unknown = True
    advice = "Ask the coordinator that follows; it knows whether the change was made."

    topic: str
    partition: int
    epoch: int

    def describe(self) -> str:
        return f"The coordinator of {self.topic}-{self.partition} under epoch {self.epoch} is over."


class AdminTimedOut(ControlError):
    """The time for a change to the cluster was over before it was known to be made."""

    retriable = True
    outcome_unknown = True
    advice = "It may still be made: look at the state before asking again."

    what: str
    timeout_ms: int

    def describe(self) -> str:
        return f"Not done within {self.timeout_ms} ms: {self.what}."


class TopicStillStarting(AdminTimedOut):
    """The topic exists, but not all of its partitions have a leader yet."""

    outcome_unknown = False
    advice = "It goes on starting by itself: wait, or see why its replicas do not come up."

    def describe(self) -> str:
        return f"The topic exists, but after {self.timeout_ms} ms there is no leader yet for {self.what}."
