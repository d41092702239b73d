"""Idempotent and transactional producers: sequences, epochs, transactions."""

from __future__ import annotations

from raylog.errors.base import RaylogError


class ProducerError(RaylogError):
    """An idempotent or transactional append breaks the producer's own order."""


class OutOfOrderSequence(ProducerError):
    """A batch's first sequence number is not the successor of the last one."""

    advice = "An earlier batch of this producer has not arrived: send it first."

    producer_id: int
    sequence: int
    expected: int

    def describe(self) -> str:
        return f"Producer {self.producer_id} sent sequence {self.sequence} where {self.expected} comes next."


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
    """A producer writes in a way its open or missing transaction does not allow."""

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
        return f"A transaction cannot have {self.timeout_ms} ms: expected 1 to {self.maximum_ms}."


class InvalidTransactionalId(ProducerError):
    """This cannot be a transactional id."""

    fatal = True
    advice = "Choose a name that is short and stays the same when the program is started again."

    size: int
    maximum: int
    refused: str = ""  # the character that none may have, as Python writes it; empty: it is the size

    def describe(self) -> str:
        if self.refused:
            return f"A transactional id has no control characters: {self.refused} cannot be in one."
        return f"A transactional id has 1 to {self.maximum} bytes, not {self.size}."


class UnknownTransactionalId(ProducerError):
    """The coordinator does not know this transactional id, or not any more."""

    fatal = True
    advice = "Call init_transactions first; an id that was not used for a week is forgotten."

    transactional_id: str

    def describe(self) -> str:
        return f"There is no transactional id {self.transactional_id!r}."


class TransactionAborted(ProducerError):
    """Nothing of this transaction will count, and nothing more of it is sent."""

    abortable = True
    advice = "Call abort_transaction, unless you just did, and begin the next transaction."

    transactional_id: str
    reason: str

    def describe(self) -> str:
        return f"The transaction of {self.transactional_id!r} is aborted: {self.reason}."


class TransactionTimedOut(ProducerError):
    """Its coordinator has aborted the transaction: it was open for too long."""

    abortable = True
    advice = "Call abort_transaction and begin anew; transaction_timeout_ms says how long one may stay open."

    transactional_id: str
    timeout_ms: int

    def describe(self) -> str:
        what = f"The transaction of {self.transactional_id!r}"
        return f"{what} was aborted: it was open for more than {self.timeout_ms} ms."


class TransactionTooLarge(ProducerError):
    """A transaction has more partitions and groups than its coordinator can write down in one record."""

    abortable = True
    advice = "Call abort_transaction, and write to fewer partitions in one transaction."

    transactional_id: str
    size: int
    maximum: int

    def describe(self) -> str:
        what = f"The partitions of the transaction of {self.transactional_id!r} take {self.size} bytes"
        return f"{what} to write down, and {self.maximum} are the limit."


class FamilyFenced(ProducerError):
    """Another driver has taken over this family of transactions; what this one has left open is aborted."""

    fatal = True
    advice = "The same job was started again: stop this one. Two jobs that run side by side need two names."

    family: str
    epoch: int
    current: int

    def describe(self) -> str:
        if self.current < 0:
            return f"There is no transaction family {self.family!r}, or not any more."
        return f"The driver of {self.family!r} has epoch {self.epoch}, and the present one {self.current}."


class FamilyTooLarge(ProducerError):
    """So many tasks have written to so many partitions that their one decision does not fit into a batch."""

    abortable = True
    advice = "Write with fewer tasks, as by coalesce, or bring each one's rows to fewer partitions."

    family: str
    size: int
    maximum: int

    def describe(self) -> str:
        return f"To commit {self.family!r} takes {self.size} bytes of {self.maximum} that fit; nothing is committed."


class OffsetsRefused(ProducerError):
    """A group does not let this producer commit these offsets in its transaction; the cause says why."""

    abortable = True
    advice = (
        "Call abort_transaction. Where the consumer is no member any more, its records are another's to process: poll "
        "goes on with what it has now. Where it is, let it seek to what the group has committed."
    )

    transactional_id: str
    group: str
    reason: str

    def describe(self) -> str:
        return f"Group {self.group!r} takes no offsets of the transaction of {self.transactional_id!r}: {self.reason}."


class TransactionPending(ProducerError):
    """A call of a transactional producer has had no final answer in its time."""

    retriable = True
    outcome_unknown = True
    advice = "Make the same call again: it goes on where this one stopped."

    transactional_id: str
    call: str
    timeout_ms: int
    reason: str

    def describe(self) -> str:
        return f"{self.call} of {self.transactional_id!r} was not done within {self.timeout_ms} ms: {self.reason}."
