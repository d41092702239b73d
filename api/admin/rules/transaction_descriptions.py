"""Transactions as people and programs are shown them (`Cluster.list_transactions`, `describe_transaction`, …)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from raylog.api.connection.records import TopicPartition
from raylog.errors import RaylogError


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
    """One that is open in a partition, and that no coordinator will ever end: committed reads stop at its beginning.

    With `groups` it is one that has staged offsets of these: its partition is then that of `__consumer_offsets` in
    which they are kept, and it has no first offset (−1). Reading these offsets is UnstableOffset until it is ended.
    """

    partition: TopicPartition
    producer_id: int
    epoch: int
    first_offset: int
    last_write_ms: int
    coordinator_epoch: int  # of the coordinator that ended the producer's transaction before; −1: none did
    groups: tuple[str, ...] = ()


class HangingTransactions(tuple[HangingTransaction, ...]):
    """Hanging transactions that were found. `unasked`: the partitions of which it could not be told, and why."""

    unasked: Mapping[TopicPartition, RaylogError]

    def __new__(
        cls, found: Iterable[HangingTransaction] = (), unasked: Mapping[TopicPartition, RaylogError] | None = None
    ) -> HangingTransactions:
        made = super().__new__(cls, found)
        made.unasked = dict(unasked or {})
        return made
