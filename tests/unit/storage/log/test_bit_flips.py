"""10,000 single bits flipped, over every kind of file: nothing wrong is served, nothing good before it is lost.

A flip may be refused at opening, be met when the batch is read, or be mended (indexes and snapshots are made again);
what is read without an error is what was written, and damage to batches quarantines the replica (rule 14).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import pytest

from raylog.errors import BatchError, LogDamaged, UnsupportedFormat
from raylog.storage.compaction.key_map import MemoryBudget
from raylog.storage.directory.partition_directory import QUARANTINE_FILE, PartitionIdentity
from raylog.storage.format.batch_codec import DecodedBatch, decode_batch, encode_batch
from raylog.storage.format.control_records import Marker, MarkerType, encode_marker
from raylog.storage.format.record_batch import split_batches
from raylog.storage.log.partition_log import PartitionLog
from raylog.storage.log.reader import Isolation
from raylog.storage.segment.leader_epochs import EpochStart
from tests.simulator.world.faulty_disk import FaultyDisk
from tests.unit.storage.compacted_log import compact

DIRECTORY = "/data/t-0"
IDENTITY = PartitionIdentity("cluster", "t", "t-id", 0)
NOW_MS = 1_700_000_000_000
FLIPS_PER_LOG = 1667
OVERRIDES: dict[str, str | int] = {"segment.bytes": 700, "index.interval.bytes": 150}


class Answers(NamedTuple):
    """All that one can learn from a log."""

    batches: list[DecodedBatch]
    marks: tuple[int, int, int, int]
    aborted: list[tuple[int, ...]]
    producers: list[str]
    times: list[tuple[int, int] | None]
    epochs: list[EpochStart]


def open_log(disk: FaultyDisk) -> PartitionLog:
    return PartitionLog.open(DIRECTORY, IDENTITY, OVERRIDES, now_ms=NOW_MS, disk=disk)


# --- the logs -----------------------------------------------------------------------------------------------------


def plain(disk: FaultyDisk) -> PartitionLog:
    log = open_log(disk)
    for epoch in (1, 4):
        log.begin_epoch(epoch)
        for number in range(8):
            values = [b"value %d" % number, None, b"x" * number]
            times = [NOW_MS + number * 10] * 3
            batch = encode_batch(values, timestamps=times, keys=[b"k", b"", None], codec=number % 5)
            log.append_as_leader(batch, epoch, NOW_MS)
    return log


def transactional(disk: FaultyDisk) -> PartitionLog:
    log = open_log(disk)
    log.begin_epoch(2)
    for number in range(9):
        batch = encode_batch([b"v%d" % number] * 2, timestamps=NOW_MS + number, producer_id=number % 2,
                             producer_epoch=number, base_sequence=0, transactional=True)  # fmt: skip
        log.append_as_leader(batch, 2, NOW_MS)
        marker = Marker(MarkerType.ABORT if number % 3 == 0 else MarkerType.COMMIT, 5)
        log.append_as_leader(encode_marker(marker, number % 2, number, NOW_MS), 2, NOW_MS, control=True)
    return log


def compacted(disk: FaultyDisk) -> PartitionLog:
    log = open_log(disk)
    log.begin_epoch(1)
    for number in range(24):
        keys = [b"key-%d" % ((number + at) % 5) for at in range(3)]
        log.append_as_leader(encode_batch([b"v%d" % number] * 3, timestamps=NOW_MS + number, keys=keys), 1, NOW_MS)
    log.advance_high_watermark(log.log_end_offset)
    log.roll()
    log.update_config({**OVERRIDES, "cleanup.policy": "compact"})
    assert compact(log, NOW_MS, MemoryBudget(), force=True) is not None
    log.update_config(OVERRIDES)
    log.remove_deleted_files(NOW_MS + 10**9)
    log.begin_epoch(3)
    for number in range(4):
        log.append_as_leader(encode_batch([b"late"], timestamps=NOW_MS + 100, keys=[b"k%d" % number]), 3, NOW_MS)
    return log


# --- reading ------------------------------------------------------------------------------------------------------


def read_batches(log: PartitionLog) -> tuple[list[DecodedBatch], int | None]:
    """Every batch up to the first that cannot be read, and the offset of that one."""
    found: list[DecodedBatch] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        try:
            fetched = log.read(offset, 1, Isolation.LOG_END)
            found += [decode_batch(batch) for batch in split_batches(fetched.data)]
        except LogDamaged:
            return found, offset
        except BatchError:
            with pytest.raises(LogDamaged):  # the reader reports it, and the log finds it too
                log.inspect(offset)
            return found, offset
        offset = fetched.next_offset
    return found, None


def ask_everything(log: PartitionLog, batches: list[DecodedBatch]) -> Answers:
    return Answers(
        batches,
        (log.log_start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset),
        [tuple(each) for each in log.aborted_between(0, log.log_end_offset, NOW_MS)],
        [repr(log.producers.get(number)) for number in range(3)],
        [log.offset_for_timestamp(NOW_MS + wait) for wait in range(0, 120, 7)],
        [log.epochs.end_offset_for(epoch, log.log_end_offset) for epoch in range(6)],
    )


# --- the flips ----------------------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "crashed"])
@pytest.mark.parametrize("make", [plain, transactional, compacted])
def test_flipped_bits_are_never_served_and_never_cost_what_is_before_them(
    make: Callable[[FaultyDisk], PartitionLog], is_closed: bool
) -> None:
    disk = FaultyDisk()
    log = make(disk)
    log.advance_high_watermark(log.log_end_offset)
    expected = ask_everything(log, read_batches(log)[0])
    if is_closed:
        log.close()
    else:
        log.checkpoint()
        disk.crash_process()
    rng = random.Random(f"{make.__name__} {is_closed}")
    files = {path: size for path, size in disk.files().items() if size and not path.endswith(".lock")}
    kinds = sorted({kind_of(path) for path in files})
    outcomes: Counter[tuple[str, str]] = Counter()
    for _ in range(FLIPS_PER_LOG):
        kind = rng.choice(kinds)
        path = rng.choice([each for each in sorted(files) if kind_of(each) == kind])
        bit = rng.randrange(files[path] * 8)
        flipped = disk.clone()
        flipped.flip_bit(path, bit)
        outcomes[kind, outcome_of(flipped, path, bit, expected)] += 1
    assert sum(outcomes.values()) == FLIPS_PER_LOG
    for kind in kinds:
        assert sum(count for (each, _), count in outcomes.items() if each == kind) > 50
    print_table(f"{make.__name__}, {'closed' if is_closed else 'crashed'}", outcomes)


def kind_of(path: str) -> str:
    name = path.rpartition("/")[2]
    return name[20:] if name[:20].isdigit() else name


def outcome_of(disk: FaultyDisk, path: str, bit: int, expected: Answers) -> str:
    """What became of the flip; asserts whatever must be true of it."""
    try:
        log = open_log(disk)
    except (LogDamaged, UnsupportedFormat):
        with pytest.raises((LogDamaged, UnsupportedFormat)):  # it does not come back as if nothing had been
            open_log(disk)
        return "refused"
    batches, unreadable = read_batches(log)
    if unreadable is None:
        assert ask_everything(log, batches) == expected, (path, bit)
        return "mended or without effect"
    assert path.endswith(".log"), (path, bit)
    assert batches == expected.batches[: len(batches)], (path, bit)
    next_batch = expected.batches[len(batches)].header
    assert next_batch.base_offset == unreadable
    assert is_near(path, bit, expected, len(batches)), (path, bit)
    assert disk.exists(f"{DIRECTORY}/{QUARANTINE_FILE}")
    log.close()
    with pytest.raises(LogDamaged):
        open_log(disk)
    return "met when read"


def is_near(path: str, bit: int, expected: Answers, at: int) -> bool:
    """Whether the flip lies in the first batch that could not be read, or in the next, which proves its end."""
    base = int(path.rpartition("/")[2][:20])
    position = 0
    for number, batch in enumerate(expected.batches):
        if batch.header.base_offset < base:
            continue
        if position <= bit // 8 < position + batch.header.size:
            return number - at in (0, 1)
        position += batch.header.size
    return False


def print_table(title: str, outcomes: Counter[tuple[str, str]]) -> None:
    """Shown by `pytest -rP`, for whoever wants the figures."""
    print(title)  # noqa: T201
    for (kind, outcome), count in sorted(outcomes.items()):
        print(f"  {kind:26}{outcome:28}{count:6}")  # noqa: T201
