"""The rules of a transactional id: from its record and a request follow its next record and the answer.

    phase           allows                                                    comes from
    empty           init · add → ongoing · commit: there is nothing to end    init, complete
                    abort → complete abort
    ongoing         add · end → prepare · init, time-out → prepare abort      empty, complete
    prepare …       the same end again; markers go out → complete             ongoing
    complete …      as empty · the same end again is answered as before       prepare

What must stay true:
- An outcome that was prepared never changes (rule 21).
- Every end raises the identity: producer epoch + 1, and markers carry the raised one, so nothing late can join the
  next transaction (rule 20). So does an abort where nothing was added: its first batch may still be on its way. The
  largest epoch is for markers only; behind it comes another producer id.
- A request under any identity but the present one is fenced, except that the holder may ask again how its last
  transaction ended. Where its time was over the answer says so: it aborts, and goes on. After an operator's abort it is
  fenced.

A record of `__transaction_state` holds all that is known of a transactional id, and its name is the key. The same holds
for a family.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import IntEnum
from typing import Final, NamedTuple, TypeVar

from raylog.actors.protocol.coordinator_records import Entry, read_stored, stored
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.transaction_messages import (
    MAX_TIMEOUT_MS,
    AbortTransaction,
    AddGroup,
    AddPartition,
    EndTransaction,
    InitProducer,
    ProducerInitialised,
    TransactionEnded,
    TransactionRecord,
)
from raylog.errors import (
    ConcurrentTransaction,
    FrameInvalid,
    InvalidTransactionState,
    InvalidTransactionTimeout,
    ProducerFenced,
    TransactionTimedOut,
    UnknownTransactionalId,
)

FIRST_EPOCH: Final = 0  # of a producer id; the simulator begins near the last
LAST_EPOCH: Final = 32_766  # of a transaction
MARKER_EPOCH: Final = 32_767
_NOBODY: Final = -1


class Phase(IntEnum):
    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def is_prepared(self) -> bool:
        return self in (Phase.PREPARE_COMMIT, Phase.PREPARE_ABORT)

    @property
    def is_idle(self) -> bool:
        return self in (Phase.EMPTY, Phase.COMPLETE_COMMIT, Phase.COMPLETE_ABORT)

    @property
    def words(self) -> str:
        """The name that people are shown, which is Kafka's: PrepareCommit."""
        return "".join(word.capitalize() for word in self.name.split("_"))


class Initialised(NamedTuple):
    """`answer` None: an open transaction is being aborted first, and the producer is to ask again."""

    record: TransactionRecord
    answer: ProducerInitialised | None


class Ended(NamedTuple):
    """`record` None: nothing changes. `answer` None: it comes when all markers are written."""

    record: TransactionRecord | None
    answer: TransactionEnded | None


# --- requests -----------------------------------------------------------------------------------------------------


def init_producer(known: TransactionRecord | None, request: InitProducer, now_ms: int, fresh_id: int) -> Initialised:
    """Give a transactional id to a producer. `fresh_id`: a producer id that no producer has, in case one is needed.

    ConcurrentTransaction: its last one is still being ended. ProducerFenced, InvalidTransactionTimeout.
    """
    if not 0 < request.timeout_ms <= MAX_TIMEOUT_MS:
        raise InvalidTransactionTimeout(request.timeout_ms, MAX_TIMEOUT_MS)
    if known is None:
        record = _blank(request, fresh_id, now_ms)
        return Initialised(record, ProducerInitialised(record.producer_id, record.epoch))
    if request.producer_id != _NOBODY:
        _check_holder(known, request.producer_id, request.epoch)
    if Phase(known.phase).is_prepared:
        raise ConcurrentTransaction(known.transactional_id)
    if known.phase == Phase.ONGOING:
        aborting = _prepare(known, Phase.PREPARE_ABORT, now_ms, fresh_id)
        return Initialised(_held_by(aborting, request), None)
    producer_id, epoch = _next_identity(known, fresh_id)
    record = replace(
        _held_by(known, request),
        producer_id=producer_id, epoch=epoch, timeout_ms=request.timeout_ms, phase=int(Phase.EMPTY), changed_ms=now_ms,
    )  # fmt: skip
    return Initialised(record, ProducerInitialised(producer_id, epoch))


