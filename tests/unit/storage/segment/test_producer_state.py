"""What a partition knows of its producers: the table at the top of `producer_state.py`, row by row."""

from __future__ import annotations

from random import Random

import pytest

from raylog.errors import (
    CoordinatorFenced,
    InvalidTransactionState,
    OutOfOrderSequence,
    ProducerFenced,
)
from raylog.storage.disk.sealed_file import SealBroken
from raylog.storage.format.control_records import Marker, MarkerType, encode_marker
from raylog.storage.format.record_batch import BatchHeader, read_header, stamp
from raylog.storage.segment.producer_state import ProducerStates
from raylog.storage.segment.transaction_index import AbortedTransaction
from tests.unit.storage.small_log import (
    DIRECTORY,
    EPOCH,
    NOW_MS,
    append,
    end_transaction,
    from_producer,
    new_disk,
    new_log,
    open_log,
)

LAST_SEQUENCE = 2**31 - 1
SNAPSHOT = "/data/state.snapshot"


class Partition:
    """Producer state and the next offset: what comes in is checked and applied as a leader does."""

    def __init__(self) -> None:
        self.states = ProducerStates()
        self.end = 0

    def send(
        self, sequence: int, epoch: int = 0, count: int = 1, producer: int = 7, *, transactional: bool = False
    ) -> tuple[int, int]:
        """Where the batch stands: where it stood already if it is a duplicate."""
        header = data(sequence, epoch, count, producer, offset=self.end, transactional=transactional)
        span = self.states.check(header)
        if span is not None:
            return span.first_offset, span.last_offset
        self.states.apply(header, NOW_MS)
        self.end += count
        return header.base_offset, header.last_offset

    def end_transaction(
        self, kind: MarkerType, epoch: int = 0, coordinator_epoch: int = 0, producer: int = 7
    ) -> AbortedTransaction | None:
        marker = Marker(kind, coordinator_epoch)
        header = marker_header(marker, epoch, producer, self.end)
        self.states.check_marker(header, marker)
        self.end += 1
        return self.states.apply_marker(header, marker, NOW_MS)


def data(
    sequence: int, epoch: int = 0, count: int = 1, producer: int = 7, *, offset: int = 0, transactional: bool = False
) -> BatchHeader:
    batch = from_producer(sequence, producer, epoch, count, transactional=transactional)
    stamp(batch, offset, EPOCH)
    return read_header(batch)


def marker_header(marker: Marker, epoch: int, producer: int, offset: int) -> BatchHeader:
    batch = encode_marker(marker, producer, epoch, NOW_MS)
    stamp(batch, offset, EPOCH)
    return read_header(batch)


# --- an unknown producer id: accepted, whatever its sequence (KIP-360) ------------------------------------------------


@pytest.mark.parametrize("sequence", [0, 1, 4_711, LAST_SEQUENCE])
def test_an_unknown_producer_may_start_anywhere(sequence: int) -> None:
    partition = Partition()
    assert partition.send(sequence) == (0, 0)
    assert partition.send((sequence + 1) % (LAST_SEQUENCE + 1)) == (1, 1)


# --- an older epoch: ProducerFenced -----------------------------------------------------------------------------------


def test_an_older_epoch_is_fenced_whatever_its_sequence() -> None:
    partition = Partition()
    partition.send(0, epoch=5)
    for sequence in (0, 1, 2):
        with pytest.raises(ProducerFenced) as raised:
            partition.send(sequence, epoch=4)
        assert (raised.value.epoch, raised.value.current) == (4, 5)


def test_a_marker_alone_fences_older_epochs_too() -> None:
    partition = Partition()
    partition.send(0, epoch=1, transactional=True)
    partition.end_transaction(MarkerType.ABORT, epoch=2)
    with pytest.raises(ProducerFenced):
        partition.send(1, epoch=1, transactional=True)
    assert partition.send(0, epoch=2) == (2, 2)


# --- a newer epoch: accepted at sequence 0, else OutOfOrderSequence ---------------------------------------------------


def test_a_newer_epoch_starts_at_zero() -> None:
    partition = Partition()
    partition.send(0, epoch=1, count=4)
    for sequence in (4, 1, LAST_SEQUENCE):
        with pytest.raises(OutOfOrderSequence) as raised:
            partition.send(sequence, epoch=2)
        assert raised.value.expected == 0
    assert partition.send(0, epoch=2, count=4) == (4, 7)


