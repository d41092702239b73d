"""Jobs whose tasks read ranges of topics and write rows to them: Spark's, and those of Ray Data."""

from __future__ import annotations

from raylog.errors.base import RaylogError


class JobError(RaylogError):
    """A job cannot read or write a topic as it was asked to."""


class RecordsLost(JobError):
    """Records to be read no longer exist, or belong to another topic."""

    advice = "Read from what is there: start='earliest'. Retention and deletion decide how long records stay."

    place: str
    reason: str

    def describe(self) -> str:
        return f"Data of {self.place} was lost: {self.reason}."


class RangeNotRead(JobError):
    """A task could not read its offsets in time. The job tries again."""

    retriable = True
    advice = "Check that the partition has a leader, and that the task's node can reach the brokers."

    place: str
    offset: int
    reason: str

    def describe(self) -> str:
        return f"{self.place} was read up to offset {self.offset} only: {self.reason}."


class RowNotWritable(JobError, ValueError):
    """A row cannot become a record, so nothing of its frame, dataset or batch counts."""

    advice = "Filter such rows out, or name one topic for all rows."

    reason: str

    def describe(self) -> str:
        return f"A row cannot be written: {self.reason}."


class ValueNotDecoded(JobError, ValueError):
    """The value of a record does not fit the schema that it is read with."""

    advice = "Read the topic without schema= to see the bytes, or begin behind this offset."

    place: str
    offset: int
    reason: str

    def describe(self) -> str:
        return f"The value at offset {self.offset} of {self.place} cannot be decoded: {self.reason}."


class DatasetNotWritable(JobError, ValueError):
    """The columns of this Dataset are not those of records. Nothing of it counts."""

    advice = "Name the columns: key=, value=, partition=, headers=; several columns of value= become one JSON object."

    reason: str

    def describe(self) -> str:
        return f"This Dataset cannot be written to a topic: {self.reason}."


class InvalidRange(JobError, ValueError):
    """Offsets or times of a read contradict each other, or do not fit what is read."""

    reason: str

    def describe(self) -> str:
        return f"This cannot be read: {self.reason}."
