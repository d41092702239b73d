"""What becomes of a transactional id, request by request."""

from __future__ import annotations

from dataclasses import replace

import pytest

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
from raylog.actors.transactions.rules.transaction import (
    LAST_EPOCH,
    MARKER_EPOCH,
    Phase,
    aborted_by_operator,
    add_group,
    add_partition,
    completed,
    end_transaction,
    init_producer,
    is_expired,
    timed_out,
)
from raylog.errors import (
    ConcurrentTransaction,
    InvalidTransactionState,
    InvalidTransactionTimeout,
    ProducerFenced,
    TransactionTimedOut,
    UnknownTransactionalId,
)

ID = "copier-1"
TOPIC = b"t" * 16
PRODUCER, FRESH = 40, 99


def init(producer_id: int = -1, epoch: int = -1, timeout_ms: int = 1000) -> InitProducer:
    return InitProducer(ID, timeout_ms, producer_id, epoch)


def add(epoch: int, partition: int = 0, producer_id: int = PRODUCER) -> AddPartition:
    return AddPartition(ID, producer_id, epoch, "clicks", TOPIC, partition)


def end(epoch: int, *, commits: bool = True, producer_id: int = PRODUCER) -> EndTransaction:
    return EndTransaction(ID, producer_id, epoch, commits)


def abort(epoch: int) -> AbortTransaction:
    return AbortTransaction(ID, PRODUCER, epoch)


def begun() -> TransactionRecord:
    return init_producer(None, init(), 10, PRODUCER).record


def ongoing(known: TransactionRecord | None = None) -> TransactionRecord:
    known = known or begun()
    record = add_partition(known, add(known.epoch, producer_id=known.producer_id), 20)
    assert record is not None
    return record


def prepared(*, commits: bool = True, known: TransactionRecord | None = None) -> TransactionRecord:
    known = known or ongoing()
    record = end_transaction(known, end(known.epoch, commits=commits, producer_id=known.producer_id), 30, FRESH).record
    assert record is not None
    return record


# --- a transaction ------------------------------------------------------------------------------------------------


def test_a_transaction_from_its_beginning_to_the_next() -> None:
    assert init_producer(None, init(), 10, PRODUCER).answer == ProducerInitialised(PRODUCER, 0)
    first = ongoing()
    assert (first.phase, first.partitions, first.begun_ms) == (Phase.ONGOING, (("clicks", TOPIC, 0),), 20)
    more = add_partition(first, add(0, partition=1), 21)
    assert more is not None
    assert len(more.partitions) == 2
    with_group = add_group(more, AddGroup(ID, PRODUCER, 0, "readers"), 22)
    assert with_group is not None
    ending = prepared(known=with_group)
    assert (ending.phase, ending.epoch, ending.marker_id, ending.marker_epoch) == (Phase.PREPARE_COMMIT, 1, PRODUCER, 1)
    assert (len(ending.partitions), ending.groups) == (2, ("readers",))
    done = completed(ending, 40)
    assert (done.phase, done.partitions, done.groups) == (Phase.COMPLETE_COMMIT, (), ())
    assert ongoing(done).epoch == 1


def test_what_is_in_the_transaction_already_changes_nothing() -> None:
    assert add_partition(ongoing(), add(0), 25) is None
    with_group = add_group(begun(), AddGroup(ID, PRODUCER, 0, "readers"), 20)
    assert add_group(with_group, AddGroup(ID, PRODUCER, 0, "readers"), 25) is None


def test_partitions_that_begin_together_are_added_in_one_step() -> None:
    known = ongoing()
    others = tuple(("clicks", TOPIC, each) for each in (0, 2, 1))
    more = add_partition(known, replace(add(0, partition=1), together=others), 21)
    assert more is not None
    assert more.partitions == tuple(("clicks", TOPIC, each) for each in (0, 1, 2))
    assert add_partition(more, add(0, partition=2), 22) is None, "its own leader asks as well"


def test_where_nothing_was_added_there_is_nothing_to_commit() -> None:
    assert end_transaction(begun(), end(0), 30, FRESH) == (None, TransactionEnded(PRODUCER, 0))


def test_an_abort_keeps_late_batches_out_of_the_next_transaction_even_where_none_has_arrived() -> None:
    aborted, answer = end_transaction(begun(), end(0, commits=False), 30, FRESH)
    assert aborted is not None
    assert answer == TransactionEnded(PRODUCER, 1)
    with pytest.raises(ProducerFenced):
        add_partition(aborted, add(0), 31)
    assert end_transaction(aborted, end(0, commits=False), 32, FRESH) == (None, answer)
    with pytest.raises(InvalidTransactionState):
        end_transaction(aborted, end(0), 33, FRESH)
    with pytest.raises(ConcurrentTransaction):
        end_transaction(prepared(), end(1, commits=False), 34, FRESH)