def test_what_an_older_epoch_sent_is_no_duplicate_of_what_a_newer_one_sends() -> None:
    partition = Partition()
    partition.send(0, epoch=1, count=2)
    assert partition.send(0, epoch=2, count=2) == (2, 3)


def test_a_newer_epoch_waits_for_the_marker_of_an_open_transaction() -> None:
    partition = Partition()
    partition.send(0, epoch=1, transactional=True)
    with pytest.raises(InvalidTransactionState, match="epoch 1 open"):
        partition.send(0, epoch=2, transactional=True)
    partition.end_transaction(MarkerType.ABORT, epoch=2)
    assert partition.send(0, epoch=2, transactional=True) == (2, 2)


# --- first sequence = last + 1: accepted ------------------------------------------------------------------------------


def test_the_next_sequence_is_accepted_and_counts_records() -> None:
    partition = Partition()
    assert partition.send(0, count=3) == (0, 2)
    assert partition.send(3, count=1) == (3, 3)
    assert partition.send(4, count=2) == (4, 5)


@pytest.mark.parametrize("first", [LAST_SEQUENCE, LAST_SEQUENCE - 1, LAST_SEQUENCE - 2])
def test_sequences_wrap_to_zero_after_the_largest(first: int) -> None:
    partition = Partition()
    partition.send(first, count=3)
    following = (first + 3) % (LAST_SEQUENCE + 1)
    assert partition.send(following, count=2) == (3, 4)
    assert partition.send(first, count=3) == (0, 2)  # a duplicate across the end is known too
    with pytest.raises(OutOfOrderSequence):
        partition.send(following, count=1)


# --- one of the last five: a duplicate, answered with the offset it got the first time --------------------------------


def test_the_last_five_batches_are_known_again_and_the_sixth_is_not() -> None:
    partition = Partition()
    for number in range(7):
        partition.send(number * 2, count=2)
    for number in range(2, 7):
        assert partition.send(number * 2, count=2) == (number * 2, number * 2 + 1)
    for number in range(2):
        with pytest.raises(OutOfOrderSequence):
            partition.send(number * 2, count=2)
    assert partition.end == 14


@pytest.mark.parametrize(("sequence", "count"), [(0, 1), (0, 3), (1, 1), (1, 2), (2, 2)])
def test_half_a_batch_or_a_longer_one_is_no_duplicate(sequence: int, count: int) -> None:
    partition = Partition()
    partition.send(0, count=2)
    partition.send(2, count=1)
    with pytest.raises(OutOfOrderSequence):
        partition.send(sequence, count=count)


def test_producers_do_not_know_each_other() -> None:
    partition = Partition()
    partition.send(0, producer=1, count=2)
    assert partition.send(0, producer=2, count=2) == (2, 3)
    assert partition.send(0, producer=1, count=2) == (0, 1)
    assert partition.send(0, producer=2, count=2) == (2, 3)


def test_nothing_is_a_duplicate_across_transactions() -> None:
    partition = Partition()
    partition.send(0, transactional=True)
    partition.end_transaction(MarkerType.COMMIT)
    with pytest.raises(OutOfOrderSequence) as raised:
        partition.send(0, transactional=True)
    assert raised.value.expected == 1
    assert partition.send(1, transactional=True) == (2, 2)


# --- any other sequence -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sequence", [0, 2, 4, 100, LAST_SEQUENCE])
def test_any_other_sequence_is_out_of_order(sequence: int) -> None:
    partition = Partition()
    partition.send(0, count=3)
    with pytest.raises(OutOfOrderSequence) as raised:
        partition.send(sequence)
    assert (raised.value.sequence, raised.value.expected) == (sequence, 3)
    assert partition.send(3) == (3, 3)


# --- transactions -----------------------------------------------------------------------------------------------------


def test_a_transaction_lasts_from_its_first_batch_to_its_marker() -> None:
    partition = Partition()
    assert partition.states.first_unstable_offset() is None
    partition.send(0)
    partition.send(1, transactional=True)
    partition.send(2, transactional=True)
    assert partition.states.open_transactions() == {7: 1}
    assert partition.states.first_unstable_offset() == 1
    assert partition.end_transaction(MarkerType.ABORT) == AbortedTransaction(7, 1, 3, 4)
    assert partition.states.open_transactions() == {}


