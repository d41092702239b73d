"""Transactions as people and programs are shown them (`Cluster.list_transactions`, `describe_transaction`, …)."""

from __future__ import annotations

from dataclasses import dataclass

from raylog.api.records import TopicPartition


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """`state`: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit or CompleteAbort.

    `producer_id` and `epoch` are those of the transaction that is open or being ended; of the next where none is.
    """

    transactional_id: str
    state: str
    producer_id: int
    epoch: int
    began_ms: int | None  # milliseconds since 1970; None: none is open


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    transactional_id: str
    state: str
    producer_id: int
    epoch: int
    timeout_ms: int
    began_ms: int | None
    changed_ms: int  # when the last of this was written down
    partitions: tuple[TopicPartition, ...]  # written to in the transaction that is open or being ended
    groups: tuple[str, ...]  # for which it has offsets


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """One that is open in a partition, and that no coordinator will ever end: committed reads stop at its beginning."""

    partition: TopicPartition
    producer_id: int
    epoch: int
    first_offset: int
    last_write_ms: int
    coordinator_epoch: int  # of the coordinator that ended the producer's transaction before; −1: none did
