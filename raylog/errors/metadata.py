"""The metadata log: the log that holds the controller's state (rule 17)."""

from __future__ import annotations

from typing import ClassVar

from raylog.errors.base import RaylogError


class MetadataError(RaylogError):
    """Something about the log that the controller's state is kept in (rule 17)."""

    outcome_unknown: ClassVar[bool] = False  # whether a change may come into force all the same


class ControllerFenced(MetadataError):
    """A controller acts under an epoch, but a higher one has been promised since."""

    outcome_unknown = True
    advice = "Another controller has taken over, or tries to: ask that one whether the change was made."

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
    """Too few voters of the metadata log answer for a controller to begin."""

    retriable = True
    advice = "Nothing is lost: bring more of the voters' brokers back, with their data directories."

    voters: str
    answered: str
    timeout_ms: int

    def describe(self) -> str:
        return (
            f"No majority of the metadata log's voters ({self.voters or 'none known'}) followed within "
            f"{self.timeout_ms} ms; brokers that answered: {self.answered or 'none'}."
        )


class MetadataNotBlank(MetadataError):
    """A cluster was to be formed, but a broker holds the metadata of one already."""

    advice = "Start without forming, or with an empty data directory."

    broker_id: int
    end_offset: int

    def describe(self) -> str:
        return f"Broker {self.broker_id} holds metadata up to offset {self.end_offset}; no cluster can be formed on it."


class MetadataNotReady(MetadataError):
    """A broker that was just started does not know yet which topics there are."""

    retriable = True
    advice = "Another broker may know; this one will once it has heard all from a controller."

    broker_id: int

    def describe(self) -> str:
        return f"Broker {self.broker_id} has not heard yet what the cluster's topics are."


class VotersNotChanged(MetadataError):
    """The voters of the metadata log could not be changed, or not all the way."""

    retriable = True
    advice = "New voters have to be connected and up to date, and a majority alive after each step."

    current: str
    wanted: str
    reason: str

    def describe(self) -> str:
        return f"The voters are {self.current}, not {self.wanted}: {self.reason}."


class MetadataCopyOffline(MetadataError):
    """A broker's copy of the metadata log cannot be relied upon any more, and acknowledges nothing."""

    advice = "See the first error in this broker's log; where its disk is to blame, replace the broker."


class MetadataDiverged(MetadataError):
    """A controller sent something else than what is committed. This must never happen."""

    advice = "Keep the data directories of all brokers and report this; the copy stays offline."

    offset: int
    committed: int

    def describe(self) -> str:
        return f"The metadata log was to change at offset {self.offset}, but is committed up to {self.committed}."


class MetadataRecordUnknown(MetadataError):
    """The metadata log holds a record of a kind, or a version of it, that this raylog does not know."""

    advice = "A newer raylog wrote it: bring this broker to that version."

    kind: int
    version: int

    def describe(self) -> str:
        return f"Metadata record kind {self.kind} in version {self.version} is unknown here."