def add_partition(known: TransactionRecord | None, request: AddPartition, now_ms: int) -> TransactionRecord | None:
    """Add a partition, and those that come together with it. None: it is in the transaction already.

    TransactionTimedOut, ProducerFenced, ConcurrentTransaction, UnknownTransactionalId.
    """
    partition = request.topic, request.topic_id, request.partition
    open_ = _opened(known, request, now_ms)
    if partition in open_.partitions:
        return None
    added = [each for each in dict.fromkeys((partition, *request.together)) if each not in open_.partitions]
    return replace(open_, partitions=(*open_.partitions, *added), changed_ms=now_ms)


def add_group(known: TransactionRecord | None, request: AddGroup, now_ms: int) -> TransactionRecord | None:
    """Add a group, as `add_partition` adds a partition."""
    open_ = _opened(known, request, now_ms)
    if request.group in open_.groups:
        return None
    return replace(open_, groups=(*open_.groups, request.group), changed_ms=now_ms)


def end_transaction(known: TransactionRecord | None, request: EndTransaction, now_ms: int, fresh_id: int) -> Ended:
    """ProducerFenced, UnknownTransactionalId; TransactionTimedOut, InvalidTransactionState: it ended the other way."""
    known = _known(known, request.transactional_id)
    identity = request.producer_id, request.epoch
    if identity == (known.ended_id, known.ended_epoch):
        return _asked_again(known, request)
    if identity != (known.producer_id, known.epoch):
        raise ProducerFenced(request.producer_id, request.epoch, known.epoch)
    if known.phase != Phase.ONGOING and request.commits:
        return Ended(None, TransactionEnded(known.producer_id, known.epoch))
    if known.phase != Phase.ONGOING:
        return _abort_nothing(known, now_ms, fresh_id)
    phase = Phase.PREPARE_COMMIT if request.commits else Phase.PREPARE_ABORT
    return Ended(_prepare(known, phase, now_ms, fresh_id), None)


def _abort_nothing(known: TransactionRecord, now_ms: int, fresh_id: int) -> Ended:
    """A first batch of it may be on its way all the same, and must not begin the next one: so this is an end, too."""
    if Phase(known.phase).is_prepared:
        raise ConcurrentTransaction(known.transactional_id)
    producer_id, epoch = _next_identity(known, fresh_id)
    record = replace(
        known,
        producer_id=producer_id, epoch=epoch, phase=int(Phase.COMPLETE_ABORT), changed_ms=now_ms,
        ended_id=known.producer_id, ended_epoch=known.epoch,
    )  # fmt: skip
    return Ended(record, TransactionEnded(producer_id, epoch))


def _asked_again(known: TransactionRecord, request: EndTransaction) -> Ended:
    if known.phase in (Phase.EMPTY, Phase.ONGOING):
        raise InvalidTransactionState(f"The next transaction of {known.transactional_id!r} has begun already.")
    if request.commits != (known.phase in (Phase.PREPARE_COMMIT, Phase.COMPLETE_COMMIT)):
        if known.timed_out:
            raise TransactionTimedOut(known.transactional_id, known.timeout_ms)
        ended = "aborted" if request.commits else "committed"
        raise InvalidTransactionState(f"The transaction of {known.transactional_id!r} was {ended} before.")
    if Phase(known.phase).is_prepared:
        return Ended(None, None)
    return Ended(None, TransactionEnded(known.producer_id, known.epoch))


# --- what follows without a request -------------------------------------------------------------------------------


def timed_out(known: TransactionRecord, now_ms: int, fresh_id: int, heard_ms: int = 0) -> TransactionRecord | None:
    """Aborted, if it has been open for too long. `heard_ms`: when its driver, if it has one, was heard last."""
    if known.phase != Phase.ONGOING or now_ms - max(known.begun_ms, heard_ms) < known.timeout_ms:
        return None
    return replace(_prepare(known, Phase.PREPARE_ABORT, now_ms, fresh_id), timed_out=True)


