"""Ways in which a log once failed its owner without being damaged."""

import errno
from collections.abc import Callable

import pytest

from raylog.errors import DiskBusy, DiskReadOnly, InvalidTransactionState, LogDamaged
from raylog.storage.directory.data_directory import DataDirectory
from raylog.storage.disk.checkpoints import write_checkpoint
from raylog.storage.disk.disk import disk_error
from raylog.storage.disk.sealed_file import SealBroken, write_sealed
from raylog.storage.format.control_records import Marker, MarkerType, encode_marker
from raylog.storage.log.flushing import Flush
from raylog.storage.segment.indexes import OffsetIndex, TimeIndex
from raylog.storage.segment.leader_epochs import FILE_NAME, LeaderEpochs
from raylog.storage.segment.producer_state import ProducerStates
from raylog.storage.segment.transaction_index import TransactionIndex
from tests.unit.storage.small_log import (
    EPOCH,
    NOW_MS,
    PARENT,
    append,
    end_transaction,
    from_producer,
    new_disk,
    new_log,
)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_shortage_of_the_process_is_no_failure_of_the_disk(number: int) -> None:
    error = disk_error(OSError(number, "short"), "Opening a")
    assert type(error) is DiskBusy
    assert error.retriable


def test_a_marker_is_taken_however_late_it_comes() -> None:
    log, _ = new_log({"message.timestamp.before.max.ms": 1000})
    log.append_as_leader(from_producer(0, transactional=True), EPOCH, NOW_MS)
    marker = encode_marker(Marker(MarkerType.ABORT, 0), 7, 0, NOW_MS - 5000)
    log.append_as_leader(marker, EPOCH, NOW_MS, control=True)
    assert log.producers.open_transactions() == {}


def test_a_newer_epoch_waits_for_the_marker_of_the_older_ones_transaction() -> None:
    log, _ = new_log()
    log.append_as_leader(from_producer(0, transactional=True), EPOCH, NOW_MS)
    newer = from_producer(0, epoch=1, transactional=True)
    with pytest.raises(InvalidTransactionState):
        log.append_as_leader(newer, EPOCH, NOW_MS)
    end_transaction(log, MarkerType.ABORT, epoch=1)
    log.append_as_leader(from_producer(0, epoch=1, transactional=True), EPOCH, NOW_MS)
    assert log.producers.open_transactions() == {7: 2}
    assert log.producers.first_unstable_offset() == 0
    log.producers.settle(2)
    assert log.producers.first_unstable_offset() == 2


def test_a_flush_that_fails_is_over_and_due_again(monkeypatch: pytest.MonkeyPatch) -> None:
    log, _ = new_log()
    append(log, b"a")

    def refuse(flush: Flush) -> None:
        raise DiskReadOnly("no")

    with monkeypatch.context() as patch:
        patch.setattr(Flush, "work", refuse)
        with pytest.raises(DiskReadOnly):
            log.flush()
    assert log.flush_due(NOW_MS)
    assert log.flush() == 1


def test_content_that_cannot_be_is_damage_even_under_a_checksum_that_fits() -> None:
    disk = new_disk()
    write_checkpoint(disk, f"{PARENT}/{FILE_NAME}", 1, {"epoch": []})
    with pytest.raises(LogDamaged):
        LeaderEpochs.load(disk, PARENT)
    write_checkpoint(disk, f"{PARENT}/broker.json", 1, {"cluster": "c"})
    with pytest.raises(LogDamaged):
        DataDirectory.read_identity(PARENT, disk)


def test_derived_files_with_half_an_entry_are_made_again() -> None:
    disk, path = new_disk(), f"{PARENT}/a"
    loads: list[tuple[bytes, Callable[[], object]]] = [
        (b"RLOI", lambda: OffsetIndex.load(disk, path, 0, 5)),
        (b"RLTI", lambda: TimeIndex.load(disk, path, 0, 5)),
        (b"RLXI", lambda: TransactionIndex.load(disk, path, 5)),
        (b"RLPS", lambda: ProducerStates.load(disk, path, 5)),
    ]
    for tag, load in loads:
        write_sealed(disk, path, tag, 1, 5, b"half!")
        with pytest.raises(SealBroken):
            load()
