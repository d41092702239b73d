"""Offsets and leader epochs that do not fit the log."""

from __future__ import annotations

from raylog.errors.base import RaylogError


class OffsetError(RaylogError):
    """An offset does not fit the log."""


class OffsetOutOfRange(OffsetError):
    """The offset asked for is not in the log."""

    advice = "Seek to an offset within the range, or to its beginning or end."

    offset: int
    start: int
    end: int

    def describe(self) -> str:
        return f"Offset {self.offset} is out of range: the log holds {self.start} to {self.end} (exclusive)."


class OffsetsNotContiguous(OffsetError):
    """A replicated batch does not continue the log at its end."""

    advice = "Nothing has to be done: the follower fetches again from the end of its own log."

    base_offset: int
    log_end_offset: int

    def describe(self) -> str:
        return f"A batch at offset {self.base_offset} does not continue a log that ends at {self.log_end_offset}."


class EpochError(RaylogError):
    """A leadership or coordinator epoch does not fit."""


class StaleLeaderEpoch(EpochError):
    """A batch or claim carries an older leader epoch than the log has seen."""

    advice = "Its sender is no longer the leader: refresh metadata."

    epoch: int
    current: int

    def describe(self) -> str:
        return f"Leader epoch {self.epoch} is older than {self.current}."


class InvalidLeaderEpoch(EpochError):
    """A number is not a valid leader epoch."""

    advice = "Leader epochs are whole numbers from 0 to 2147483647; only the controller assigns them."

    epoch: int

    def describe(self) -> str:
        return f"{self.epoch} is not a valid leader epoch."


class UnknownLeaderEpoch(EpochError):
    """A request carries a newer leader epoch than this replica knows."""

    retriable = True
    advice = "This replica does not know the latest election yet: ask again in a moment."

    epoch: int
    current: int

    def describe(self) -> str:
        return f"Leader epoch {self.epoch} is newer than {self.current}, the newest known here."
