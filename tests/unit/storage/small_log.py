"""A small log on a disk in memory, for tests that say exactly what stands in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from raylog.config import ConfigValue
from raylog.errors import RaylogError
from raylog.storage.directory.partition_directory import PartitionIdentity
from raylog.storage.disk.disk import Disk
from raylog.storage.format.batch_codec import encode_batch
from raylog.storage.format.control_records import Marker, MarkerType, encode_marker
from raylog.storage.format.record_batch import Bytes, split_batches
from raylog.storage.log.appends import Appended
from raylog.storage.log.partition_log import PartitionLog
from raylog.storage.log.reader import Isolation
from tests.simulator.world.faulty_disk import FaultyDisk

PARENT = "/data"
DIRECTORY = f"{PARENT}/orders-0"
IDENTITY = PartitionIdentity("cluster", "orders", "orders-id", 0)
NOW_MS = 1_700_000_000_000
EPOCH = 3


def new_disk(**options: Any) -> FaultyDisk:
    """A disk whose data directory is there and stays there."""
    disk = FaultyDisk(**options)
    disk.make_directory(PARENT)
    disk.sync_everything()
    return disk


def open_log(disk: Disk, overrides: Mapping[str, ConfigValue] | None = None, now_ms: int = NOW_MS) -> PartitionLog:
    return PartitionLog.open(DIRECTORY, IDENTITY, overrides, now_ms=now_ms, disk=disk)


def new_log(overrides: Mapping[str, ConfigValue] | None = None) -> tuple[PartitionLog, FaultyDisk]:
    """An empty log that has begun its first epoch."""
    disk = new_disk()
    log = open_log(disk, overrides)
    log.begin_epoch(EPOCH)
    return log, disk


def batch(*values: bytes, timestamp: int = NOW_MS, **options: Any) -> bytearray:
    """A columnar batch of these values under one key."""
    values = values or (b"value",)
    return encode_batch(list(values), keys=[b"key"] * len(values), timestamps=timestamp, **options)


def append(log: PartitionLog, *values: bytes, now_ms: int = NOW_MS, **options: Any) -> Appended:
    return log.append_as_leader(batch(*values, timestamp=now_ms, **options), log.epochs.latest, now_ms)


def from_producer(sequence: int, producer: int = 7, epoch: int = 0, count: int = 1, **options: Any) -> bytearray:
    return batch(*[b"p"] * count, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, **options)


def end_transaction(
    log: PartitionLog, kind: MarkerType, producer: int = 7, epoch: int = 0, coordinator_epoch: int = 0
) -> Appended:
    marker = encode_marker(Marker(kind, coordinator_epoch), producer, epoch, NOW_MS)
    return log.append_as_leader(marker, log.epochs.latest, NOW_MS, control=True)


def contents(log: PartitionLog) -> list[bytes]:
    """Every batch from the log's start on, as it stands in the log."""
    found: list[bytes] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        fetched = log.read(offset, 1 << 20, Isolation.LOG_END)
        found += map(bytes, split_batches(fetched.data))
        offset = fetched.next_offset
    return found


def bytes_on_disk(disk: FaultyDisk) -> dict[str, bytes]:
    return {path: disk.read_file(path) for path in disk.files()}


@contextmanager
def refused(
    log: PartitionLog, disk: FaultyDisk, error: type[RaylogError], *, says: str | None = None
) -> Iterator[pytest.ExceptionInfo[RaylogError]]:
    """The block raises exactly `error`, and leaves the log as it was: on disk, in its offsets, in what it knows."""
    before = _everything(log, disk)
    with pytest.raises(error, match=says) as raised:
        yield raised
    assert raised.type is error
    assert _everything(log, disk) == before
    assert log.offline_because is None


def _everything(log: PartitionLog, disk: FaultyDisk) -> tuple[object, ...]:
    return (
        bytes_on_disk(disk),
        log.marks.now(),
        log.log_end_offset,
        log.last_stable_offset,
        log.epochs.history,
        {number: repr(log.producers.get(number)) for number in range(10)},
        log.producers.open_transactions(),
        contents(log),
    )


def same_bytes(batches: list[bytes], *expected: Bytes) -> bool:
    return batches == [bytes(each) for each in expected]
