"""Requests between brokers, the controller and coordinators."""

from __future__ import annotations

from typing import ClassVar

from raylog.errors.base import RaylogError


class ControlError(RaylogError):
    """A request between brokers, the controller and coordinators failed."""

    outcome_unknown: ClassVar[bool] = False


class ControllerNotReady(ControlError):
    """No controller serves at the moment. Nothing was done."""

    retriable = True
    advice = "A controller is about to take over: try again in a moment."


class ReplicaNotFree(ControlError):
    """The directory of a replica cannot be given to a new process, or removed, at the moment."""

    retriable = True
    advice = "The controller tries again. If this continues, find the process that holds the directory."

    topic: str
    partition: int
    reason: str

    def describe(self) -> str:
        return f"The replica of {self.topic}-{self.partition} is not free: {self.reason}."


class HostNotWanted(ControlError):
    """A process that hosts replicas is refused by its broker, which has given it up, or is about to end."""

    advice = "Its broker ends the process. Its replicas are started in other ones."

    incarnation: int
    reason: str

    def describe(self) -> str:
        return f"The host of incarnation {self.incarnation:#x} is not wanted: {self.reason}."


class HostNotStarted(ControlError):
    """A process that is to host replicas, or coordinators, could not be started."""

    retriable = True
    advice = "The controller tries again. If this continues, check the memory of the node, and that Ray sees it."

    broker: int
    reason: str

    def describe(self) -> str:
        return f"No process could be started on broker {self.broker}: {self.reason}."


class ReplicaNotStarted(ControlError):
    """A replica could not be started."""

    retriable = True
    advice = "The controller tries again. If this continues, check the memory of the node, and that Ray sees it."

    topic: str
    partition: int
    broker: int
    reason: str

    def describe(self) -> str:
        return f"{self.topic}-{self.partition} could not be started on broker {self.broker}: {self.reason}."


class CoordinatorNotStarted(ControlError):
    """A coordinator was not opened in the process that it was placed in."""

    retriable = True
    advice = "The controller tries again. Ray's log on that node says why its actors do not start."

    topic: str
    partition: int
    reason: str

    def describe(self) -> str:
        return f"The coordinator of {self.topic}-{self.partition} was not started: {self.reason}."


class CoordinatorNotReady(ControlError):
    """This coordinator is still replaying its log, or has stopped. Nothing was done."""

    retriable = True
    advice = "Look for the coordinator again in a moment: another one may have taken over."

    topic: str
    partition: int

    def describe(self) -> str:
        return f"The coordinator of {self.topic}-{self.partition} does not serve at the moment."


class CoordinatorRecordUnknown(ControlError):
    """The partition of a coordinator holds a record whose kind or version this raylog does not know."""

    advice = "A newer raylog wrote it: upgrade all nodes to that version. Until then this coordinator cannot serve."

    topic: str
    partition: int
    offset: int
    kind: int
    version: int

    def describe(self) -> str:
        place = f"offset {self.offset} of {self.topic}-{self.partition}"
        return f"The record at {place} has kind {self.kind} in version {self.version}, which is unknown here."


class CoordinatorStopped(ControlError):
    """This coordinator has stopped, but the change that it was asked for may have been made."""

    retriable = True
    outcome_unknown = True
    advice = "Ask the next coordinator: it knows whether the change was made."

    topic: str
    partition: int
    epoch: int

    def describe(self) -> str:
        return f"The coordinator of {self.topic}-{self.partition} with epoch {self.epoch} has stopped."


class AdminTimedOut(ControlError):
    """A change to the cluster was not confirmed in time."""

    retriable = True
    outcome_unknown = True
    advice = "The change may still be made: look at the state before you ask again."

    what: str
    timeout_ms: int

    def describe(self) -> str:
        return f"Not done within {self.timeout_ms} ms: {self.what}."


class TopicStillStarting(AdminTimedOut):
    """The topic exists, but not all of its partitions have a leader yet."""

    outcome_unknown = False
    advice = "The topic continues to start by itself: wait, or find out why its replicas do not start."

    def describe(self) -> str:
        return f"The topic exists, but after {self.timeout_ms} ms there is no leader yet for {self.what}."