def test_a_marker_counts_once_the_high_watermark_has_passed_it() -> None:
    partition = Partition()
    partition.send(0, transactional=True)
    partition.end_transaction(MarkerType.COMMIT)
    assert partition.states.first_unstable_offset() == 0
    partition.states.settle(1)
    assert partition.states.first_unstable_offset() == 0
    partition.states.settle(2)
    assert partition.states.first_unstable_offset() is None


def test_the_oldest_open_transaction_decides() -> None:
    partition = Partition()
    for producer in (3, 1, 2):
        partition.send(0, producer=producer, transactional=True)
    assert partition.states.first_unstable_offset() == 0
    assert partition.end_transaction(MarkerType.ABORT, producer=3) == AbortedTransaction(3, 0, 3, 1)
    partition.states.settle(4)
    assert partition.states.first_unstable_offset() == 1
    assert partition.end_transaction(MarkerType.ABORT, producer=2) == AbortedTransaction(2, 2, 4, 1)
    partition.states.settle(5)
    partition.end_transaction(MarkerType.COMMIT, producer=1)
    partition.states.settle(6)
    assert partition.states.first_unstable_offset() is None


def test_a_marker_without_a_transaction_ends_nothing() -> None:
    partition = Partition()
    assert partition.end_transaction(MarkerType.ABORT) is None
    assert partition.states.first_unstable_offset() is None


def test_writing_outside_an_open_transaction_is_refused() -> None:
    partition = Partition()
    partition.send(0, transactional=True)
    with pytest.raises(InvalidTransactionState):
        partition.send(1)
    partition.end_transaction(MarkerType.COMMIT)
    assert partition.send(1) == (2, 2)


def test_markers_are_fenced_by_the_producers_epoch_and_by_the_coordinators() -> None:
    partition = Partition()
    partition.send(0, epoch=3, transactional=True)
    with pytest.raises(ProducerFenced):
        partition.end_transaction(MarkerType.ABORT, epoch=2)
    partition.end_transaction(MarkerType.COMMIT, epoch=3, coordinator_epoch=9)
    with pytest.raises(CoordinatorFenced) as raised:
        partition.end_transaction(MarkerType.ABORT, epoch=4, coordinator_epoch=8)
    assert (raised.value.coordinator_epoch, raised.value.current) == (8, 9)
    partition.end_transaction(MarkerType.ABORT, epoch=4, coordinator_epoch=9)


# --- forgetting -------------------------------------------------------------------------------------------------------


def test_an_idle_producer_is_forgotten_and_one_with_an_open_transaction_never() -> None:
    partition = Partition()
    partition.send(0, producer=1)
    partition.send(0, producer=2, transactional=True)
    assert partition.states.expire(NOW_MS + 999, 1_000) == []
    assert partition.states.expire(NOW_MS + 1_000, 1_000) == [1]
    assert partition.states.expire(NOW_MS + 10**12, 1_000) == []
    assert partition.send(55, producer=1) == (2, 2)
    with pytest.raises(OutOfOrderSequence):
        partition.send(55, producer=2, transactional=True)


# --- snapshots --------------------------------------------------------------------------------------------------------


def test_a_snapshot_gives_the_same_answers() -> None:
    disk = new_disk()
    rng = Random(5)
    partition = Partition()
    for _ in range(200):
        producer = rng.randrange(6)
        entry = partition.states.get(producer)
        if entry is not None and entry.transaction_start is not None and rng.random() < 0.3:
            partition.end_transaction(rng.choice(list(MarkerType)), entry.epoch, producer=producer)
        else:
            open_transaction = entry is not None and entry.transaction_start is not None
            sequence = 0 if entry is None else entry.expected_sequence()
            epoch = 0 if entry is None else entry.epoch
            transactional = open_transaction or rng.random() < 0.5
            partition.send(sequence, epoch, rng.randint(1, 3), producer, transactional=transactional)
    partition.states.settle(partition.end - 20)
    partition.states.save(disk, SNAPSHOT, partition.end)
    loaded = ProducerStates.load(disk, SNAPSHOT, partition.end)
    assert [repr(loaded.get(number)) for number in range(6)] == [
        repr(partition.states.get(number)) for number in range(6)
    ]
    assert loaded.open_transactions() == partition.states.open_transactions()
    for high_watermark in range(partition.end - 20, partition.end + 1):
        assert loaded.first_unstable_offset() == partition.states.first_unstable_offset()
        loaded.settle(high_watermark)
        partition.states.settle(high_watermark)


def test_a_snapshot_of_another_offset_is_not_believed() -> None:
    disk = new_disk()
    ProducerStates().save(disk, SNAPSHOT, 10)
    with pytest.raises(SealBroken):
        ProducerStates.load(disk, SNAPSHOT, 11)


