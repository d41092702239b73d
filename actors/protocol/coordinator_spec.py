"""The arguments of a coordinator, and of a process that hosts coordinators."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CoordinatorHostSpec:
    """The process for the coordinators that are placed on one broker."""

    cluster_id: str
    broker_id: int
    node_id: str
    brokers: tuple[str, ...]  # endpoints of the broker beside it, then of others; the link to the cluster begins there

    def __str__(self) -> str:
        return f"coordinators of broker {self.broker_id}"


@dataclass(frozen=True, slots=True)
class CoordinatorSpec:
    """One placement of a coordinator. A later one of the same partition has another epoch, or producer id."""

    topic: str
    topic_id: bytes
    partition: int
    broker_id: int
    producer_id: int
    epoch: int
    retired_id: int
    term: int  # counts the coordinators that this partition had; markers of transactions carry it
    brokers: tuple[str, ...]  # endpoints of the brokers as they are now, for a process that finds none any more
    assignors: tuple[str, ...] = ()  # foreign ones that groups may use

    @property
    def id(self) -> tuple[bytes, int]:
        """Return which partition it is for."""
        return self.topic_id, self.partition

    def __str__(self) -> str:
        return f"coordinator of {self.topic}-{self.partition}, epoch {self.epoch}"
