"""The metadata log: the log that holds the controller's state (rule 17)."""

from __future__ import annotations

from typing import ClassVar

from raylog.errors.base import RaylogError


class MetadataError(RaylogError):
    """The metadata log, which holds the controller's state, has a problem (rule 17)."""

    outcome_unknown: ClassVar[bool] = False  # True: the change may have been made


class ControllerFenced(MetadataError):
    """A controller has been replaced: a higher controller epoch has been promised."""

    outcome_unknown = True
    advice = "Another controller is taking over: ask it whether the change was made."

    epoch: int
    current: int

    def describe(self) -> str:
        return f"Controller epoch {self.epoch} is over: epoch {self.current} has been promised."


class ControllerStopped(MetadataError):
    """The controller was stopped before the change was known to be committed."""

    retriable = True
    outcome_unknown = True
    advice = "The next controller knows whether the change was made: ask it before repeating it."


class MetadataQuorumUnavailable(MetadataError):
    """Too few voters of the metadata log answer, so no controller can start."""

    retriable = True
    advice = "Nothing is lost: start more of the voters' brokers, with their data directories."

    voters: str
    answered: str
    timeout_ms: int

    def describe(self) -> str:
        return (
            f"No majority of the metadata log's voters ({self.voters or 'none known'}) followed within "
            f"{self.timeout_ms} ms; brokers that answered: {self.answered or 'none'}."
        )


class MetadataNotBlank(MetadataError):
    """A new cluster cannot be formed, because a broker holds the metadata of one already."""

    advice = "Start the existing cluster, or use an empty data directory."

    broker_id: int
    end_offset: int

    def describe(self) -> str:
        return f"Broker {self.broker_id} holds metadata up to offset {self.end_offset}; it cannot form a new one."


class MetadataNotReady(MetadataError):
    """A broker has just started and does not know the cluster's topics yet."""

    retriable = True
    advice = "Ask another broker, or ask again: this one learns the topics from the controller."

    broker_id: int

    def describe(self) -> str:
        return f"Broker {self.broker_id} does not know the cluster's topics yet."


class VotersNotChanged(MetadataError):
    """The voters of the metadata log could not be changed, or only some of them."""

    retriable = True
    advice = "New voters have to be connected and up to date, and a majority has to be alive after each step."

    current: str
    wanted: str
    reason: str

    def describe(self) -> str:
        return f"The voters are {self.current}, not {self.wanted}: {self.reason}."


class MetadataCopyOffline(MetadataError):
    """A broker's copy of the metadata log is no longer reliable, so it acknowledges nothing."""

    advice = "See the first error in this broker's log. If its disk has failed, replace the broker."


class MetadataDiverged(MetadataError):
    """A controller sent records that contradict committed ones. This must never happen."""

    advice = "Keep the data directories of all brokers and report this; the copy stays offline."

    offset: int
    committed: int

    def describe(self) -> str:
        return f"The metadata log was to change at offset {self.offset}, but is committed up to {self.committed}."


class MetadataRecordUnknown(MetadataError):
    """The metadata log holds a record whose kind or version this raylog does not know."""

    advice = "A newer raylog wrote it: upgrade this broker to that version."

    kind: int
    version: int

    def describe(self) -> str:
        return f"A metadata record of kind {self.kind} in version {self.version} is unknown here."