# --- in a log ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["none", "close", "crash"])
def test_a_duplicate_has_the_time_at_which_it_was_appended_first(end: str) -> None:
    log, disk = new_log({"message.timestamp.type": "LogAppendTime"})
    assert log.append_as_leader(from_producer(0), EPOCH, NOW_MS).append_time_ms == NOW_MS
    if end == "close":
        log.close()
    elif end == "crash":
        disk.crash_process()
    log = log if end == "none" else open_log(disk, {"message.timestamp.type": "LogAppendTime"})
    again = log.append_as_leader(from_producer(0), EPOCH, NOW_MS + 5_000)
    assert (again.is_duplicate, again.append_time_ms) == (True, NOW_MS)


def test_a_duplicate_of_a_batch_with_its_writers_time_has_no_append_time() -> None:
    log, _ = new_log()
    log.append_as_leader(from_producer(0), EPOCH, NOW_MS)
    log.update_config({"message.timestamp.type": "LogAppendTime"})
    assert log.append_as_leader(from_producer(0), EPOCH, NOW_MS + 5_000).append_time_ms == -1


def test_a_snapshot_of_a_log_that_was_thrown_away_is_not_taken_for_the_new_ones() -> None:
    """A clean close leaves a snapshot at the log's end, where the log may then begin again with other producers."""
    log, disk = new_log()
    log.append_as_leader(from_producer(0, count=3), EPOCH, NOW_MS)
    log.close()
    log = open_log(disk)
    log.restart_at(3)
    disk.crash_process()
    log = open_log(disk)
    log.begin_epoch(EPOCH)
    assert log.append_as_leader(from_producer(0, count=3), EPOCH, NOW_MS) == (3, 5, False, -1)


def test_snapshots_do_not_pile_up() -> None:
    log, disk = new_log({"segment.bytes": 400})
    for _ in range(10):
        for _ in range(2):
            append(log, b"x" * 100)
        log.close()
        log = open_log(disk, {"segment.bytes": 400})
        log.begin_epoch(log.epochs.latest + 1)
    snapshots = {path for path in disk.files() if path.endswith(".snapshot")}
    assert snapshots <= {f"{DIRECTORY}/{base:020d}.snapshot" for base in log.segments.bases()}


def test_a_producer_forgotten_by_expiry_may_be_remembered_again_after_a_restart_and_both_are_safe() -> None:
    log, disk = new_log({"producer.id.expiration.ms": 1_000})
    log.append_as_leader(from_producer(0), EPOCH, NOW_MS)
    assert log.expire_producers(NOW_MS + 1_000) == [7]
    assert log.append_as_leader(from_producer(9), EPOCH, NOW_MS).first_offset == 1
    disk.crash_process()
    log = open_log(disk)
    assert log.append_as_leader(from_producer(10), log.epochs.latest, NOW_MS).first_offset == 2
    assert log.append_as_leader(from_producer(9), log.epochs.latest, NOW_MS) == (1, 1, True, -1)


def test_after_a_crash_ended_transactions_below_the_high_watermark_hold_no_reader_up() -> None:
    log, disk = new_log()
    log.append_as_leader(from_producer(0, transactional=True), EPOCH, NOW_MS)
    end_transaction(log, MarkerType.COMMIT)
    log.advance_high_watermark(2)
    log.checkpoint()
    assert log.last_stable_offset == 2
    disk.crash_process()
    assert open_log(disk).last_stable_offset == 2


def test_an_open_transaction_survives_any_restart() -> None:
    log, disk = new_log()
    append(log, b"before")
    log.append_as_leader(from_producer(0, transactional=True), EPOCH, NOW_MS)
    log.advance_high_watermark(2)
    for end in (log.close, disk.crash_process):
        end()
        log = open_log(disk)
        log.advance_high_watermark(2)
        assert (log.last_stable_offset, log.high_watermark) == (1, 2)


def test_deleting_the_beginning_of_an_open_transaction_does_not_put_the_stable_end_before_the_start() -> None:
    log, _ = new_log()
    log.append_as_leader(from_producer(0, transactional=True), EPOCH, NOW_MS)
    append(log, b"one", b"two")
    log.advance_high_watermark(3)
    log.delete_records(2)
    assert (log.log_start_offset, log.last_stable_offset, log.high_watermark) == (2, 2, 3)
