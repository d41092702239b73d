"""Idempotent and transactional producers: sequences, epochs, transactions."""

from __future__ import annotations

from raylog.errors.base import RaylogError


class ProducerError(RaylogError):
    """A request of an idempotent or transactional producer does not fit its state."""


class OutOfOrderSequence(ProducerError):
    """A batch's first sequence number does not follow the last one."""

    advice = "An earlier batch of this producer has not arrived: send it first."

    producer_id: int
    sequence: int
    expected: int

    def describe(self) -> str:
        return f"Producer {self.producer_id} sent sequence {self.sequence}, but {self.expected} comes next."


class EarlierBatchFailed(ProducerError):
    """A batch came behind one of its producer that has to be sent again first. Nothing was done."""

    retriable = True
    advice = "Send the earlier batch again, then this one."

    topic: str
    partition: int
    producer_id: int
    sequence: int

    def describe(self) -> str:
        return (
            f"Sequence {self.sequence} of producer {self.producer_id} was not sent to {self.topic}-{self.partition}: "
            f"an earlier batch failed there, and this one would pass it."
        )


class ProducerFenced(ProducerError):
    """A newer instance of the same producer has taken over."""

    fatal = True
    advice = "Another instance uses the same producer id with a newer epoch: close this one."

    producer_id: int
    epoch: int
    current: int

    def describe(self) -> str:
        return f"Producer {self.producer_id} has epoch {self.epoch}, but the log has seen epoch {self.current}."


class CoordinatorFenced(ProducerError):
    """A transaction marker was sent by a coordinator that has been replaced."""

    advice = "A newer transaction coordinator owns this transaction; the older one must stop."

    producer_id: int
    coordinator_epoch: int
    current: int

    def describe(self) -> str:
        return (
            f"Marker for producer {self.producer_id} carries coordinator epoch {self.coordinator_epoch}, "
            f"but the log has seen {self.current}."
        )


class InvalidTransactionState(ProducerError):
    """A producer writes in a way that its open or missing transaction does not allow."""

    fatal = True
    advice = "End the open transaction first; a transactional producer writes nothing outside one."


class ConcurrentTransaction(ProducerError):
    """The last transaction of this transactional id is still being ended."""

    retriable = True
    advice = "Its markers are being written: ask again in a moment."

    transactional_id: str

    def describe(self) -> str:
        return f"A transaction of {self.transactional_id!r} is still being ended."


class InvalidTransactionTimeout(ProducerError):
    """A transaction may not stay open for as long as this producer asks."""

    fatal = True
    advice = "Choose a shorter transaction_timeout_ms."

    timeout_ms: int
    maximum_ms: int

    def describe(self) -> str:
        return f"A transaction timeout of {self.timeout_ms} ms is not allowed: expected 1 to {self.maximum_ms}."


class InvalidTransactionalId(ProducerError):
    """A transactional id is not valid."""

    fatal = True
    advice = "Choose a name that is short and stays the same when the program is started again."

    size: int
    maximum: int
    refused: str = ""  # the forbidden character, as Python writes it; empty if the size is wrong

    def describe(self) -> str:
        if self.refused:
            return f"A transactional id must not contain control characters; this one contains {self.refused}."
        return f"A transactional id has 1 to {self.maximum} bytes, not {self.size}."


class UnknownTransactionalId(ProducerError):
    """The coordinator does not know this transactional id, or no longer knows it."""

    fatal = True
    advice = "Call init_transactions first; an id that was not used for a week is forgotten."

    transactional_id: str

    def describe(self) -> str:
        return f"There is no transactional id {self.transactional_id!r}."


class TransactionAborted(ProducerError):
    """A transaction is aborted: none of its records count, and no more of them are sent."""

    abortable = True
    advice = "Call abort_transaction, unless you just did, and begin the next transaction."

    transactional_id: str
    reason: str

    def describe(self) -> str:
        return f"The transaction of {self.transactional_id!r} is aborted: {self.reason}."


class TransactionTimedOut(ProducerError):
    """The coordinator aborted a transaction because it was open for too long."""

    abortable = True
    advice = "Call abort_transaction and begin again; transaction_timeout_ms limits how long one may stay open."

    transactional_id: str
    timeout_ms: int

    def describe(self) -> str:
        what = f"The transaction of {self.transactional_id!r}"
        return f"{what} was aborted: it was open for more than {self.timeout_ms} ms."


class TransactionTooLarge(ProducerError):
    """A transaction has more partitions and groups than fit into one record of its coordinator."""

    abortable = True
    advice = "Call abort_transaction, and write to fewer partitions in one transaction."

    transactional_id: str
    size: int
    maximum: int

    def describe(self) -> str:
        what = f"The partitions of the transaction of {self.transactional_id!r}"
        return f"{what} take {self.size} bytes in one record; the limit is {self.maximum}."


class FamilyFenced(ProducerError):
    """Another driver has taken over a family of transactions. What this one left open is aborted."""

    fatal = True
    advice = "The same job was started again: stop this one. Two jobs that run side by side need two names."

    family: str
    epoch: int
    current: int

    def describe(self) -> str:
        if self.current < 0:
            return f"There is no transaction family {self.family!r}, or it no longer exists."
        return f"This driver of {self.family!r} has epoch {self.epoch}; the current driver has {self.current}."


class FamilyTooLarge(ProducerError):
    """Too many tasks wrote to too many partitions: the commit does not fit into one batch."""

    abortable = True
    advice = "Use fewer tasks (coalesce does that), or let each task write to fewer partitions."

    family: str
    size: int
    maximum: int

    def describe(self) -> str:
        return f"The commit of {self.family!r} takes {self.size} bytes of at most {self.maximum}. Nothing is committed."


class OffsetsRefused(ProducerError):
    """A group refuses the offsets that a producer commits in its transaction. The cause says why."""

    abortable = True
    advice = (
        "Call abort_transaction. If the consumer is still a member, seek to the offsets that its group committed. "
        "If not, another member processes these records: call poll to continue with the present assignment."
    )

    transactional_id: str
    group: str
    reason: str

    def describe(self) -> str:
        return f"Group {self.group!r} refuses offsets of the transaction of {self.transactional_id!r}: {self.reason}."


class TransactionPending(ProducerError):
    """A call of a transactional producer got no final answer in time."""

    retriable = True
    outcome_unknown = True
    advice = "Make the same call again: it continues where this one stopped."

    transactional_id: str
    call: str
    timeout_ms: int
    reason: str

    def describe(self) -> str:
        return f"{self.call} of {self.transactional_id!r} was not done within {self.timeout_ms} ms: {self.reason}."