def aborted_by_operator(
    known: TransactionRecord | None, request: AbortTransaction, now_ms: int, fresh_id: int
) -> TransactionRecord | None:
    """Abort it as an operator asks. None: it is being aborted, or was.

    UnknownTransactionalId; InvalidTransactionState: it is not open."""
    known = _known(known, request.transactional_id)
    if identity_in_use(known) == (request.producer_id, request.epoch) and known.phase == Phase.ONGOING:
        return _held_by_nobody(_prepare(known, Phase.PREPARE_ABORT, now_ms, fresh_id))
    is_last = (request.producer_id, request.epoch) == (known.marker_id, known.marker_epoch - 1)
    if is_last and known.phase in (Phase.PREPARE_ABORT, Phase.COMPLETE_ABORT):
        return None
    asked = f"of producer {request.producer_id}, epoch {request.epoch}"
    raise InvalidTransactionState(f"{request.transactional_id!r} has no open transaction {asked}.")


def completed(known: TransactionRecord, now_ms: int) -> TransactionRecord:
    """Every partition and group has its marker."""
    assert Phase(known.phase).is_prepared
    phase = Phase.COMPLETE_COMMIT if known.phase == Phase.PREPARE_COMMIT else Phase.COMPLETE_ABORT
    return replace(known, phase=int(phase), partitions=(), groups=(), changed_ms=now_ms)


def broken_invariants(known: TransactionRecord) -> Iterator[str]:
    """Say in words what contradicts the phase of a transactional id in its record."""
    phase = Phase(known.phase)
    if phase.is_idle and (known.partitions or known.groups):
        yield f"it is {phase.name}, and holds {known.partitions} and {known.groups}"
    if phase.is_prepared and not (known.marker_id >= 0 and 0 < known.marker_epoch <= MARKER_EPOCH):
        yield f"it is {phase.name}, and its markers carry producer {known.marker_id}, epoch {known.marker_epoch}"
    if not 0 <= known.epoch <= LAST_EPOCH:
        yield f"its epoch is {known.epoch}"


# --- members of a family, `rules/family.py` -----------------------------------------------------------------


def opened_for_family(
    known: TransactionRecord | None, name: str, fresh_id: int, timeout_ms: int, now_ms: int
) -> TransactionRecord:
    """A record that is open from the start. `known` None: under a fresh producer id; else under its next identity."""
    if known is None:
        known = _blank(InitProducer(name, timeout_ms, _NOBODY, _NOBODY), fresh_id, now_ms)
    assert Phase(known.phase).is_idle
    return replace(
        known,
        timeout_ms=timeout_ms, phase=int(Phase.ONGOING), partitions=(), groups=(), begun_ms=now_ms, changed_ms=now_ms,
    )  # fmt: skip


def ended_with_family(known: TransactionRecord, commits: bool, now_ms: int) -> TransactionRecord:
    """Prepared. It needs no other producer id: members are not opened under their last epoch."""
    assert known.phase == Phase.ONGOING
    assert known.epoch < LAST_EPOCH
    return _prepare(known, Phase.PREPARE_COMMIT if commits else Phase.PREPARE_ABORT, now_ms, _NOBODY)


def is_expired(known: TransactionRecord, now_ms: int, after_ms: int) -> bool:
    """Whether it was not used for so long that it may be forgotten."""
    return Phase(known.phase).is_idle and now_ms - known.changed_ms >= after_ms


# --- identities ---------------------------------------------------------------------------------------------------


def identity_in_use(known: TransactionRecord) -> tuple[int, int]:
    """The identity of the transaction that is open or being ended; where there is none, of the next."""
    if Phase(known.phase).is_prepared:
        return known.marker_id, known.marker_epoch - 1
    return known.producer_id, known.epoch


