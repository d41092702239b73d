"""The arguments of a coordinator process."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CoordinatorSpec:
    """One placement of a coordinator. A later one of the same partition has another epoch, or producer id."""

    cluster_id: str
    topic: str
    topic_id: bytes
    partition: int
    broker_id: int
    node_id: str
    producer_id: int
    epoch: int
    retired_id: int
    term: int  # counts the coordinators that this partition had; markers of transactions carry it
    brokers: tuple[str, ...]  # endpoints of the broker beside it, then of others; the link to the cluster begins there
    assignors: tuple[str, ...] = ()  # foreign ones that groups may use

    def __str__(self) -> str:
        return f"coordinator of {self.topic}-{self.partition}, epoch {self.epoch}"