@pytest.mark.parametrize("commits", [True, False])
def test_the_same_end_again_is_answered_as_the_first_time(commits: bool) -> None:
    ending = prepared(commits=commits)
    assert end_transaction(ending, end(0, commits=commits), 31, FRESH) == (None, None)
    done = completed(ending, 40)
    assert end_transaction(done, end(0, commits=commits), 41, FRESH) == (None, TransactionEnded(PRODUCER, 1))


@pytest.mark.parametrize("commits", [True, False])
def test_an_outcome_never_changes(commits: bool) -> None:
    ending = prepared(commits=commits)
    for known in (ending, completed(ending, 40)):
        with pytest.raises(InvalidTransactionState):
            end_transaction(known, end(0, commits=not commits), 41, FRESH)


def test_while_markers_are_written_nothing_new_begins() -> None:
    with pytest.raises(ConcurrentTransaction):
        add_partition(prepared(), add(1), 31)
    with pytest.raises(ConcurrentTransaction):
        init_producer(prepared(), init(), 31, FRESH)


@pytest.mark.parametrize("epoch", [0, 2, 7])
def test_only_the_present_epoch_may_add(epoch: int) -> None:
    with pytest.raises(ProducerFenced):
        add_partition(completed(prepared(), 40), add(epoch), 41)
    with pytest.raises(ProducerFenced):
        end_transaction(ongoing(completed(prepared(), 40)), end(7), 41, FRESH)


def test_nobody_ends_the_transaction_before_the_last() -> None:
    second = ongoing(completed(prepared(), 40))
    with pytest.raises(InvalidTransactionState):
        end_transaction(second, end(0), 41, FRESH)


def test_what_was_never_initialised_is_unknown() -> None:
    with pytest.raises(UnknownTransactionalId):
        add_partition(None, add(0), 10)
    with pytest.raises(UnknownTransactionalId):
        end_transaction(None, end(0), 10, FRESH)
    with pytest.raises(UnknownTransactionalId):
        aborted_by_operator(None, abort(0), 10, FRESH)


# --- holders ------------------------------------------------------------------------------------------------------


def test_who_initialises_again_fences_who_was_there() -> None:
    again = init_producer(begun(), init(), 50, FRESH)
    assert again.answer == ProducerInitialised(PRODUCER, 1)
    with pytest.raises(ProducerFenced):
        add_partition(again.record, add(0), 51)


def test_an_open_transaction_is_aborted_before_somebody_else_begins() -> None:
    aborting = init_producer(ongoing(), init(), 50, FRESH)
    assert aborting.answer is None
    assert (aborting.record.phase, aborting.record.marker_epoch) == (Phase.PREPARE_ABORT, 1)
    again = init_producer(completed(aborting.record, 60), init(), 61, FRESH)
    assert again.answer == ProducerInitialised(PRODUCER, 2)


def test_the_holder_before_does_not_learn_how_its_transaction_ended() -> None:
    done = completed(init_producer(ongoing(), init(), 50, FRESH).record, 60)
    for commits in (True, False):
        with pytest.raises(ProducerFenced):
            end_transaction(done, end(0, commits=commits), 61, FRESH)


def test_a_producer_that_lost_an_answer_initialises_under_what_it_had() -> None:
    done = completed(prepared(), 40)
    assert init_producer(done, init(PRODUCER, 0), 50, FRESH).answer == ProducerInitialised(PRODUCER, 2)
    assert init_producer(done, init(PRODUCER, 1), 50, FRESH).answer == ProducerInitialised(PRODUCER, 2)
    with pytest.raises(ProducerFenced):
        init_producer(done, init(PRODUCER, 5), 50, FRESH)


def test_a_producer_whose_own_transaction_is_aborted_first_asks_again_under_what_it_had() -> None:
    aborting = init_producer(ongoing(), init(PRODUCER, 0), 50, FRESH)
    assert aborting.answer is None
    again = init_producer(completed(aborting.record, 60), init(PRODUCER, 0), 61, FRESH)
    assert again.answer == ProducerInitialised(PRODUCER, 2)
    after_a_lost_answer = init_producer(again.record, init(PRODUCER, 0), 62, FRESH)
    assert after_a_lost_answer.answer == ProducerInitialised(PRODUCER, 3)
    with pytest.raises(ProducerFenced):
        init_producer(init_producer(again.record, init(), 62, FRESH).record, init(PRODUCER, 0), 63, FRESH)


