"""Errors that polls have to raise, and when.

What must stay true:
- What there is to hand out is handed out first, and the poll after it raises; so neither does an error take records
  with it, nor do busy partitions keep an error from being seen.
- An error that passes by itself is raised once. One that ends a partition's reading is raised again and again, until
  the partition gets another position or is let go of.
"""

from __future__ import annotations

from raylog.api.connection.records import TopicPartition


class PollErrors:
    """The errors of one consumer."""

    def __init__(self) -> None:
        self._final: dict[TopicPartition, Exception] = {}
        self._passing: dict[type[Exception], Exception] = {}
        self._is_owed = False

    def add_final(self, partition: TopicPartition, error: Exception) -> None:
        self._final[partition] = error

    def add_passing(self, error: Exception) -> None:
        """Many partitions may tell the same; one of a kind is enough."""
        self._passing[type(error)] = error

    def forget(self, partition: TopicPartition) -> None:
        self._final.pop(partition, None)

    def raise_of(self, partition: TopicPartition) -> None:
        """Raise what keeps this partition from being read, if anything does."""
        if partition in self._final:
            raise self._final[partition]
        self._raise_passing()

    def raise_owed(self) -> None:
        """Raise, at the beginning of a poll, what the one before could have raised."""
        if self._is_owed:
            self._is_owed = False
            self._raise_any()

    def raise_or_owe(self, found_some: bool) -> None:
        """Raise errors at the end of a poll, or with the next one if this one has found records."""
        if found_some:
            self._is_owed = bool(self._passing or self._final)
        else:
            self._raise_any()

    def _raise_any(self) -> None:
        self._raise_passing()
        for error in self._final.values():
            raise error

    def _raise_passing(self) -> None:
        if self._passing:
            raise self._passing.pop(next(iter(self._passing)))
