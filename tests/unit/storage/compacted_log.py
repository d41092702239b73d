"""A compacted log with its own history of what was written, to hold the log against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from raylog.config import ConfigValue
from raylog.storage.compaction.cleaner import CompactionReport, run_compaction
from raylog.storage.compaction.key_map import MemoryBudget
from raylog.storage.directory.partition_directory import PartitionIdentity
from raylog.storage.disk.disk import Disk
from raylog.storage.format.batch_codec import decode_batch, encode_batch
from raylog.storage.format.control_records import Marker, MarkerType, encode_marker
from raylog.storage.format.record_batch import split_batches
from raylog.storage.log.partition_log import PartitionLog
from raylog.storage.log.reader import Isolation

DIRECTORY = "/data/users-0"
IDENTITY = PartitionIdentity("cluster", "users", "users-id", 0)
NOW_MS = 1_700_000_000_000
EPOCH = 1


class Written(NamedTuple):
    offset: int
    key: bytes
    value: bytes | None


def open_log(disk: Disk, overrides: Mapping[str, ConfigValue] | None = None, now_ms: int = NOW_MS) -> PartitionLog:
    settings = {"cleanup.policy": "compact", "segment.bytes": 600, "index.interval.bytes": 100, **(overrides or {})}
    log = PartitionLog.open(DIRECTORY, IDENTITY, settings, now_ms=now_ms, disk=disk)
    if log.epochs.latest < EPOCH:
        log.begin_epoch(EPOCH)
    return log


def compact(
    log: PartitionLog, now_ms: int, budget: MemoryBudget, *, force: bool = False
) -> CompactionReport | None:
    """Plan, do and install one compaction in this process; None where there was nothing to do."""
    plan = log.plan_compaction(now_ms, force=force)
    if plan is None:
        return None
    report = run_compaction(log.directory.disk, plan, budget)
    log.install_compaction(report, now_ms)
    return report


def write(log: PartitionLog, records: Sequence[tuple[bytes, bytes | None]], now_ms: int = NOW_MS) -> list[Written]:
    """Append one batch, and let it count as replicated."""
    batch = encode_batch([value for _, value in records], keys=[key for key, _ in records], timestamps=now_ms)
    first = log.append_as_leader(batch, EPOCH, now_ms).first_offset
    log.advance_high_watermark(log.log_end_offset)
    return [Written(first + at, key, value) for at, (key, value) in enumerate(records)]


def write_transaction(
    log: PartitionLog, records: Sequence[tuple[bytes, bytes | None]], producer_id: int, epoch: int, end: MarkerType
) -> list[Written]:
    """Append one batch and the marker that ends its transaction; returns the records if it was committed."""
    batch = encode_batch(
        [value for _, value in records],
        keys=[key for key, _ in records],
        timestamps=NOW_MS,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=0,
        transactional=True,
    )
    first = log.append_as_leader(batch, EPOCH, NOW_MS).first_offset
    marker = encode_marker(Marker(end, 1), producer_id, epoch, NOW_MS)
    log.append_as_leader(marker, EPOCH, NOW_MS, control=True)
    log.advance_high_watermark(log.log_end_offset)
    written = [Written(first + at, key, value) for at, (key, value) in enumerate(records)]
    return written if end is MarkerType.COMMIT else []


def committed_records(log: PartitionLog) -> list[Written]:
    """Everything a `read_committed` consumer sees, read in small pieces. The offsets read must be without a hole."""
    found: list[Written] = []
    offset = log.log_start_offset
    aborted = log.aborted_between(offset, log.log_end_offset, NOW_MS)
    while offset < log.log_end_offset:
        fetched = log.read(offset, 200, Isolation.LOG_END)
        for data in split_batches(fetched.data):
            batch = decode_batch(data)
            header = batch.header
            is_aborted = header.is_transactional and any(
                each.producer_id == header.producer_id and each.first_offset <= header.base_offset <= each.last_offset
                for each in aborted
            )
            if not header.is_control and not is_aborted:
                found += [
                    Written(at, key, value)
                    for at, key, value in zip(batch.offsets, batch.keys, batch.values, strict=True)
                    if key is not None
                ]
        assert fetched.next_offset > offset
        offset = fetched.next_offset
    return found


def newest(records: Sequence[Written]) -> dict[bytes, Written]:
    return {record.key: record for record in records}


def live(records: Sequence[Written]) -> dict[bytes, Written]:
    """The newest records, without the keys that were deleted."""
    return {key: record for key, record in newest(records).items() if record.value is not None}