@pytest.mark.parametrize("timeout_ms", [0, -1, MAX_TIMEOUT_MS + 1])
def test_a_time_out_that_cannot_be_is_refused(timeout_ms: int) -> None:
    with pytest.raises(InvalidTransactionTimeout):
        init_producer(None, init(timeout_ms=timeout_ms), 10, PRODUCER)


# --- time, operators ----------------------------------------------------------------------------------------------


def test_what_is_open_for_too_long_is_aborted_and_its_producer_may_go_on() -> None:
    known = ongoing()
    assert timed_out(known, 20 + 999, FRESH) is None
    ended = timed_out(known, 20 + 1000, FRESH)
    assert ended is not None
    assert ended.phase == Phase.PREPARE_ABORT
    for known in (ended, completed(ended, 1100)):
        for late in (add(0), add(0, partition=5)):
            with pytest.raises(TransactionTimedOut) as raised:
                add_partition(known, late, 1200)
            assert raised.value.abortable
        with pytest.raises(TransactionTimedOut):
            add_group(known, AddGroup(ID, PRODUCER, 0, "readers"), 1200)
        with pytest.raises(TransactionTimedOut):
            end_transaction(known, end(0), 1200, FRESH)
    done = completed(ended, 1100)
    assert end_transaction(done, end(0, commits=False), 1200, FRESH).answer == TransactionEnded(PRODUCER, 1)


def test_only_what_is_open_times_out_or_is_aborted() -> None:
    assert timed_out(begun(), 10**9, FRESH) is None
    assert timed_out(prepared(), 10**9, FRESH) is None
    for known in (begun(), prepared(), completed(prepared(), 40)):
        for epoch in (0, 1):
            with pytest.raises(InvalidTransactionState):
                aborted_by_operator(known, abort(epoch), 50, FRESH)


def test_after_an_abort_by_an_operator_the_producer_is_fenced_and_the_same_abort_changes_nothing() -> None:
    aborting = aborted_by_operator(ongoing(), abort(0), 30, FRESH)
    assert aborting is not None
    assert aborting.phase == Phase.PREPARE_ABORT
    done = completed(aborting, 40)
    for known in (aborting, done):
        assert aborted_by_operator(known, abort(0), 50, FRESH) is None
        for commits in (True, False):
            with pytest.raises(ProducerFenced):
                end_transaction(known, end(0, commits=commits), 50, FRESH)
        with pytest.raises(ProducerFenced):
            add_partition(known, add(0), 50)
    again = init_producer(done, init(), 60, FRESH)
    assert again.answer == ProducerInitialised(PRODUCER, 2)
    next_ = ongoing(again.record)
    with pytest.raises(InvalidTransactionState):
        aborted_by_operator(next_, abort(0), 70, FRESH)
    assert aborted_by_operator(next_, abort(2), 70, FRESH) is not None


def test_only_its_time_makes_an_abort_a_time_out() -> None:
    aborted = end_transaction(ongoing(), end(0, commits=False), 30, FRESH).record
    assert aborted is not None
    with pytest.raises(InvalidTransactionState):
        end_transaction(completed(aborted, 40), end(0), 50, FRESH)


def test_idle_ids_are_forgotten_and_others_are_not() -> None:
    assert is_expired(begun(), 10 + 100, 100)
    assert not is_expired(begun(), 10 + 99, 100)
    assert not is_expired(ongoing(), 10**9, 100)
    assert not is_expired(prepared(), 10**9, 100)


# --- epochs run out -----------------------------------------------------------------------------------------------


def near_the_end(epoch: int) -> TransactionRecord:
    known = begun()
    while known.epoch < epoch:
        answer = init_producer(known, init(), 10, FRESH)
        known = answer.record
    return known


def test_the_largest_epoch_is_for_markers_and_behind_it_comes_another_producer_id() -> None:
    last = near_the_end(LAST_EPOCH)
    assert (last.producer_id, last.epoch) == (PRODUCER, LAST_EPOCH)
    ending = prepared(known=ongoing(last))
    assert (ending.marker_id, ending.marker_epoch) == (PRODUCER, MARKER_EPOCH)
    assert (ending.producer_id, ending.epoch) == (FRESH, 0)
    done = completed(ending, 40)
    assert end_transaction(done, end(LAST_EPOCH), 41, FRESH).answer == TransactionEnded(FRESH, 0)
    assert ongoing(done).producer_id == FRESH


def test_initialising_at_the_last_epoch_gives_another_producer_id() -> None:
    assert init_producer(near_the_end(LAST_EPOCH), init(), 10, FRESH).answer == ProducerInitialised(FRESH, 0)
