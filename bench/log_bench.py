"""One replica's log on this machine's disk: appends, look-ups, opening, recovery, compaction."""

from __future__ import annotations

import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.batches import NOW_MS, batch_of, records
from bench.measuring import ROUNDS, Figure, rounds_of, seconds
from raylog.config import GIB, MIB
from raylog.storage.compaction.cleaner import CompactionReport, run_compaction
from raylog.storage.compaction.key_map import MemoryBudget, bytes_for
from raylog.storage.directory.partition_directory import PartitionIdentity
from raylog.storage.format.batch_codec import encode_batch
from raylog.storage.log.partition_log import PartitionLog
from raylog.storage.log.recovery import OpenedAfter

_IDENTITY = PartitionIdentity("bench", "bench", "bench-id", 0)
_SMALL_BATCH = 16 * 1024
_APPEND_BYTES = 256 * MIB
_LARGE_LOG = 4 * GIB
_LOOKUPS = 20_000
_KEYS = 500_000


def run() -> Iterator[Figure]:
    root = Path(tempfile.mkdtemp(prefix="raylog-bench-", dir=os.environ.get("RAYLOG_BENCH_DIR")))
    try:
        yield from _appends(root)
        yield from _large_log(root)
        yield from _recovery(root)
        yield from _compaction(root)
    finally:
        shutil.rmtree(root)


def _open(path: Path, **overrides: str | int) -> PartitionLog:
    log = PartitionLog.open(str(path), _IDENTITY, {k.replace("_", "."): v for k, v in overrides.items()}, now_ms=NOW_MS)
    if log.epochs.latest < 1:
        log.begin_epoch(1)
    return log


def _abandon(log: PartitionLog) -> None:
    """Leave the log as a killed process would: nothing synced, no note of a clean close."""
    for segment in log.segments:
        segment.close()
    log.directory.release()


def _fill(log: PartitionLog, batch: bytearray, total_bytes: int) -> float:
    def fill() -> None:
        for _ in range(total_bytes // len(batch)):
            log.append_as_leader(batch, 1, NOW_MS)

    return seconds(fill)


def _write_raw(path: Path, block: bytearray, total_bytes: int) -> float:
    fd = os.open(path, os.O_RDWR | os.O_CREAT)

    def write() -> None:
        for _ in range(total_bytes // len(block)):
            os.write(fd, block)

    try:
        return seconds(write)
    finally:
        os.close(fd)


def _append_round(root: Path, batch: bytearray) -> tuple[float, float]:
    """(seconds for raw writes, seconds for appends) of the same bytes, into fresh files."""
    raw = _write_raw(root / "raw", batch, _APPEND_BYTES)
    (root / "raw").unlink()
    os.sync()
    log = _open(root / "appends")
    spent = _fill(log, batch, _APPEND_BYTES)
    _abandon(log)
    shutil.rmtree(root / "appends")
    os.sync()
    return raw, spent


def _appends(root: Path) -> Iterator[Figure]:
    for name, size, goal in (("1 MiB", MIB, 0.6), ("16 KiB", _SMALL_BATCH, None)):
        batch = batch_of(size)
        _append_round(root, batch)
        rounds = [_append_round(root, batch) for _ in range(ROUNDS)]
        total = _APPEND_BYTES // len(batch) * len(batch)
        yield Figure(
            f"append {name} batches, to raw write",
            [raw / spent for raw, spent in rounds],
            "of raw os.write",
            goal,
            note=f"{total / statistics.median(spent for _, spent in rounds) / 1e6:,.0f} MB/s against "
            f"{total / statistics.median(raw for raw, _ in rounds) / 1e6:,.0f} MB/s raw",
        )


def _large_log(root: Path) -> Iterator[Figure]:
    path = root / "large"
    log = _open(path)
    _fill(log, batch_of(_SMALL_BATCH), _LARGE_LOG)
    log.advance_high_watermark(log.log_end_offset)
    lookups = rounds_of(lambda: _lookup_p50(log))
    yield Figure("look-up of a random offset, p50", lookups, "µs", 20, True, "4 GiB log, warm")
    log.close()

    def reopen() -> float:
        start = time.perf_counter()
        again = _open(path)
        spent = time.perf_counter() - start
        again.close()
        return spent

    yield Figure("open a cleanly closed log", rounds_of(reopen), "s", 0.5, True, "4 GiB")
    shutil.rmtree(path)


def _lookup_p50(log: PartitionLog) -> float:
    rng = random.Random(7)
    spent = []
    for offset in [rng.randrange(log.log_end_offset) for _ in range(_LOOKUPS)]:
        start = time.perf_counter()
        log.segments.containing(offset).locate(offset)
        spent.append(time.perf_counter() - start)
    return statistics.median(spent) * 1e6


def _recovery(root: Path) -> Iterator[Figure]:
    path = root / "crashed"
    log = _open(path)
    _fill(log, batch_of(_SMALL_BATCH), GIB - 4 * MIB)
    size = log.size_bytes
    _abandon(log)

    def recover() -> float:
        start = time.perf_counter()
        again = _open(path)
        spent = time.perf_counter() - start
        assert again.opened_after is OpenedAfter.PROCESS_CRASH
        _abandon(again)
        return size / spent / 1e9

    yield Figure("recovery scan", rounds_of(recover), "GB/s", 1, note="one segment of 1 GiB, 16 KiB batches")
    shutil.rmtree(path)


def _compaction(root: Path) -> Iterator[Figure]:
    path = root / "compacted"
    log = _open(path, cleanup_policy="compact", segment_bytes=64 * MIB)
    for seed in range(400):
        keys, values, timestamps = records(5000, seed)
        keys = [b"%s-%03d" % (key, seed % 50) for key in keys]
        log.append_as_leader(encode_batch(values, keys=keys, timestamps=timestamps), 1, NOW_MS)
    log.roll()
    log.advance_high_watermark(log.log_end_offset)
    plan = log.plan_compaction(NOW_MS)
    assert plan is not None
    reports: list[CompactionReport] = []

    def compact() -> float:
        start = time.perf_counter()
        reports.append(run_compaction(log.directory.disk, plan, MemoryBudget(bytes_for(_KEYS))))
        return reports[-1].bytes_before / (time.perf_counter() - start) / 1e6

    yield Figure(
        "compaction", rounds_of(compact, 3), "MB/s", note=f"2 M records of 116 bytes, {reports[-1].keys:,} keys stay"
    )
    per_key = [report.bytes_of_map_per_key for report in reports]
    slots = "of a map nearly full: 24 a slot, slots filled to 80 % at the most"
    yield Figure("compaction map", per_key, "bytes/key", note=slots)
    _abandon(log)