def _blank(request: InitProducer, fresh_id: int, now_ms: int) -> TransactionRecord:
    return TransactionRecord(
        request.transactional_id, fresh_id, FIRST_EPOCH, request.timeout_ms, int(Phase.EMPTY), (), (), -1, now_ms,
        _NOBODY, _NOBODY, _NOBODY, _NOBODY,
    )  # fmt: skip


def _next_identity(known: TransactionRecord, fresh_id: int) -> tuple[int, int]:
    return (known.producer_id, known.epoch + 1) if known.epoch < LAST_EPOCH else (fresh_id, FIRST_EPOCH)


def _prepare(known: TransactionRecord, phase: Phase, now_ms: int, fresh_id: int) -> TransactionRecord:
    producer_id, epoch = _next_identity(known, fresh_id)
    return replace(
        known,
        producer_id=producer_id, epoch=epoch, phase=int(phase), changed_ms=now_ms,
        ended_id=known.producer_id, ended_epoch=known.epoch,
        marker_id=known.producer_id, marker_epoch=min(known.epoch + 1, MARKER_EPOCH), timed_out=False,
    )  # fmt: skip


def _held_by(record: TransactionRecord, request: InitProducer) -> TransactionRecord:
    """The requester may retry with its old identity if the answer was lost; any other holder of the id is fenced."""
    return replace(record, ended_id=request.producer_id, ended_epoch=request.epoch)


def _held_by_nobody(record: TransactionRecord) -> TransactionRecord:
    """The record under an identity that no producer holds. The former holder is fenced, whatever it asks."""
    return replace(record, ended_id=_NOBODY, ended_epoch=_NOBODY)


def _check_holder(known: TransactionRecord, producer_id: int, epoch: int) -> None:
    present, before = (known.producer_id, known.epoch), (known.ended_id, known.ended_epoch)
    if (producer_id, epoch) not in (present, before):
        raise ProducerFenced(producer_id, epoch, known.epoch)


def _known(known: TransactionRecord | None, name: str) -> TransactionRecord:
    if known is None:
        raise UnknownTransactionalId(name)
    return known


def _opened(known: TransactionRecord | None, request: AddPartition | AddGroup, now_ms: int) -> TransactionRecord:
    """The record with its transaction open, under the identity of the request."""
    known = _known(known, request.transactional_id)
    identity = request.producer_id, request.epoch
    if identity == (known.ended_id, known.ended_epoch) and known.timed_out:
        raise TransactionTimedOut(known.transactional_id, known.timeout_ms)
    if identity != (known.producer_id, known.epoch):
        raise ProducerFenced(request.producer_id, request.epoch, known.epoch)
    if Phase(known.phase).is_prepared:
        raise ConcurrentTransaction(known.transactional_id)
    if known.phase == Phase.ONGOING:
        return known
    return replace(known, phase=int(Phase.ONGOING), partitions=(), groups=(), begun_ms=now_ms)


# --- as records of `__transaction_state` ------------------------------------------------------------------------------

TRANSACTION_PREFIX: Final = b"t"
FAMILY_PREFIX: Final = b"f"
_FIRST_KIND: Final = 120
_M = TypeVar("_M", bound=Message)


def transaction_key(name: str) -> bytes:
    return TRANSACTION_PREFIX + name.encode()


def transaction_entry(record: TransactionRecord) -> Entry:
    return transaction_key(record.transactional_id), stored(record)


def read_entry(kind: type[_M], prefix: bytes, key: bytes, value: bytes | None) -> tuple[str, _M | None]:
    """The name in the key, and the record; None: it is no more.

    FrameInvalid where no coordinator wrote this, MessageUnknown where one of a later version did.
    """
    record = None if value is None else read_stored(value, _FIRST_KIND)
    if record is not None and not isinstance(record, kind):
        raise FrameInvalid(f"A {type(record).__name__} is no record of this key.")
    if not key.startswith(prefix):
        raise FrameInvalid(f"A key that begins with {key[:1]!r} is none of a transaction coordinator.")
    try:
        return key[len(prefix) :].decode(), record
    except UnicodeDecodeError as error:
        raise FrameInvalid(f"The key holds no name: {error}.") from None
