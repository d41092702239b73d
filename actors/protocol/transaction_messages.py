"""Requests to transaction coordinators, and the records that they keep. Kinds 120 to 131.

(producer id, epoch) is the identity of one transaction of a transactional id; the next one's epoch is higher.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from raylog.actors.protocol.messages import Message, message

TransactionPartition: TypeAlias = tuple[str, bytes, int]  # topic, its id, partition
MAX_TIMEOUT_MS: Final = 15 * 60 * 1000


@message(kind=120, for_clients=True)
@dataclass(frozen=True, slots=True)
class InitProducer(Message):
    """Sent by a producer: take over this transactional id. `producer_id`, `epoch`: its former identity, if any."""

    transactional_id: str
    timeout_ms: int
    producer_id: int
    epoch: int


@message(kind=121)
@dataclass(frozen=True, slots=True)
class ProducerInitialised(Message):
    """The answer to InitProducer: the identity of its next transaction. Earlier producers of that id are fenced."""

    producer_id: int
    epoch: int


@message(kind=122)
@dataclass(frozen=True, slots=True)
class AddPartition(Message):
    """Sent by a leader, before it takes the first batch of a transaction (rule 20).

    `together`: where its producer begins at the same time. The leaders of these ask as well, and need not wait then
    for an append of their own.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    topic: str
    topic_id: bytes
    partition: int
    together: tuple[TransactionPartition, ...] = ()


@message(kind=123, for_clients=True)
@dataclass(frozen=True, slots=True)
class AddGroup(Message):
    """Sent by a producer, before it asks a group's coordinator to stage offsets of this transaction."""

    transactional_id: str
    producer_id: int
    epoch: int
    group: str


@message(kind=124, for_clients=True)
@dataclass(frozen=True, slots=True)
class EndTransaction(Message):
    """Sent by a producer. Answered with `TransactionEnded` once every partition has its marker."""

    transactional_id: str
    producer_id: int
    epoch: int
    commits: bool


@message(kind=125)
@dataclass(frozen=True, slots=True)
class TransactionEnded(Message):
    """The answer to EndTransaction: the identity of the next transaction."""

    producer_id: int
    epoch: int


@message(kind=87)
@dataclass(frozen=True, slots=True)
class ResolveStaged(Message):
    """Sent by a transaction's coordinator: how it ended, for all groups of this partition. Repeated until Done."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool


@message(kind=126, for_clients=True)
@dataclass(frozen=True, slots=True)
class ListTransactions(Message):
    """Sent by an administrator: list all transactional ids of this coordinator."""


@message(kind=127)
@dataclass(frozen=True, slots=True)
class TransactionsListed(Message):
    """The answer: (transactional id, producer id, epoch, phase, when it began; −1: none is open).

    The identity is that of the transaction that is open or being ended; where there is none, of the next.
    """

    transactions: tuple[tuple[str, int, int, int, int], ...]


@message(kind=128, for_clients=True)
@dataclass(frozen=True, slots=True)
class DescribeTransaction(Message):
    """Sent by an administrator: describe one transactional id. Answered with its `TransactionRecord`."""

    transactional_id: str


@message(kind=129, for_clients=True)
@dataclass(frozen=True, slots=True)
class AbortTransaction(Message):
    """Sent by an administrator: abort this transaction, and fence its producer. Done once all markers are written."""

    transactional_id: str
    producer_id: int
    epoch: int


# --- what is kept -------------------------------------------------------------------------------------------------


@message(kind=130)
@dataclass(frozen=True, slots=True)
class TransactionRecord(Message):
    """The record of a transactional id. `rules/transaction.py` says what its phases are.

    `producer_id`, `epoch`: of the transaction that is open, or of the next. `ended_id`, `ended_epoch`: of the one that
    ended last, if its producer may ask again how. `marker_id`, `marker_epoch`: what its markers carry. `timed_out`: it
    was aborted because its time was over.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    phase: int
    partitions: tuple[TransactionPartition, ...]
    groups: tuple[str, ...]
    begun_ms: int
    changed_ms: int
    ended_id: int
    ended_epoch: int
    marker_id: int
    marker_epoch: int
    timed_out: bool = False
